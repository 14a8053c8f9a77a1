//! A brain of the test's own at the other end of a trunk's connection, and the workers' sides.

use std::io::{Read, Write};
use std::sync::Arc;

use clap::Parser;
use halley_link::trunk::{Brought, End, Handed};
use halley_link::{Deframer, Event, Frame, Item, List, Pair, VERSION, VERSION_MAX_SETTING, Word};
use mio::Poll;
use mio::net::UnixStream;

use crate::config::Config;
use crate::groups::write_permits::WritePermits;
use crate::link::goodbye::LinkEnd;
use crate::link::trunk::{Place, Seat, Trunk};
use crate::trunk::connection::Connection;

pub(super) const CURSOR: &[u8] = b"AQAAAAcAAABkAAAAAAAKAAAA";
pub(super) const WINDOW: usize = 16_777_216;

/// The brain, the trunk's connection, and the workers' sides of it.
pub(super) struct Test {
    pub(super) connection: Option<Connection>,
    pub(super) socket: UnixStream,
    pub(super) frames: Deframer,
    pub(super) trunk: Arc<Trunk>,
    pub(super) seats: Vec<Seat>,
    pub(super) now_ms: u64,
    _polls: Vec<Poll>,
}

/// What the brain reads, in words.
fn line(frame: &Frame<'_>) -> String {
    match *frame {
        Frame::FromWorker { worker, kind, payload } => {
            let inner = line(&Frame::decode(kind, payload).unwrap());
            format!("{worker}: {inner}")
        }
        Frame::HelloEdge { worker, version, connections_max, .. } => {
            format!("hello {worker} {version} {connections_max}")
        }
        Frame::WorkerGone { worker } => format!("gone {worker}"),
        Frame::SyncBegin { sessions, .. } => format!("sync {sessions}"),
        Frame::Goodbye { code, .. } => format!("goodbye {code}"),
        Frame::Credit { .. } => "credit".to_owned(),
        Frame::Ping { .. } => "ping".to_owned(),
        Frame::RequestGone { conn } => format!("request gone {conn}"),
        ref other => panic!("{other:?}"),
    }
}

impl Test {
    pub(super) fn new(workers: u16) -> Test {
        let (permits, _polls) = WritePermits::new(workers).unwrap();
        let (trunk, _) = Trunk::new(permits.wakers()).unwrap();
        let trunk = Arc::new(trunk);
        let seats = (0..workers).map(|worker| Seat::new(Arc::clone(&trunk), worker));
        let seats: Vec<_> = seats.inspect(|seat| seat.connections_max(100)).collect();
        let (socket, frames) = (UnixStream::pair().unwrap().0, Deframer::new());
        let (connection, now_ms) = (None, 0);
        let mut test = Test { connection, socket, frames, trunk, seats, now_ms, _polls };
        test.dial();
        test
    }

    pub(super) fn dial(&mut self) {
        let config = ["edge", "--public=127.0.0.1:0", "--api=127.0.0.1:0", "--socket-dir=/"];
        let config = Arc::new(Config::parse_from(config));
        let (socket, other) = UnixStream::pair().unwrap();
        self.connection = Some(Connection::new(socket, &self.trunk, &config, self.now_ms));
        (self.socket, self.frames) = (other, Deframer::new());
    }

    pub(super) fn hello(&mut self) {
        self.hello_with(WINDOW);
    }

    /// The brain says what the edge is to grant.
    pub(super) fn hello_with(&mut self, window: usize) {
        let mut settings = Vec::new();
        let (highest, window) = (VERSION.to_string(), window.to_string());
        Pair { name: VERSION_MAX_SETTING, value: highest.as_bytes() }.write(&mut settings);
        Pair { name: b"trunk_window_bytes", value: window.as_bytes() }.write(&mut settings);
        let settings = List::from_items(2, &settings);
        self.say(&Frame::HelloBrain { version: VERSION, window: 600_000, node: b"n", settings });
    }

