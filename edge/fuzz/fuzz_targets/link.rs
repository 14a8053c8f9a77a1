//! The link's frames: no panic, no dependence on the cuts, and a frame that was understood is
//! written as it was read (`protocol/link.md` 2.3: a payload is used up exactly).

#![no_main]

use halley_link::{Deframer, Frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (cuts, input) = halley_fuzz::cuts(data);
    let whole = frames(input, &[input.len()]);
    assert_eq!(frames(input, &cuts), whole);
});

/// Every frame of the stream, written again, or the clause that it breaks; `Err` if the stream
/// itself can't be read on.
fn frames(input: &[u8], cuts: &[usize]) -> Result<Vec<Result<Vec<u8>, String>>, String> {
    let mut deframer = Deframer::new();
    let (mut found, mut at, mut used) = (Vec::new(), 0, 0);
    for &end in cuts {
        while at < end {
            let space = deframer.space();
            let bytes = space.len().min(end - at);
            space[..bytes].copy_from_slice(&input[at..at + bytes]);
            deframer.filled(bytes);
            at += bytes;
            while let Some(raw) = deframer.next().map_err(|error| format!("{error:?}"))? {
                let sent = &input[used..used + raw.cost];
                used += raw.cost;
                found.push(match Frame::decode(raw.kind, raw.payload) {
                    Err(error) => Err(format!("{error:?}")),
                    Ok(frame) => {
                        let mut again = Vec::new();
                        frame.encode(&mut again);
                        assert_eq!(again, sent);
                        Ok(again)
                    }
                });
            }
        }
    }
    Ok(found)
}
