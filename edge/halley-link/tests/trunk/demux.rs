//! Which worker gets what.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use halley_link::trunk::Demux;
use halley_link::{Cursor, Frame, List, NumberedSession, Slot, Word};

use crate::frames::*;

/// 13.5: "the words of a slot stand together"; each worker gets its own, with the cursor behind the
/// event, and who isn't concerned gets nothing.
#[test]
fn an_event_goes_to_the_workers_that_it_concerns() {
    let mut demux = demux(3);
    for (worker, slot) in [(0, 40), (1, 7), (2, 8)] {
        follow(&mut demux, worker, slot);
    }
    let word = Word::new;
    deliver(&mut demux, 20, &[word(7, 1), word(7, 2), word(40, 3)]).unwrap();
    group_deliver(&mut demux, 21, &[Slot(7), Slot(8)]).unwrap();
    deliver(&mut demux, 22, &[word(9, 1), word(40, 3)]).unwrap();
    let expected = [
        (0, texts(&["deliver 20 20 [(40, 3)]", "deliver 22 22 [(40, 3)]"])),
        (1, texts(&["deliver 20 20 [(7, 1), (7, 2)]", "group 9 21 21"])),
        (2, texts(&["group 9 21 21"])),
    ];
    assert_eq!(gathered(&mut demux), expected);
    assert_eq!(demux.take_stale(), 1, "nobody has slot 9");
    assert_eq!(moved(demux.cursor()), 22);
}

/// 13.6: until it follows, a slot's cursor is its own, and events for it are in TO_SLOT. From then
/// on the trunk's cursor is moved by what TO_SLOT brings.
#[test]
fn a_slot_follows_when_it_is_told_so() {
    let mut demux = demux(2);
    follow(&mut demux, 0, 1);
    demux.sync_begins(1);
    take(&mut demux, &Frame::Place { worker: 1, slot: 2 }).unwrap();
    let to = Word::new(2, 5);
    let bytes = packed(&[5]);
    let behind = Frame::Deliver { event: event(15, b""), conns: List::from_items(1, &bytes) };
    to_slot(&mut demux, 2, &Frame::Cursor { cursor: START }).unwrap();
    to_slot(&mut demux, 2, &behind).unwrap();
    assert_eq!(moved(demux.cursor()), 10, "the slot's moves are its own");
    assert_eq!(demux.cursor_of(1), None);
    to_slot(&mut demux, 2, &Frame::Cursor { cursor: b"" }).unwrap();
    deliver(&mut demux, 16, &[to]).unwrap();
    let expected =
        texts(&["frame 0x1b 25", "frame 0x13 55", "cursor 10", "deliver 16 16 [(2, 5)]"]);
    let all = gathered(&mut demux);
    assert_eq!(all[0].1.len(), 4, "{all:?}");
    assert_eq!((all[0].1[2].as_str(), all[0].1[3].as_str()), (&*expected[2], &*expected[3]));
    let mut place = Cursor::decode(START).unwrap();
    assert!(place.pass(1, 30, 0));
    let mut token = Vec::new();
    place.encode(&mut token);
    let session = packed(&[NumberedSession { conn: 5, user_number: 1 }]);
    let opened = Frame::Opened { cursor: &token, sessions: List::from_items(1, &session) };
    to_slot(&mut demux, 2, &opened).unwrap();
    assert_eq!(moved(demux.cursor()), 30);
    assert_eq!(demux.cursor_of(0).map(moved), Some(30));
    assert_eq!(to_slot(&mut demux, 2, &behind), Err("13.6"));
}

/// 13.5: "Both name slots that follow the trunk, and no others."
#[test]
fn an_event_for_a_slot_that_does_not_follow_breaks_the_clause() {
    for group in [false, true] {
        let mut demux = demux(1);
        take(&mut demux, &Frame::Cursor { cursor: START }).unwrap();
        demux.sync_begins(0);
        take(&mut demux, &Frame::Place { worker: 0, slot: 2 }).unwrap();
        let result = match group {
            true => group_deliver(&mut demux, 20, &[Slot(2)]),
            false => deliver(&mut demux, 20, &[Word::new(2, 1)]),
        };
        assert_eq!(result, Err("13.5"));
    }
}

