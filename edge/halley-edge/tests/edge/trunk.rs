//! Clauses 1 and 13: one connection for all workers.

use halley_link::{Event, FLAG_END, Frame, Item, List, NumberedSession, Slot, Word};

use crate::brain::{Brain, Edge, Seen, WINDOW, conn_items};
use crate::client::{Client, sse_event};
use crate::process::signal;
use crate::trunk_way::to_slot;

const WORKERS: u16 = 3;
/// A worker's slot is its number and so much.
const SLOTS: u16 = 20;
const CURSOR: &[u8] = b"AQAAAAcAAABkAAAAAAAKAAAA";
const JSON: &str = r#"{"id":"1","subject":"s","at":1,"data":7}"#;

impl Brain {
    fn say_to(&mut self, slot: u16, frame: &Frame<'_>) {
        let mut out = Vec::new();
        to_slot(slot, frame, &mut out);
        self.send_bytes(&out).unwrap();
    }

    /// What the next worker says.
    pub fn next_of(&mut self) -> (u16, Seen) {
        match self.next() {
            Seen::Of(worker, seen) => (worker, *seen),
            other => panic!("not of a worker: {other:?}"),
        }
    }

    /// The handshake, with these settings, and all syncs. Whoever has synced follows the trunk;
    /// gives the sessions that were announced.
    pub fn meets_all(
        &mut self,
        edge: &mut Edge,
        workers: u16,
        settings: &[(&str, &str)],
    ) -> Vec<(u16, u64)> {
        self.hello(settings, WINDOW);
        self.send(&Frame::Cursor { cursor: CURSOR });
        match self.next() {
            Seen::HelloEdge { public, api } => {
                edge.public = public.parse().unwrap();
                edge.api = api.parse().unwrap();
            }
            other => panic!("not HELLO_EDGE: {other:?}"),
        }
        let (mut sessions, mut synced) = (Vec::new(), 0);
        while synced < workers {
            match self.next_of() {
                (worker, Seen::SyncBegin(_)) => self.place(worker),
                (worker, Seen::Open(opens)) => {
                    sessions.extend(opens.iter().map(|(conn, ..)| (worker, *conn)));
                    opens.iter().for_each(|(conn, ..)| self.opened_of(worker, *conn, b""));
                }
                (_, Seen::SyncEnd) => synced += 1,
                other => panic!("not a sync: {other:?}"),
            }
        }
        sessions
    }

    fn place(&mut self, worker: u16) {
        let slot = worker + SLOTS;
        self.send(&Frame::Place { worker, slot });
        self.say_to(slot, &Frame::Cursor { cursor: CURSOR });
        self.say_to(slot, &Frame::Cursor { cursor: b"" });
    }

    fn opened_of(&mut self, worker: u16, conn: u64, cursor: &[u8]) {
        let mut items = Vec::new();
        NumberedSession { conn, user_number: 1_000 }.write(&mut items);
        let sessions = List::from_items(1, &items);
        self.say_to(worker + SLOTS, &Frame::Opened { cursor, sessions });
    }

    fn deliver_to(&mut self, seq: u64, sessions: &[(u16, u64)]) {
        let mut sessions = sessions.to_vec();
        sessions.sort_unstable();
        let mut words = Vec::new();
        for (worker, conn) in &sessions {
            Word::new(worker + SLOTS, *conn).write(&mut words);
        }
        let words = List::from_items(sessions.len() as u16, &words);
        self.send(&Frame::TrunkDeliver { event: event(seq), words });
    }
}

fn event(seq: u64) -> Event<'static> {
    Event {
        shard: 1,
        seq,
        at: 1,
        data_offset: 38,
        subject_offset: 21,
        subject_bytes: 1,
        cursor: b"",
        json: JSON.as_bytes(),
    }
}

/// The trunk's cursor behind an event.
fn cursor_at(seq: u64) -> String {
    let mut cursor = halley_link::Cursor::decode(CURSOR).unwrap();
    assert!(cursor.pass(1, seq, 1));
    let mut token = Vec::new();
    cursor.encode(&mut token);
    String::from_utf8(token).unwrap()
}

fn start() -> (Edge, Brain) {
    let mut edge = Edge::alone(&["--workers", &WORKERS.to_string()]);
    let mut brain = edge.dial_trunk();
    assert_eq!(brain.meets_all(&mut edge, WORKERS, &[]), []);
    (edge, brain)
}

/// Streams until each worker has one.
fn streams(edge: &Edge, brain: &mut Brain) -> Vec<(Client, (u16, u64))> {
    let mut all = Vec::new();
    let has = |all: &[(Client, (u16, u64))], worker| all.iter().any(|(_, of)| of.0 == worker);
    while !(0..WORKERS).all(|worker| has(&all, worker)) {
        let mut client = edge.public();
        client.ask("GET", &format!("/v1/stream?user=u{}", all.len()), "");
        let (worker, conn) = match brain.next_of() {
            (worker, Seen::Open(opens)) => (worker, opens[0].0),
            other => panic!("not OPEN: {other:?}"),
        };
        brain.opened_of(worker, conn, b"");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        client.expect_chunk(crate::client::SSE_WELCOME);
        all.push((client, (worker, conn)));
    }
    all
}

