//! Chunked bodies: no panic, progress, no dependence on the cuts, the same end and the same bytes
//! as the second reader finds, and what is written in chunks is read again.

#![no_main]

use halley_fuzz::second::{self, Verdict};
use halley_wire::HttpError;
use halley_wire::http1::body::{self, Framing};
use halley_wire::http1::chunked::ChunkedDecoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (cuts, input) = halley_fuzz::cuts(data);
    let whole = decode(input, &[input.len()]);
    assert_eq!(decode(input, &cuts), whole);
    assert_eq!(decode_all(input, &cuts), whole);
    match (&whole, second::chunked(input)) {
        ((body, Ok(Some(end))), Verdict::Is(second)) => {
            assert_eq!((body, end), (&second.0, &second.1))
        }
        ((_, Ok(None) | Err(_)), Verdict::Unfinished) | ((_, Err(_)), Verdict::Refused) => {}
        (first, second) => panic!("{first:?} and {second:?}"),
    }
    written_and_read(input, &cuts);
});

/// Writes `body` in chunks that end at the cuts, and reads them whole.
fn written_and_read(body: &[u8], cuts: &[usize]) {
    let (mut out, mut start) = (Vec::new(), 0);
    for &end in cuts {
        body::write(&mut out, Framing::Chunked, &[&body[start..end]]);
        start = end;
    }
    body::write_end(&mut out, Framing::Chunked);
    let end = out.len();
    assert_eq!(decode(&out, &[end]), (body.to_vec(), Ok(Some(end))));
}

/// As [`decode`], by the way that bodies take: whole chunks of some bytes at once.
fn decode_all(input: &[u8], cuts: &[usize]) -> (Vec<u8>, Result<Option<usize>, HttpError>) {
    let mut decoder = ChunkedDecoder::new();
    let (mut body, mut at) = (Vec::new(), 0);
    for &end in cuts {
        match decoder.decode_all(&input[at..end], &mut body) {
            Ok((used, true)) => return (body, Ok(Some(at + used))),
            Ok((used, false)) => assert_eq!(used, end - at, "all is used before the end"),
            Err(error) => return (body, Err(error)),
        }
        at = end;
    }
    (body, Ok(None))
}

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
