//! The frames of a trunk on their way to the workers: no panic, no dependence on how they were
//! read, no worker gets another's connections, and all that a costly frame cost is given back
//! (`protocol/link.md` 13).

#![no_main]

use std::sync::Arc;

use halley_link::trunk::{Brought, Dealt, Demux};
use halley_link::{Deframer, Frame};
use libfuzzer_sys::fuzz_target;

const WORKERS: u16 = 4;
/// A worker's slot is its number and so much.
const SLOTS: u16 = 1;
const CURSOR: &[u8] = b"AQAAAAcAAABkAAAAAAAKAAAA";

/// What came of an input: for each worker what it got, and the clause that ended the trunk.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    got: [Vec<String>; WORKERS as usize],
    broken: Option<&'static str>,
    cursor: Vec<u8>,
    stale: u64,
}

fuzz_target!(|data: &[u8]| {
    let (cuts, input) = halley_fuzz::cuts(data);
    let whole = seen(input, &[input.len()]);
    assert_eq!(seen(input, &cuts), whole);
});

/// Two workers follow, one has a slot that doesn't, one has none.
fn begun(dealt: &Arc<Dealt>) -> Demux {
    let mut demux = Demux::new(WORKERS, Arc::clone(dealt));
    let mut frames = Vec::new();
    Frame::Cursor { cursor: CURSOR }.encode(&mut frames);
    for worker in 0..3 {
        demux.sync_begins(worker);
        Frame::Place { worker, slot: worker + SLOTS }.encode(&mut frames);
    }
    for slot in [SLOTS, SLOTS + 1] {
        Frame::ToSlot { slot, kind: 0x1b, payload: &[0] }.encode(&mut frames);
    }
    let mut deframer = Deframer::new();
    deframer.space()[..frames.len()].copy_from_slice(&frames);
    deframer.filled(frames.len());
    while let Ok(Some(raw)) = deframer.next() {
        assert_eq!(demux.take(&raw), Ok(None));
    }
    drop(demux.finish().collect::<Vec<_>>());
    demux
}

fn seen(input: &[u8], cuts: &[usize]) -> Seen {
    let dealt = Arc::new(Dealt::new(1, Box::new(|| {})));
    let mut demux = begun(&dealt);
    while dealt.take().is_some() {}
    let (mut seen, mut deframer) = (Seen::default(), Deframer::new());
    let (mut at, mut cost) = (0, 0);
    for &end in cuts {
        while at < end && seen.broken.is_none() {
            let space = deframer.space();
            let bytes = space.len().min(end - at);
            space[..bytes].copy_from_slice(&input[at..at + bytes]);
            deframer.filled(bytes);
            at += bytes;
            while seen.broken.is_none() {
                match deframer.next() {
                    Ok(None) => break,
                    Err(error) => seen.broken = Some(error.clause),
                    Ok(Some(raw)) => {
                        cost += if Frame::costs(raw.kind) { raw.cost } else { 0 };
                        seen.broken = demux.take(&raw).err().map(|error| error.clause);
                    }
                }
            }
        }
        for (worker, mut part) in demux.finish().collect::<Vec<_>>() {
            while let Some(brought) = part.next() {
                if let Brought::Deliver { words, .. } = brought {
                    assert!(words.iter().all(|word| word.slot() == worker + SLOTS));
                }
                seen.got[usize::from(worker)].push(format!("{brought:?}"));
            }
        }
    }
    let mut back = 0;
    while let Some(bytes) = dealt.take() {
        back += bytes as usize;
    }
    // What can't be decoded isn't counted, and ends the trunk.
    assert!(dealt.batches() == 0 && (back == cost || seen.broken.is_some() && back < cost));
    seen.cursor = demux.cursor().to_vec();
    seen.stale = demux.take_stale();
    seen
}