/// 13.5, 13.6: one frame for all workers, and the event has the trunk's cursor. TRUNK_GROUP_DELIVER
/// likewise.
#[test]
fn one_frame_reaches_the_clients_of_all_workers() {
    let (edge, mut brain) = start();
    let mut all = streams(&edge, &mut brain);
    let sessions: Vec<_> = all.iter().map(|(_, of)| *of).collect();
    brain.deliver_to(11, &sessions);
    for (client, _) in &mut all {
        client.expect_chunk(&sse_event(&cursor_at(11), JSON));
    }
    brain.deliver_to(12, &sessions[..1]);
    all[0].0.expect_chunk(&sse_event(&cursor_at(12), JSON));
    for (worker, conn) in &sessions {
        let conns = conn_items(&[*conn]);
        let conns = List::from_items(1, &conns);
        brain.say_to(worker + SLOTS, &Frame::GroupJoin { group: 5, conns });
    }
    let mut slots = Vec::new();
    (0..WORKERS).for_each(|worker| Slot(worker + SLOTS).write(&mut slots));
    let slots = List::from_items(WORKERS, &slots);
    brain.send(&Frame::TrunkGroupDeliver { group: 5, event: event(13), slots });
    for (client, _) in &mut all {
        client.expect_chunk(&sse_event(&cursor_at(13), JSON));
    }
}

/// 13.3: requests of all workers, answered by their slots.
#[test]
fn requests_come_from_all_workers() {
    let (edge, mut brain) = start();
    let mut seen = [false; WORKERS as usize];
    while seen != [true; WORKERS as usize] {
        let mut client = edge.api();
        client.ask("GET", "/x", "");
        let (worker, Seen::Request(request)) = brain.next_of() else { panic!("no request") };
        let headers = List::from_items(0, b"");
        let (conn, body) = (request.conn, b"hi".as_slice());
        let answer =
            Frame::Response { conn, status: 200, flags: FLAG_END, body_bytes: 2, headers, body };
        brain.say_to(worker + SLOTS, &answer);
        assert_eq!(client.response().body, "hi");
        seen[usize::from(worker)] = true;
    }
}

/// 9.2, 13.6: when a brain goes, all workers stand at the same place, and the next one is told so;
/// the streams stay, and open requests are answered 503 (8.7).
#[test]
fn the_next_brain_finds_all_workers_at_one_cursor() {
    let (mut edge, mut brain) = start();
    let mut all = streams(&edge, &mut brain);
    let mut sessions: Vec<_> = all.iter().map(|(_, of)| *of).collect();
    let mut asks = edge.api();
    asks.ask("GET", "/x", "");
    assert!(matches!(brain.next_of(), (_, Seen::Request(_))));
    brain.deliver_to(40, &sessions[..1]);
    all[0].0.expect_chunk(&sse_event(&cursor_at(40), JSON));
    drop(brain);
    assert_eq!(asks.response().status, 503);
    let mut next = edge.dial_trunk();
    next.hello(&[], WINDOW);
    next.send(&Frame::Cursor { cursor: CURSOR });
    assert!(matches!(next.next(), Seen::HelloEdge { .. }));
    let (mut synced, mut announced) = (0, Vec::new());
    while synced < WORKERS {
        match next.next_of() {
            (_, Seen::SyncBegin(_)) => assert_eq!(next.sync_cursor, cursor_at(40)),
            (worker, Seen::Open(opens)) => {
                announced.extend(opens.iter().map(|(conn, ..)| (worker, *conn)));
            }
            (_, Seen::SyncEnd) => synced += 1,
            other => panic!("not a sync: {other:?}"),
        }
    }
    announced.sort_unstable();
    sessions.sort_unstable();
    assert_eq!(announced, sessions);
    // And one more, while that one lives: the newest is the one that is alive.
    let mut newest = edge.dial_trunk();
    let mut announced = newest.meets_all(&mut edge, WORKERS, &[]);
    announced.sort_unstable();
    assert_eq!(announced, sessions);
    assert!(matches!(next.next(), Seen::Goodbye(7, _)));
    newest.deliver_to(50, &sessions);
    for (client, _) in &mut all {
        client.expect_chunk(&sse_event(&cursor_at(50), JSON));
    }
}

/// 1.3, by a worker: what it finds wrong ends the trunk for all.
#[test]
fn a_clause_that_a_worker_finds_broken_ends_the_trunk() {
    // 11.2: a worker holds at most 1,024 groups.
    let (edge, mut brain) = start();
    let all = streams(&edge, &mut brain);
    let (worker, conn) = all[0].1;
    for group in 0..=1_024 {
        let conns = conn_items(&[conn]);
        let conns = List::from_items(1, &conns);
        brain.say_to(worker + SLOTS, &Frame::GroupJoin { group, conns });
    }
    let Seen::Goodbye(1, why) = brain.next() else { panic!("no goodbye") };
    assert!(why.contains("11.2"), "{why}");
    assert_eq!(brain.next(), Seen::End);
}

/// 9.1: SHUTDOWN is for the whole edge, and so is a signal.
#[test]
fn an_edge_with_a_trunk_stops() {
    for shutdown in [true, false] {
        let (mut edge, mut brain) = start();
        let all = streams(&edge, &mut brain);
        match shutdown {
            true => brain.send(&Frame::Shutdown { drain_ms: 0 }),
            false => signal(&edge, "-TERM"),
        }
        for (mut client, _) in all {
            assert!(String::from_utf8(client.rest()).unwrap().ends_with("\r\n0\r\n\r\n"));
        }
        assert_eq!(edge.exit_code(), Some(0));
    }
}

/// 1.1, 9.3: a socket file that another edge left is replaced.
#[test]
fn a_socket_that_was_left_behind_is_replaced() {
    let (mut command, dir) = crate::brain::command(&[]);
    let left = std::os::unix::net::UnixListener::bind(dir.join("trunk.sock")).unwrap();
    drop(left);
    let child = command.spawn().unwrap();
    let nowhere = "127.0.0.1:0".parse().unwrap();
    let mut edge = Edge { child, dir, public: nowhere, api: nowhere };
    let mut brain = edge.dial_trunk();
    assert_eq!(brain.meets_all(&mut edge, 1, &[]), []);
}
