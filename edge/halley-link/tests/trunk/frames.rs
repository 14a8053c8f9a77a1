//! Frames of a brain, and what becomes of them in words that can be compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use halley_link::trunk::{Brought, Dealt, Demux};
use halley_link::{Cursor, Event, Frame, Item, List, RawFrame, Slot, Word};

/// A cursor that events can move.
pub const START: &[u8] = b"AQAAAAcAAABkAAAAAAAKAAAA";

pub fn dealt() -> (Arc<Dealt>, Arc<AtomicU32>) {
    let woken = Arc::new(AtomicU32::new(0));
    let wake = {
        let woken = Arc::clone(&woken);
        Box::new(move || {
            woken.fetch_add(1, Ordering::SeqCst);
        })
    };
    (Arc::new(Dealt::new(1_000, wake)), woken)
}

pub fn demux(workers: u16) -> Demux {
    Demux::new(workers, dealt().0)
}

/// Lets the demux take a frame, as it comes from the wire.
pub fn take(demux: &mut Demux, frame: &Frame<'_>) -> Result<bool, &'static str> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    let raw = RawFrame { kind: bytes[4], payload: &bytes[5..], cost: bytes.len() };
    demux.take(&raw).map(|own| own.is_some()).map_err(|error| error.clause)
}

pub fn event(seq: u64, cursor: &[u8]) -> Event<'_> {
    Event {
        shard: 1,
        seq,
        at: 1_000 * seq,
        data_offset: 8,
        subject_offset: 0,
        subject_bytes: 0,
        cursor,
        json: br#"{"data":0}"#,
    }
}

pub fn packed<'a>(items: &[impl Item<'a>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    items.iter().for_each(|item| item.write(&mut bytes));
    bytes
}

pub fn deliver(demux: &mut Demux, seq: u64, words: &[Word]) -> Result<bool, &'static str> {
    let bytes = packed(words);
    let words = List::from_items(words.len() as u16, &bytes);
    take(demux, &Frame::TrunkDeliver { event: event(seq, b""), words })
}

pub fn group_deliver(demux: &mut Demux, seq: u64, slots: &[Slot]) -> Result<bool, &'static str> {
    let bytes = packed(slots);
    let slots = List::from_items(slots.len() as u16, &bytes);
    take(demux, &Frame::TrunkGroupDeliver { group: 9, event: event(seq, b""), slots })
}

pub fn to_slot(demux: &mut Demux, slot: u16, frame: &Frame<'_>) -> Result<bool, &'static str> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    take(demux, &Frame::ToSlot { slot, kind: bytes[4], payload: &bytes[5..] })
}

/// Gives a worker a slot that follows the trunk.
pub fn follow(demux: &mut Demux, worker: u16, slot: u16) {
    if demux.cursor().is_empty() {
        take(demux, &Frame::Cursor { cursor: START }).unwrap();
    }
    demux.sync_begins(worker);
    take(demux, &Frame::Place { worker, slot }).unwrap();
    to_slot(demux, slot, &Frame::Cursor { cursor: b"" }).unwrap();
    gathered(demux);
}

/// What was handed over, worker by worker, in words that can be compared.
pub fn gathered(demux: &mut Demux) -> Vec<(u16, Vec<String>)> {
    let parts: Vec<_> = demux.finish().collect();
    let mut all = Vec::new();
    for (worker, mut part) in parts {
        let mut lines = Vec::new();
        while let Some(brought) = part.next() {
            lines.push(line(&brought));
        }
        all.push((worker, lines));
    }
    all
}

pub fn line(brought: &Brought<'_>) -> String {
    let of = |event: &Event<'_>| format!("{} {}", event.seq, moved(event.cursor));
    match *brought {
        Brought::Deliver { event, words } => {
            let conns: Vec<_> = words.iter().map(|word| (word.slot(), word.conn())).collect();
            format!("deliver {} {conns:?}", of(&event))
        }
        Brought::GroupDeliver { group, event } => format!("group {group} {}", of(&event)),
        Brought::Frame { kind, payload } => format!("frame {kind:#x} {}", payload.len()),
        Brought::Cursor { cursor } => format!("cursor {}", moved(cursor)),
    }
}

/// Up to which event of shard 1 a cursor is.
pub fn moved(cursor: &[u8]) -> u64 {
    let all = Cursor::decode(cursor).expect("a cursor");
    (0..10_000)
        .find(|seq| {
            let mut one = all.clone();
            one.pass(1, seq + 1, 0) && one != all
        })
        .unwrap()
}

pub fn texts(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}
