//! Sessions without a worker: connections over pairs of sockets, and a brain that is read. Tests of
//! requests take both from here.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use halley_link::{CloseReason, Event, Frame, Item, List, NumberedSession};

use crate::conns::table::{Phase, flag};
use crate::conns::tests::{conns, enter_as, read};
use crate::groups::fan_out::FanOut;
use crate::groups::write_permits::WritePermits;
use crate::link::brain_link::BrainLink;
use crate::link::trunk::tests::{Outbox, seat};
use crate::sessions::Sessions;
use crate::sessions::base::detail::{Conns, Detail};
use crate::sessions::base::exchange::Reply;
use crate::sessions::base::groups;
use crate::sessions::base::io::Io;
use crate::sessions::base::opening::Opening;
use crate::sessions::delivery::replays::Replay;
use crate::sessions::users::identity::{NO_RIGHTS, Principal};
use crate::stats::Stat;
use crate::transport::Transport;

/// What the brain sees.
pub struct Brain {
    outbox: Outbox,
}

impl Brain {
    /// The frames that have come, by their kinds' names.
    pub fn told(&mut self, io: &mut Io) -> Vec<String> {
        io.link.announce();
        io.link.flush();
        let name = |(kind, payload): (u8, Vec<u8>)| {
            let text = format!("{:?}", Frame::decode(kind, &payload).unwrap());
            text.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
        };
        self.outbox.take().into_iter().map(name).collect()
    }
}

/// What sessions act on, after the handshake with a brain.
pub fn io() -> (Io, Brain) {
    let (permits, _polls) = WritePermits::new(1).unwrap();
    let fan_out = FanOut::new(Arc::new(permits), 0);
    let (seat, outbox) = seat();
    let mut io = Io { conns: conns(), link: BrainLink::new(seat), fan_out };
    io.link.placed(outbox.place());
    io.link.handshake();
    (io, Brain { outbox })
}

/// Writes what waits; what is doomed ends, as the worker sees to it.
pub fn settle(io: &mut Io, sessions: &mut Sessions) {
    for _ in 0..2 {
        while let Some((index, doom)) = io.conns.next_doomed() {
            match doom {
                crate::conns::doom::Doom::Drop(reason) => sessions.end(io, index, reason),
                crate::conns::doom::Doom::Finish(reason) => {
                    sessions.close_after_flush(io, index, reason)
                }
            }
        }
        io.conns.flush_dirty();
    }
}

/// A stream that waits for its session, of which the brain knows.
fn opening(io: &mut Io) -> (u32, u64, std::os::unix::net::UnixStream) {
    let (index, client) = enter_as(&mut io.conns, Phase::Opening);
    let opening = Opening {
        answer: b"head ".to_vec(),
        reply: Reply::default(),
        rights: "".into(),
        since_ms: 0,
        poll: None,
        ahead: None,
    };
    io.conns.table.set_detail(index, Detail::Opening(Box::new(opening)));
    io.conns.slot(index).unwrap().set(flag::ANNOUNCED);
    let conn = io.conns.table.conn(index);
    (index, conn, client)
}

fn event(seq: u64, json: &[u8]) -> Event<'_> {
    let (at, data_offset, subject_offset, subject_bytes) = (0, 0, 0, 0);
    Event { shard: 1, seq, at, data_offset, subject_offset, subject_bytes, cursor: b"c", json }
}