/// 13.4: "If a worker has begun more syncs than were answered, only the last PLACE counts." And a
/// place that has ended gets no slot.
#[test]
fn the_last_place_counts() {
    let mut demux = demux(2);
    follow(&mut demux, 0, 1);
    assert!(demux.ends(0) && !demux.ends(0) && !demux.is_placed(0));
    deliver(&mut demux, 20, &[Word::new(1, 1)]).unwrap();
    assert_eq!((gathered(&mut demux), demux.take_stale()), (Vec::new(), 1));
    demux.sync_begins(0);
    demux.ends(0);
    demux.sync_begins(0);
    for slot in [5, 6] {
        take(&mut demux, &Frame::Place { worker: 0, slot }).unwrap();
        to_slot(&mut demux, slot, &Frame::Cursor { cursor: b"" }).unwrap();
    }
    assert_eq!(demux.take_stale(), 1);
    deliver(&mut demux, 21, &[Word::new(5, 1), Word::new(6, 2)]).unwrap();
    assert_eq!(gathered(&mut demux), [(0, texts(&["cursor 20", "deliver 21 21 [(6, 2)]"]))]);
    demux.sync_begins(0);
    demux.ends(0);
    take(&mut demux, &Frame::Place { worker: 0, slot: 7 }).unwrap();
    deliver(&mut demux, 22, &[Word::new(7, 1)]).unwrap();
    assert_eq!(gathered(&mut demux), []);
    assert_eq!(take(&mut demux, &Frame::Place { worker: 0, slot: 8 }), Err("13.4"));
    assert_eq!(take(&mut demux, &Frame::Place { worker: 2, slot: 8 }), Err("13.4"));
    follow(&mut demux, 1, 9);
    demux.sync_begins(0);
    assert_eq!(take(&mut demux, &Frame::Place { worker: 0, slot: 9 }), Err("13.4"));
}

/// 13.2: what travels by itself, and what doesn't.
#[test]
fn few_frames_travel_by_themselves() {
    let mut demux = demux(2);
    for own in [Frame::Ping { nonce: 1 }, Frame::Credit { bytes: 1 }] {
        assert_eq!(take(&mut demux, &own), Ok(true));
    }
    for all in [Frame::Keys { keys: b"{}" }, Frame::Shutdown { drain_ms: 1 }] {
        assert_eq!(take(&mut demux, &all), Ok(false));
    }
    assert_eq!(demux.keys().map(|keys| keys.to_vec()), Some(b"{}".to_vec()));
    let lines = texts(&["frame 0x1d 2", "frame 0x18 4"]);
    assert_eq!(gathered(&mut demux), [(0, lines.clone()), (1, lines)]);
    let nobody = List::from_items(0, b"");
    for other in [
        Frame::Deliver { event: event(1, b""), conns: nobody },
        Frame::GroupEnd { group: 1 },
        Frame::SyncEnd,
        Frame::WorkerGone { worker: 0 },
    ] {
        assert_eq!(take(&mut demux, &other), Err("13.2"));
    }
}

/// Who wasn't concerned for a while is told the cursor; who was knows it.
#[test]
fn workers_are_told_the_cursor_that_they_lack() {
    let mut demux = demux(3);
    follow(&mut demux, 0, 1);
    follow(&mut demux, 1, 2);
    assert_eq!(demux.untold().count(), 0);
    deliver(&mut demux, 20, &[Word::new(1, 1)]).unwrap();
    assert_eq!(demux.untold().collect::<Vec<_>>(), [1]);
    assert_eq!(demux.untold().count(), 0);
    take(&mut demux, &Frame::Cursor { cursor: START }).unwrap();
    assert_eq!(demux.untold().collect::<Vec<_>>(), [0, 1]);
}

/// 13.8: "dealt with when every worker that it concerns has dealt with it".
#[test]
fn a_batch_is_given_back_when_the_last_has_let_go() {
    let (dealt, woken) = dealt();
    let mut demux = Demux::new(2, Arc::clone(&dealt));
    follow(&mut demux, 0, 1);
    follow(&mut demux, 1, 2);
    let _: Option<u32> = dealt.take();
    let mut parts = Vec::new();
    for _ in 0..20 {
        group_deliver(&mut demux, 20, &[Slot(1), Slot(2)]).unwrap();
    }
    parts.extend(demux.finish());
    let before = woken.load(Ordering::SeqCst);
    assert_eq!((parts.len(), dealt.batches(), dealt.take()), (2, 1, None));
    parts.pop();
    assert_eq!((dealt.batches(), dealt.take()), (1, None));
    let cost = parts.pop().unwrap().1.cost();
    assert_eq!((dealt.batches(), woken.load(Ordering::SeqCst)), (0, before + 1));
    let given = dealt.take().unwrap() as usize;
    assert!(cost > 1_000 && given <= 2_000 && given <= cost + 999, "{given} of {cost}");
}
