//! A trunk's connection between a brain and workers of the test's own, without threads.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{Read, Write};
use std::sync::Arc;

use clap::Parser;
use halley_link::trunk::{Brought, End, Handed};
use halley_link::{
    Deframer, Event, Frame, GoodbyeCode, Item, List, Pair, TRUNK_WORKER, VERSION,
    VERSION_MAX_SETTING, Word,
};
use mio::Poll;
use mio::net::UnixStream;

use crate::config::Config;
use crate::groups::write_permits::WritePermits;
use crate::link::SILENCE_MS;
use crate::link::goodbye::LinkEnd;
use crate::link::trunk::{Place, Seat, Trunk, Wish};
use crate::trunk::connection::{CURSOR_MS, Connection};

const CURSOR: &[u8] = b"AQAAAAcAAABkAAAAAAAKAAAA";
const WINDOW: usize = 16_777_216;

/// The brain, the trunk's connection, and the workers' sides of it.
struct Test {
    connection: Option<Connection>,
    socket: UnixStream,
    frames: Deframer,
    trunk: Arc<Trunk>,
    seats: Vec<Seat>,
    now_ms: u64,
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
    fn new(workers: u16) -> Test {
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

    fn dial(&mut self) {
        let config = ["edge", "--public=127.0.0.1:0", "--api=127.0.0.1:0", "--socket-dir=/"];
        let config = Arc::new(Config::parse_from(config));
        let (socket, other) = UnixStream::pair().unwrap();
        self.connection = Some(Connection::new(socket, &self.trunk, &config, self.now_ms));
        (self.socket, self.frames) = (other, Deframer::new());
    }

    fn hello(&mut self) {
        self.hello_with(WINDOW);
    }

    /// The brain says what the edge is to grant.
    fn hello_with(&mut self, window: usize) {
        let mut settings = Vec::new();
        let (highest, window) = (VERSION.to_string(), window.to_string());
        Pair { name: VERSION_MAX_SETTING, value: highest.as_bytes() }.write(&mut settings);
        Pair { name: b"trunk_window_bytes", value: window.as_bytes() }.write(&mut settings);
        let settings = List::from_items(2, &settings);
        self.say(&Frame::HelloBrain { version: 4, window: 600_000, node: b"n", settings });
    }

    fn say(&mut self, frame: &Frame<'_>) {
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

    fn round(&mut self) -> Result<(), LinkEnd> {
        let connection = self.connection.as_mut().unwrap();
        connection.became_readable(false);
        while connection.has_more() {
            connection.round(self.now_ms, self.now_ms)?;
        }
        connection.round(self.now_ms, self.now_ms)
    }

    /// What has come to the brain.
    fn heard(&mut self) -> Vec<String> {
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

    fn ends(&mut self) -> String {
        match self.round() {
            Ok(()) => "goes on".to_owned(),
            Err(LinkEnd::Broken(code, why)) => format!("{code:?} {why}"),
            Err(LinkEnd::Goodbye(why)) => why,
        }
    }

    fn begins(&self, worker: usize) -> Place {
        let Some(Handed::Begin(begin)) = self.seats[worker].take() else { panic!("no beginning") };
        assert_eq!(begin.version, VERSION);
        let mut place = self.seats[worker].place(begin.place);
        place.up = true;
        place
    }

    fn syncs(&self, worker: usize) -> Place {
        let mut place = self.begins(worker);
        place.send(&Frame::SyncBegin { sessions: 3, cursor: b"" });
        place.flush();
        place
    }

    fn follows(&mut self, worker: u16, slot: u16) {
        self.say(&Frame::Place { worker, slot });
        self.say(&Frame::ToSlot { slot, kind: 0x1b, payload: &[0] });
    }

    /// Begun, with all workers that follow; their slots are their numbers and one.
    fn begun(workers: u16) -> (Test, Vec<Place>) {
        Test::begun_with(workers, WINDOW)
    }

    fn begun_with(workers: u16, window: usize) -> (Test, Vec<Place>) {
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

    fn deliver(&mut self, seq: u64, bytes: usize, slots: &[u16]) {
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

fn got(handed: Option<Handed>) -> Vec<String> {
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

/// 13.2, 13.3, 13.4: the hellos are the trunk's, and each worker syncs by itself.
#[test]
fn workers_begin_when_the_brain_has_said_hello() {
    let mut test = Test::new(2);
    assert!(test.heard().is_empty());
    assert!(test.seats.iter().all(|seat| seat.take().is_none()));
    test.hello();
    test.say(&Frame::Keys { keys: b"{}" });
    test.say(&Frame::Cursor { cursor: CURSOR });
    assert_eq!(test.heard(), [format!("hello {TRUNK_WORKER} {VERSION} 200")]);
    let _second = test.syncs(1);
    assert_eq!(got(test.seats[1].take()), ["frame 0x1d"]);
    assert_eq!(test.heard(), ["1: sync 3"]);
    let mut first = test.syncs(0);
    first.send(&Frame::RequestGone { conn: 9 });
    assert!(first.queued() > 0);
    first.flush();
    assert_eq!(test.heard(), ["0: sync 3", "0: request gone 9"]);
    assert_eq!(first.queued(), 0);
    test.follows(1, 40);
    test.deliver(11, 1, &[40]);
    test.round().unwrap_or_else(|_| panic!("it ended"));
    assert_eq!(got(test.seats[1].take()), ["cursor", "11 to 1"]);
}

/// 3.2, 13.1: "It has version 6 at least."
#[test]
fn a_trunk_has_a_version_that_knows_it() {
    let mut test = Test::new(1);
    let settings = List::from_items(0, b"");
    test.say(&Frame::HelloBrain { version: 5, window: 600_000, node: b"n", settings });
    assert!(test.ends().starts_with("Version the brain speaks versions 5 to 5"));
    let mut test = Test::new(1);
    test.say(&Frame::Ping { nonce: 1 });
    assert!(test.ends().contains("3.1"));
    let (mut test, _places) = Test::begun(1);
    test.hello();
    assert!(test.ends().contains("3.1"));
}

/// 13.7: "So the trunk stays". The events come so slowly that the rest of the window lasts.
#[test]
fn a_worker_that_leaves_what_comes_loses_its_place_alone() {
    let (mut test, mut places) = Test::begun(3);
    let (mut seq, mut taken) = (11, [0, 0]);
    let mut heard = Vec::new();
    while heard.is_empty() {
        test.deliver(seq, 100_000, &[1, 2, 3]);
        seq += 1;
        test.now_ms += if test.seats[2].ring_bytes() > WINDOW / 2 { 10 } else { 0 };
        heard = test.heard();
        for (number, taken) in taken.iter_mut().enumerate() {
            while let Some(handed) = test.seats[number].take() {
                *taken += got(Some(handed)).len();
            }
        }
        assert!(test.seats[2].ring_bytes() <= WINDOW * 3 / 4);
    }
    assert_eq!(heard, ["gone 2"]);
    assert_eq!(taken, [seq - 11; 2].map(|n| n as usize), "the others had all");
    assert!(seq > 80, "half of the window");
    // What it says on its old place is dropped; it finds the end, and begins again.
    places[2].send(&Frame::RequestGone { conn: 1 });
    places[2].flush();
    test.deliver(seq, 1, &[1, 3]);
    assert!(test.heard().is_empty());
    assert_eq!(got(test.seats[0].take()), [format!("{seq} to 1")]);
    assert_eq!(got(test.seats[2].take()), ["end false true"]);
    places[2] = test.syncs(2);
    assert_eq!(test.heard(), ["2: sync 3"]);
    test.follows(2, 9);
    test.deliver(seq + 1, 1, &[1, 9]);
    test.round().unwrap_or_else(|_| panic!("it ended"));
    let all: Vec<_> =
        std::iter::from_fn(|| test.seats[2].take()).flat_map(|h| got(Some(h))).collect();
    assert_eq!(all, ["cursor".to_owned(), format!("{} to 1", seq + 1)]);
}

/// Who waits for a processor keeps its place, and its requests; also if it does so again.
#[test]
fn a_worker_that_takes_what_came_in_time_keeps_its_place() {
    let (mut test, _places) = Test::begun(3);
    let mut seq = 11;
    for _ in 0..3 {
        for _ in 0..100 {
            test.deliver(seq, 100_000, &[1, 3]);
            seq += 1;
            assert!(test.heard().is_empty());
            while test.seats[0].take().is_some() {}
        }
        assert!(test.seats[2].ring_bytes() > WINDOW / 2);
        test.now_ms += 200;
        assert!(test.heard().is_empty());
        while test.seats[2].take().is_some() {}
        assert!(test.heard().is_empty());
    }
    // Nothing comes any more, and it is found all the same.
    for _ in 0..100 {
        test.deliver(seq, 100_000, &[1, 3]);
        seq += 1;
        while test.seats[0].take().is_some() {}
    }
    assert!(test.heard().is_empty());
    test.now_ms += 250;
    assert_eq!(test.heard(), ["gone 2"]);
}

/// Where all wait for a processor, whoever gets one last isn't left behind by the first.
#[test]
fn time_in_which_all_wait_does_not_count() {
    let (mut test, _places) = Test::begun(2);
    for seq in 11..111 {
        test.deliver(seq, 100_000, &[1, 2]);
        assert!(test.heard().is_empty());
    }
    assert!(test.seats.iter().all(|seat| seat.ring_bytes() > WINDOW / 2));
    test.now_ms += 300;
    assert!(test.heard().is_empty());
    while test.seats[0].take().is_some() {}
    assert!(test.heard().is_empty());
    test.now_ms += 200;
    assert!(test.heard().is_empty());
    test.now_ms += 50;
    assert_eq!(test.heard(), ["gone 1"]);
}

/// Nor does what a worker left before it took all of it, though the owner didn't look meanwhile.
#[test]
fn a_ring_that_was_emptied_begins_anew() {
    let (mut test, _places) = Test::begun(3);
    for seq in 11..211 {
        test.deliver(seq, 100_000, &[1, 3]);
        while test.seats[0].take().is_some() {}
        if seq == 110 {
            assert!(test.heard().is_empty());
            assert!(test.seats[2].ring_bytes() > WINDOW / 2);
            test.now_ms += 300;
            while test.seats[2].take().is_some() {}
        }
    }
    assert!(test.heard().is_empty());
    assert!(test.seats[2].ring_bytes() > WINDOW / 2);
    test.now_ms += 250;
    assert_eq!(test.heard(), ["gone 2"]);
}

/// Small events use up the batches before the window; a worker that leaves them is left behind
/// before that too, so the others' trunk is read on. The brain says how large the window is.
#[test]
fn a_worker_that_leaves_small_events_stops_nobody() {
    const SMALL: usize = 524_288;
    let (mut test, _places) = Test::begun_with(3, SMALL);
    let (mut seq, mut taken, mut heard) = (11, 0, Vec::new());
    while heard.is_empty() && seq < 10_000 {
        test.deliver(seq, 1, &[1, 3]);
        seq += 1;
        test.now_ms += if test.seats[2].ring_bytes() > SMALL / 2 { 50 } else { 0 };
        heard = test.heard();
        while let Some(handed) = test.seats[0].take() {
            taken += got(Some(handed)).len();
        }
    }
    assert_eq!(heard, ["gone 2"]);
    assert_eq!(taken, (seq - 11) as usize, "the other had all");
    assert!(seq < SMALL as u64 / 1_024, "before the batches are used up");
}

/// 13.7: "or stands still for `silence_ms`". Who makes rounds doesn't.
#[test]
fn a_worker_that_makes_no_round_loses_its_place() {
    let (mut test, _places) = Test::begun(2);
    for _ in 0..=SILENCE_MS / 1_000 {
        test.now_ms += 1_000;
        test.seats[0].round();
        test.say(&Frame::Pong { nonce: 0 });
        let connection = test.connection.as_mut().unwrap();
        connection.became_readable(false);
        assert!(connection.round(test.now_ms, test.now_ms).is_ok());
    }
    while let Ok(n @ 1..) = test.socket.read(test.frames.space()) {
        test.frames.filled(n);
    }
    let mut gone = Vec::new();
    while let Some(raw) = test.frames.next().unwrap() {
        if let Ok(Frame::WorkerGone { worker }) = Frame::decode(raw.kind, raw.payload) {
            gone.push(worker);
        }
    }
    assert_eq!(gone, [1]);
    assert_eq!(got(test.seats[1].take()), ["end false true"]);
    assert_eq!(got(test.seats[1].take()), ["begin"]);
    assert_eq!(got(test.seats[0].take()), ["nothing"]);
}

/// 13.6, 10.1: when the trunk ends, whoever follows it stands where it stood; what was read is
/// before that.
#[test]
fn all_find_the_end_with_the_cursor() {
    let (mut test, _places) = Test::begun(2);
    test.deliver(11, 1, &[1]);
    let goodbye = Frame::Goodbye { code: 6, reason: b"bye" };
    test.say(&goodbye);
    assert_eq!(test.ends(), "bye");
    test.connection.take().unwrap().end(None, "bye", false);
    assert_eq!(got(test.seats[0].take()), ["11 to 1"]);
    let Some(Handed::End(end)) = test.seats[0].take() else { panic!("no end") };
    let Some(Handed::End(other)) = test.seats[1].take() else { panic!("no end") };
    assert_eq!(end.cursor, other.cursor);
    assert!(end.cursor.is_some_and(|cursor| *cursor != *CURSOR));
    test.dial();
    test.hello();
    assert_eq!(test.heard().len(), 1);
    assert_eq!(got(test.seats[0].take()), ["begin"]);
}

/// Where a frame broke a clause, its event may not have reached all whom it concerns.
#[test]
fn a_broken_clause_leaves_the_workers_their_cursors() {
    let (mut test, _places) = Test::begun(2);
    test.deliver(11, 1, &[1]);
    test.say(&Frame::SyncEnd);
    assert!(test.ends().contains("13.2"));
    let goodbye = Some(GoodbyeCode::BadFrame);
    test.connection.take().unwrap().end(goodbye, "13.2", true);
    assert_eq!(test.heard(), ["goodbye 1"]);
    assert_eq!(got(test.seats[0].take()), ["11 to 1"]);
    assert_eq!(got(test.seats[0].take()), ["end false false"]);
}

/// Who wasn't concerned is told the cursor now and then, without being woken.
#[test]
fn cursors_do_not_grow_old() {
    let (mut test, _places) = Test::begun(2);
    test.now_ms = CURSOR_MS;
    test.deliver(11, 1, &[1]);
    test.round().unwrap_or_else(|_| panic!("it ended"));
    assert_eq!(got(test.seats[0].take()), ["11 to 1"]);
    assert_eq!(got(test.seats[0].take()), ["nothing"]);
    assert_eq!(got(test.seats[1].take()), ["told"]);
}

/// 4.6: one worker's uploads wait in its own outbound, and another's request comes in between.
#[test]
fn workers_take_turns() {
    let (mut test, mut places) = Test::begun(2);
    let body = vec![0; 100_000];
    for _ in 0..20 {
        places[0].send(&Frame::RequestBody { conn: 1, flags: 0, body: &body });
    }
    places[0].flush();
    places[1].send(&Frame::RequestGone { conn: 5 });
    places[1].flush();
    let _ = test.round();
    assert!(places[0].queued() > 1_000_000 && places[1].queued() == 0);
}

/// A worker's wish is heard for its present place only.
#[test]
fn an_old_wish_ends_nothing() {
    let (mut test, mut places) = Test::begun(1);
    places[0].say_goodbye(GoodbyeCode::Stopping, "the worker stops");
    assert!(!test.trunk.has_wish());
    places[0].say_goodbye(GoodbyeCode::BadFrame, "10.9");
    let Some(Wish { place, worker: 0, .. }) = test.trunk.take_wish() else { panic!("no wish") };
    assert!(test.connection.as_ref().unwrap().is_place(0, place));
    test.connection.take().unwrap().end(None, "bye", false);
    test.dial();
    test.hello();
    test.round().unwrap_or_else(|_| panic!("it ended"));
    assert!(!test.connection.as_ref().unwrap().is_place(0, place));
}