/// Runs with a list of connections as the link has them.
fn with<T>(conns: &[u64], run: impl FnOnce(List<'_, u64>) -> T) -> T {
    let mut items = Vec::new();
    conns.iter().for_each(|conn| conn.write(&mut items));
    run(List::from_items(conns.len() as u16, &items))
}

fn number(conn: u64) -> NumberedSession {
    NumberedSession { conn, user_number: 7 }
}

/// link.md 6.2: "a DELIVER before OPENED counts as OPENED": the welcome comes first, once.
#[test]
fn the_first_event_welcomes() {
    let ((mut io, _brain), mut sessions) = (io(), Sessions::new());
    let (index, conn, mut client) = opening(&mut io);
    let delivered = with(&[conn, 99 << 24], |conns| {
        sessions.writer(&mut io).deliver(&event(1, b"{\"one\":1}"), conns.iter())
    });
    assert!(delivered.is_ok() && io.conns.is_in(index, Phase::Live));
    sessions.writer(&mut io).opened(number(conn), b"c");
    settle(&mut io, &mut sessions);
    let (text, _) = read(&mut client);
    assert!(text.starts_with("head ") && text.ends_with("{\"one\":1}\n\n"), "{text}");
    assert_eq!(text.matches(": welcome").count(), 1, "{text}");
    assert_eq!([Stat::Delivered, Stat::Stale].map(|stat| io.conns.stats.get(stat)), [1, 1]);
}

/// 6.4: a session that ends before OPENED is told to the brain once its number is known.
#[test]
fn an_end_is_told_by_the_number() {
    for reaped_first in [true, false] {
        let ((mut io, mut brain), mut sessions) = (io(), Sessions::new());
        let (index, conn, mut client) = opening(&mut io);
        io.conns.doom(index, CloseReason::Vanished);
        if reaped_first {
            settle(&mut io, &mut sessions);
            assert_eq!((io.conns.phase(index), brain.told(&mut io).len()), (Phase::Left, 0));
        }
        sessions.writer(&mut io).opened(number(conn), b"c");
        settle(&mut io, &mut sessions);
        assert_eq!(brain.told(&mut io), ["Close"], "{reaped_first}");
        assert_eq!((io.conns.phase(index), io.conns.table.used()), (Phase::Free, 0));
        assert_eq!(read(&mut client), (String::new(), true));
        assert_eq!(io.conns.stats.get(Stat::Opening), 0);
    }
}

/// An event for a doomed connection is dropped, as if the connection had gone already.
#[test]
fn who_is_doomed_gets_nothing() {
    let ((mut io, _brain), mut sessions) = (io(), Sessions::new());
    let (index, conn, mut client) = opening(&mut io);
    sessions.writer(&mut io).opened(number(conn), b"c");
    io.conns.flush_dirty();
    read(&mut client);
    io.conns.doom(index, CloseReason::SlowConsumer);
    let delivered =
        with(&[conn], |conns| sessions.writer(&mut io).deliver(&event(1, b"{}"), conns.iter()));
    sessions.writer(&mut io).push(index, b"more"[..].into());
    settle(&mut io, &mut sessions);
    assert!(delivered.is_ok());
    assert_eq!((io.conns.stats.get(Stat::Stale), read(&mut client)), (1, (String::new(), true)));
}

/// 11.4: the events in flight to a session are written before anything else is.
#[test]
fn what_is_in_flight_goes_first() {
    let ((mut io, _brain), mut sessions) = (io(), Sessions::new());
    let (index, conn, mut client) = opening(&mut io);
    assert!(with(&[conn], |conns| groups::join(&mut io, 5, conns)).is_ok());
    assert!(groups::deliver(&mut io, 5, &event(1, b"{\"of\":\"group\"}")).is_ok());
    sessions.writer(&mut io).push(index, b"later"[..].into());
    settle(&mut io, &mut sessions);
    let (text, _) = read(&mut client);
    let places = ["head ", ": welcome", "{\"of\":\"group\"}", "later"].map(|part| text.find(part));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{text}");
    sessions.end(&mut io, index, CloseReason::Client);
    assert_eq!(io.conns.stats.get(Stat::GroupMembers), 0);
}

/// http.md 13.1: streams wait in their order, and those that have left are skipped.
#[test]
fn streams_wait_for_their_turn() {
    let ((mut io, mut brain), mut sessions) = (io(), Sessions::new());
    io.conns.settings.admission_per_s_max = 1;
    let waits = |io: &mut Io, sessions: &mut Sessions| {
        let (index, client) = enter_as(&mut io.conns, Phase::Waiting);
        sessions.admit(io, index);
        (index, client)
    };
    io.conns.clock.now_ms = 10_000;
    let (first, _a) = waits(&mut io, &mut sessions);
    let (second, _b) = waits(&mut io, &mut sessions);
    let (third, _c) = waits(&mut io, &mut sessions);
    let phases = |conns: &mut Conns| [first, second, third].map(|index| conns.phase(index));
    assert_eq!(phases(&mut io.conns), [Phase::Opening, Phase::Waiting, Phase::Waiting]);
    sessions.end(&mut io, second, CloseReason::Client);
    sessions.admit_waiting(&mut io);
    assert_eq!(io.conns.phase(third), Phase::Waiting);
    io.conns.clock.now_ms += 1_000;
    sessions.admit_waiting(&mut io);
    assert_eq!(phases(&mut io.conns), [Phase::Opening, Phase::Free, Phase::Opening]);
    assert_eq!((brain.told(&mut io), io.conns.stats.get(Stat::Waiting)), (vec!["Open".into()], 0));
}

/// 14.6: a deadline of the connection never outlasts the session.
#[test]
fn a_session_is_looked_at_when_it_ends() {
    let ((mut io, _brain), mut sessions) = (io(), Sessions::new());
    let (index, ..) = opening(&mut io);
    let until_s = (io.conns.clock.unix_ms() / 1_000 + 5) as u32;
    let principal = Principal { until_s, ..Principal::nobody(NO_RIGHTS) };
    sessions.tokens.take(index, Transport::SseChunked, &principal);
    sessions.tokens.set_deadline(&mut io.conns, index, 60_000);
    let deadline = io.conns.slot(index).unwrap().deadline;
    assert!(deadline > 0 && deadline < 100, "{deadline}");
    assert!(!sessions.expired(&mut io, index));
    io.conns.clock.now_ms += 6_000;
    assert!(sessions.expired(&mut io, index));
    assert_eq!(io.conns.stats.get(Stat::Expired), 1);
}

/// http.md 12.1: presence that waits for the welcome has the room of an outbox; beyond it the
/// session ends, of which the brain hears by the session's number (link.md 6.4).
#[test]
fn too_much_presence_before_the_welcome() {
    let ((mut io, mut brain), mut sessions) = (io(), Sessions::new());
    io.conns.settings.outbox_bytes_max = 10_000;
    let (index, conn, mut client) = opening(&mut io);
    let tell = |io: &mut Io, sessions: &mut Sessions| {
        with(&[conn], |conns| sessions.writer(io).presence(&[b'1'; 6_000], conns));
    };
    tell(&mut io, &mut sessions);
    settle(&mut io, &mut sessions);
    assert_eq!((io.conns.phase(index), brain.told(&mut io).len()), (Phase::Opening, 0));
    tell(&mut io, &mut sessions);
    sessions.writer(&mut io).opened(number(conn), b"c");
    settle(&mut io, &mut sessions);
    assert_eq!((io.conns.phase(index), brain.told(&mut io)), (Phase::Free, vec!["Close".into()]));
    assert_eq!(read(&mut client), (String::new(), true));
}

/// A session that is closing is left by its client as well, of which nobody is told.
#[test]
fn an_end_is_told_once() {
    let ((mut io, mut brain), mut sessions) = (io(), Sessions::new());
    let (index, conn, _client) = opening(&mut io);
    sessions.writer(&mut io).opened(number(conn), b"c");
    sessions.close_gently(&mut io, index, "bye", CloseReason::CloseSessions);
    sessions.end(&mut io, index, CloseReason::Client);
    assert_eq!(brain.told(&mut io), ["Close"]);
}

/// 6.3, 12.7: an operation finds its session open, also while the sync hasn't come to it, or has
/// its OPEN among others that wait for the end of the round. It is sent once. To a brain of an
/// earlier build it is a REQUEST (20.7).
#[test]
fn a_session_is_open_before_it_asks() {
    for (in_the_batch, frame) in [(false, "Operation"), (true, "Operation"), (true, "Request")] {
        let ((mut io, mut brain), mut sessions) = (io(), Sessions::new());
        io.conns.settings.subscriptions = true;
        io.conns.settings.operation_frames = frame == "Operation";
        let (index, _client) = enter_as(&mut io.conns, Phase::Live);
        io.conns.slot(index).unwrap().transport = Transport::WebSocket;
        sessions.subscriptions.add(index, b"room/7");
        if in_the_batch {
            sessions.announce(&mut io, index);
        }
        let text = r#"{"op":"unsubscribe","subject":"room/7"}"#;
        assert!(sessions.talk(&mut io).operate(index, text).is_continue());
        sessions.announce(&mut io, index);
        assert_eq!(brain.told(&mut io), ["Subscriptions", "Open", frame], "{in_the_batch}");
    }
}

/// http.md 12.1, 22.10: what a replay has waiting is at the client's pace (link.md 10.3), and
/// leaves the presence beside it the room that it has without one.
#[test]
fn presence_has_room_beside_a_replay() {
    let ((mut io, mut brain), mut sessions) = (io(), Sessions::new());
    io.conns.settings.outbox_bytes_max = 100_000;
    let (index, conn, _client) = opening(&mut io);
    sessions.delivery.hold(&mut io.conns, index, b"c0");
    sessions.writer(&mut io).opened(number(conn), b"");
    let tell = |io: &mut Io, sessions: &mut Sessions| {
        with(&[conn], |conns| sessions.writer(io).presence(&[b'1'; 30_000], conns));
    };
    let replay = |io: &mut Io, sessions: &mut Sessions, bytes: usize| {
        let mut items = Vec::new();
        event(1, &vec![b'1'; bytes]).write(&mut items);
        let (items, heads) = (List::from_items(1, &items), List::from_items(0, &[]));
        sessions.writer(io).replay(conn, &Replay { flags: 0, cursor: b"", heads, items });
        settle(io, sessions);
    };
    // The socket is full, and a REPLAY waits.
    while io.conns.outbox(index).is_none() {
        replay(&mut io, &mut sessions, 40_000);
    }
    replay(&mut io, &mut sessions, 200_000);
    brain.told(&mut io);
    (0..3).for_each(|_| tell(&mut io, &mut sessions));
    assert_eq!((io.conns.stats.get(Stat::SlowConsumers), brain.told(&mut io).len()), (0, 0));
    (0..20).for_each(|_| tell(&mut io, &mut sessions));
    settle(&mut io, &mut sessions);
    assert_eq!(
        (io.conns.stats.get(Stat::SlowConsumers), brain.told(&mut io)),
        (1, vec!["Close".into()])
    );
    assert_eq!(io.conns.stats.get(Stat::OutboxBytes), 0);
}
