//! A trunk's connection between a brain and workers of the test's own, without threads.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod brain;

use std::io::Read;

use halley_link::trunk::Handed;
use halley_link::{Frame, GoodbyeCode, List, TRUNK_WORKER, VERSION};

use crate::link::SILENCE_MS;
use crate::link::trunk::Wish;
use crate::trunk::connection::CURSOR_MS;
use crate::trunk::tests::brain::{CURSOR, Test, WINDOW, got};

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

/// 3.2: a brain of before the trunk is refused.
#[test]
fn the_first_frame_is_a_hello_of_a_version_that_has_a_trunk() {
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
    let wishes = test.trunk.take_wishes();
    let [Wish { place, worker: 0, .. }] = wishes[..] else { panic!("not one wish") };
    assert!(test.connection.as_ref().unwrap().is_place(0, place));
    test.connection.take().unwrap().end(None, "bye", false);
    test.dial();
    test.hello();
    test.round().unwrap_or_else(|_| panic!("it ended"));
    assert!(!test.connection.as_ref().unwrap().is_place(0, place));
}
