//! The double's frames of section 10: cursors, replays, gaps.

use halley_link::{Event, FLAG_LAST, Frame, Item, List, NumberedSession, Value};

use crate::brain::{Brain, Edge, Seen, WINDOW, conn_items};
use crate::client::Client;

/// An event: shard, seq, cursor; its data is the seq.
pub type Numbered<'a> = (u8, u64, &'a str);

/// The JSON text of the event with this seq.
pub fn json(seq: u64) -> String {
    format!(r#"{{"id":"{seq}","subject":"s","at":{seq},"data":{seq}}}"#)
}

/// What SSE writes for it.
pub fn sse_json(seq: u64, cursor: &str) -> String {
    crate::client::sse_event(cursor, &json(seq))
}

pub fn event<'a>((shard, seq, cursor): Numbered<'a>, json: &'a str) -> Event<'a> {
    let data_offset = json.len() - seq.to_string().len() - 1;
    Event {
        shard,
        seq,
        at: seq,
        data_offset: data_offset as u32,
        subject_offset: 1,
        subject_bytes: 2,
        cursor: cursor.as_bytes(),
        json: json.as_bytes(),
    }
}

impl Brain {
    /// The next session: connection, transport, cursor.
    pub fn open_behind(&mut self) -> (u64, u8, String) {
        let (conn, transport, _) = self.open();
        (conn, transport, self.cursors[&conn].clone())
    }

    pub fn opened_at(&mut self, conn: u64, user_number: u32, cursor: &str) {
        let mut items = Vec::new();
        NumberedSession { conn, user_number }.write(&mut items);
        let sessions = List::from_items(1, &items);
        self.send(&Frame::Opened { cursor: cursor.as_bytes(), sessions });
    }

    pub fn live(&mut self, numbered: Numbered<'_>, conns: &[u64]) {
        let json = json(numbered.1);
        let items = conn_items(conns);
        let conns = List::from_items(conns.len() as u16, &items);
        self.send(&Frame::Deliver { event: event(numbered, &json), conns });
    }

    pub fn replay(&mut self, conn: u64, events: &[Numbered<'_>]) {
        self.send_replay(conn, 0, "", &[], events);
    }

    /// 10.3: a REPLAY that says where a session began.
    pub fn began(&mut self, conn: u64, cursor: &str) {
        self.send_replay(conn, 0, cursor, &[], &[]);
    }

    /// REPLAY with LAST.
    pub fn last(&mut self, conn: u64, cursor: &str, heads: &[u64], events: &[Numbered<'_>]) {
        self.send_replay(conn, FLAG_LAST, cursor, heads, events);
    }

    fn send_replay(
        &mut self,
        conn: u64,
        flags: u8,
        cursor: &str,
        heads: &[u64],
        events: &[Numbered<'_>],
    ) {
        let (mut head_items, mut items) = (Vec::new(), Vec::new());
        heads.iter().for_each(|head| Value(*head).write(&mut head_items));
        for numbered in events {
            event(*numbered, &json(numbered.1)).write(&mut items);
        }
        self.send(&Frame::Replay {
            conn,
            flags,
            cursor: cursor.as_bytes(),
            heads: List::from_items(heads.len() as u16, &head_items),
            items: List::from_items(events.len() as u16, &items),
        });
    }

    pub fn gap(&mut self, reason: &str, times: (u64, u64), cursor: &str, conns: &[u64]) {
        let items = conn_items(conns);
        self.send(&Frame::Gap {
            reason: reason.as_bytes(),
            from: times.0,
            to: times.1,
            cursor: cursor.as_bytes(),
            conns: List::from_items(conns.len() as u16, &items),
        });
    }

    pub fn cursor(&mut self, cursor: &str) {
        self.send(&Frame::Cursor { cursor: cursor.as_bytes() });
    }

    pub fn inspect(&mut self, token: u32, conn: u64) -> Seen {
        self.send(&Frame::Inspect { token, conn });
        self.next()
    }
}

/// The brain is gone, another one links to the edge: the cursors of the sync and of its sessions.
pub fn handshake_again(edge: &Edge, brain: Brain) -> (Brain, String, Vec<(u64, String)>) {
    drop(brain);
    let mut brain = edge.dial();
    brain.hello(&[], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    let (mut begun, mut sessions): (_, Vec<u64>) = (None, Vec::new());
    loop {
        match brain.next() {
            Seen::SyncBegin(count) => begun = Some(count),
            Seen::Open(some) => sessions.extend(some.into_iter().map(|(conn, ..)| conn)),
            Seen::SyncEnd => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(begun, Some(sessions.len() as u32));
    let cursor = brain.sync_cursor.clone();
    let sessions = sessions.into_iter().map(|conn| (conn, brain.cursors[&conn].clone())).collect();
    (brain, cursor, sessions)
}

/// An SSE stream that goes on behind a cursor; the client has read the welcome.
pub fn behind(edge: &Edge, brain: &mut Brain, cursor: &str) -> (Client, u64) {
    let mut client = edge.public();
    client.ask("GET", &format!("/v1/stream?user=u&cursor={cursor}"), "");
    let (conn, _, seen) = brain.open_behind();
    assert_eq!(seen, cursor);
    brain.opened(conn, 1_000);
    client.head();
    client.expect_chunk(crate::client::SSE_WELCOME);
    (client, conn)
}
