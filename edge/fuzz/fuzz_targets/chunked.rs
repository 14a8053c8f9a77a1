//! Chunked bodies: no panic, progress, no dependence on the cuts.

#![no_main]

use halley_wire::HttpError;
use halley_wire::http1::chunked::ChunkedDecoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (cuts, input) = halley_fuzz::cuts(data);
    let whole = decode(input, &[input.len()]);
    assert_eq!(decode(input, &cuts), whole);
});

/// The body up to its end or the error, and at which byte it ended, if it did.
fn decode(input: &[u8], cuts: &[usize]) -> (Vec<u8>, Result<Option<usize>, HttpError>) {
    let mut decoder = ChunkedDecoder::new();
    let (mut body, mut at) = (Vec::new(), 0);
    for &end in cuts {
        while at < end {
            let chunk = match decoder.decode(&input[at..end]) {
                Ok(chunk) => chunk,
                Err(error) => return (body, Err(error)),
            };
            assert!(chunk.consumed > 0 && chunk.data.end <= chunk.consumed);
            body.extend_from_slice(&input[at..end][chunk.data]);
            at += chunk.consumed;
            if chunk.done {
                return (body, Ok(Some(at)));
            }
        }
    }
    (body, Ok(None))
}