    pub(super) fn say(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match self.socket.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(_) => self.round().unwrap_or_else(|_| panic!("the trunk ended")),
            }
        }
    }

    pub(super) fn round(&mut self) -> Result<(), LinkEnd> {
        let connection = self.connection.as_mut().unwrap();
        connection.became_readable(false);
        while connection.has_more() {
            connection.round(self.now_ms, self.now_ms)?;
        }
        connection.round(self.now_ms, self.now_ms)
    }

    /// What has come to the brain.
    pub(super) fn heard(&mut self) -> Vec<String> {
        if self.connection.is_some() {
            self.round().unwrap_or_else(|_| panic!("the trunk ended"));
        }
        while let Ok(n @ 1..) = self.socket.read(self.frames.space()) {
            self.frames.filled(n);
        }
        let mut lines = Vec::new();
        while let Some(raw) = self.frames.next().unwrap() {
            lines.push(line(&Frame::decode(raw.kind, raw.payload).unwrap()));
        }
        lines.retain(|line| line != "credit" && line != "ping");
        lines
    }

    pub(super) fn ends(&mut self) -> String {
        match self.round() {
            Ok(()) => "goes on".to_owned(),
            Err(LinkEnd::Broken(code, why)) => format!("{code:?} {why}"),
            Err(LinkEnd::Goodbye(why)) => why,
        }
    }

    fn begins(&self, worker: usize) -> Place {
        let Some(Handed::Begin(begin)) = self.seats[worker].take() else { panic!("no beginning") };
        let mut place = self.seats[worker].place(begin.place);
        place.up = true;
        place
    }

    pub(super) fn syncs(&self, worker: usize) -> Place {
        let mut place = self.begins(worker);
        place.send(&Frame::SyncBegin { sessions: 3, cursor: b"" });
        place.flush();
        place
    }

    pub(super) fn follows(&mut self, worker: u16, slot: u16) {
        self.say(&Frame::Place { worker, slot });
        self.say(&Frame::ToSlot { slot, kind: 0x1b, payload: &[0] });
    }

    /// Begun, with all workers that follow; their slots are their numbers and one.
    pub(super) fn begun(workers: u16) -> (Test, Vec<Place>) {
        Test::begun_with(workers, WINDOW)
    }

    pub(super) fn begun_with(workers: u16, window: usize) -> (Test, Vec<Place>) {
        let mut test = Test::new(workers);
        test.hello_with(window);
        test.say(&Frame::Cursor { cursor: CURSOR });
        test.round().unwrap_or_else(|_| panic!("it ended"));
        let places: Vec<_> = (0..usize::from(workers)).map(|worker| test.syncs(worker)).collect();
        assert_eq!(test.heard().len(), 1 + usize::from(workers));
        for worker in 0..workers {
            test.follows(worker, worker + 1);
        }
        test.round().unwrap_or_else(|_| panic!("it ended"));
        for seat in &test.seats {
            assert_eq!(got(seat.take()), ["cursor"]);
        }
        (test, places)
    }

    /// An event with so many bytes of data, to a session of each slot.
    pub(super) fn deliver(&mut self, seq: u64, bytes: usize, slots: &[u16]) {
        let mut words = Vec::new();
        slots.iter().for_each(|slot| Word::new(*slot, 7).write(&mut words));
        let words = List::from_items(slots.len() as u16, &words);
        let json = format!("{{\"data\":\"{}\"}}", "x".repeat(bytes));
        let (data_offset, json) = (8, json.as_bytes());
        let event = Event {
            shard: 1,
            seq,
            at: 0,
            data_offset,
            subject_offset: 0,
            subject_bytes: 0,
            cursor: b"",
            json,
        };
        self.say(&Frame::TrunkDeliver { event, words });
    }
}

/// What a worker took, in words.
pub(super) fn got(handed: Option<Handed>) -> Vec<String> {
    match handed {
        None => vec!["nothing".to_owned()],
        Some(Handed::Begin(_)) => vec!["begin".to_owned()],
        Some(Handed::Cursor(_)) => vec!["told".to_owned()],
        Some(Handed::End(End { cursor, left_behind, .. })) => {
            vec![format!("end {} {left_behind}", cursor.is_some())]
        }
        Some(Handed::Batch(mut part)) => {
            let mut all = Vec::new();
            while let Some(brought) = part.next() {
                all.push(match brought {
                    Brought::Deliver { event, words } => {
                        assert!(!event.cursor.is_empty());
                        format!("{} to {}", event.seq, words.len())
                    }
                    Brought::GroupDeliver { event, .. } => format!("{} to a group", event.seq),
                    Brought::Frame { kind, .. } => format!("frame {kind:#x}"),
                    Brought::Cursor { .. } => "cursor".to_owned(),
                });
            }
            all
        }
    }
}
