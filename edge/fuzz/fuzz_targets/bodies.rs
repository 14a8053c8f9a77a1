//! Bodies in chunks of any size, as a worker passes them to the brain: the bytes of the chunks are
//! joined in frames of RequestBody within the window (`protocol/link.md` 8.3), whatever the chunks'
//! sizes and the reads were, and the brain finds the same body in them. The bytes after the body
//! stay unread.

#![no_main]

use halley_link::{Deframer, FLAG_END, Frame};
use halley_wire::http1::chunked::ChunkedDecoder;
use libfuzzer_sys::fuzz_target;

/// Which request the frames are of.
const CONN: u64 = 7;
/// What a pipelining client sends next.
const NEXT: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

fuzz_target!(|data: &[u8]| {
    let Some((&window, rest)) = data.split_first() else { return };
    let window = 1 + usize::from(window);
    let (ends, rest) = halley_fuzz::cuts(rest);
    // The chunks end at `ends`; the bytes of each place say how the size is spelled.
    let body = rest;
    let wire = in_chunks(body, &ends);
    for step in [wire.len(), 1, 2, 7, 1 + body.first().copied().map_or(0, usize::from)] {
        let frames = passed_on(&wire, step, window);
        assert_eq!(brain_joins(&frames, step, window), body);
    }
});

/// The body in chunks, with sizes in the spellings that RFC 9112 7.1 allows, and what comes behind.
fn in_chunks(body: &[u8], ends: &[usize]) -> Vec<u8> {
    let (mut wire, mut start) = (Vec::new(), 0);
    for &end in ends {
        let size = end - start;
        if size > 0 {
            let line = match body[start] % 5 {
                0 => format!("{size:X}"),
                1 => format!("{size:016x}"),
                2 => format!("{size:x};a"),
                3 => format!("{size:x} ; a=\"b;\\\" 0\""),
                _ => format!("{size:x}"),
            };
            wire.extend_from_slice(line.as_bytes());
            wire.extend_from_slice(b"\r\n");
            wire.extend_from_slice(&body[start..end]);
            wire.extend_from_slice(b"\r\n");
        }
        start = end;
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    wire.extend_from_slice(NEXT);
    wire
}

/// Reads of `step` bytes, of which each byte is looked at once; the frames as they travel.
fn passed_on(wire: &[u8], step: usize, window_max: usize) -> Vec<u8> {
    let (mut decoder, mut link) = (ChunkedDecoder::new(), Vec::new());
    let (mut window, mut read, mut used) = (window_max, 0, 0);
    let mut joined = Vec::new();
    loop {
        if window == 0 {
            // The brain has read it, and grants the next.
            window = window_max;
        }
        if read == used {
            assert!(read < wire.len(), "the body ends before its bytes do");
            read = wire.len().min(read + step);
        }
        let input = &wire[used..read];
        joined.clear();
        let taken = decoder.decode_all(&input[..input.len().min(window)], &mut joined);
        let (took, done) = taken.unwrap_or_else(|error| panic!("{error:?}"));
        assert!(took > 0, "no progress");
        used += took;
        window -= joined.len();
        if !joined.is_empty() || done {
            let flags = if done { FLAG_END } else { 0 };
            Frame::RequestBody { conn: CONN, flags, body: &joined }.encode(&mut link);
        }
        if done {
            assert_eq!(&wire[used..], NEXT, "what is behind the body is the next request's");
            return link;
        }
    }
}

/// What the brain has when the body has ended.
fn brain_joins(link: &[u8], step: usize, window_max: usize) -> Vec<u8> {
    let (mut deframer, mut body, mut at, mut ended) = (Deframer::new(), Vec::new(), 0, false);
    while at < link.len() {
        let space = deframer.space();
        let bytes = space.len().min(step).min(link.len() - at);
        space[..bytes].copy_from_slice(&link[at..at + bytes]);
        deframer.filled(bytes);
        at += bytes;
        while let Some(raw) = deframer.next().unwrap_or_else(|error| panic!("{error:?}")) {
            match Frame::decode(raw.kind, raw.payload) {
                Ok(Frame::RequestBody { conn: CONN, flags, body: part }) => {
                    assert!(!ended, "a frame behind the end");
                    assert!(part.len() <= window_max, "more than the window");
                    assert!(!part.is_empty() || flags == FLAG_END, "a frame that says nothing");
                    body.extend_from_slice(part);
                    ended = flags == FLAG_END;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(ended, "the body has an end");
    body
}
