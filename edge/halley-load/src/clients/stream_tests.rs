//! Shared by the tests of all protocols: a stream is read whole and cut at every byte, and the
//! items must be the same.

#![allow(clippy::unwrap_used)]

use super::framing::WS_ACCEPT;
use super::protocol::{Prompt, Protocol};
use super::stream::{Item, Stream, StreamError, feed};

/// The buffer of the tests.
pub const BUFFER: usize = 64 * 1024;

/// What [`Item`] says, without its lifetime.
#[derive(Debug, Clone, PartialEq)]
pub enum Got {
    Welcome,
    Event(Option<u64>),
    Cursor(&'static str),
    Gap,
    Retry(u32),
    Busy,
    Ping(Vec<u8>),
    Prompt(Prompt),
}

/// The cursors of the tests: what was read, to be compared.
const CURSORS: [&str; 4] = ["c1", "c2", "c3", "c4"];

/// Feeds `pieces` as reads of a shared buffer; returns the items and how it ended.
pub fn read(protocol: &dyn Protocol, pieces: &[&[u8]]) -> (Vec<Got>, Result<(), StreamError>) {
    let mut stream = Stream::new();
    let mut got = Vec::new();
    let mut buffer = vec![0; BUFFER];
    for piece in pieces {
        let mut sink = |item: Item<'_>| {
            got.push(match item {
                Item::Welcome => Got::Welcome,
                Item::Event(event) => Got::Event(event.stamp()),
                Item::Cursor(cursor) => {
                    let known = CURSORS.iter().find(|known| known.as_bytes() == cursor);
                    Got::Cursor(known.unwrap_or(&"another"))
                }
                Item::Gap => Got::Gap,
                Item::Retry(ms) => Got::Retry(ms),
                Item::Busy => Got::Busy,
                Item::Ping(payload) => Got::Ping(payload.to_vec()),
                Item::Prompt(prompt) => Got::Prompt(prompt),
            });
        };
        let start = match stream.lend(&mut buffer) {
            Ok(start) => start,
            Err(error) => return (got, Err(error)),
        };
        let end = start + piece.len();
        buffer[start..end].copy_from_slice(piece);
        if let Err(error) = feed(protocol, &mut stream, &buffer[..end], &mut sink) {
            return (got, Err(error));
        }
    }
    (got, Ok(()))
}

/// Checks the items for the whole, for every cut in two, and byte by byte.
pub fn reads_as(protocol: &dyn Protocol, bytes: &[u8], expected: &[Got]) {
    assert_eq!(read(protocol, &[bytes]), (expected.to_vec(), Ok(())));
    for cut in 1..bytes.len() {
        let (before, after) = bytes.split_at(cut);
        let (got, end) = read(protocol, &[before, after]);
        assert_eq!((got.as_slice(), end), (expected, Ok(())), "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(protocol, &single), (expected.to_vec(), Ok(())));
}

/// An answer of these chunks.
pub fn chunked(chunks: &[&str]) -> Vec<u8> {
    let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in chunks {
        bytes.extend(format!("{:x}\r\n{chunk}\r\n", chunk.len()).into_bytes());
    }
    bytes
}

/// An answer of these frames.
pub fn upgraded(frames: &[&[u8]]) -> Vec<u8> {
    let head = format!("HTTP/1.1 101 Switching\r\nsec-websocket-accept: {WS_ACCEPT}\r\n\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend(frames.concat());
    bytes
}

/// A text message of fewer than 64 KiB.
pub fn text(text: &str) -> Vec<u8> {
    framed(0x81, text.as_bytes())
}

/// A binary message of fewer than 64 KiB.
pub fn binary(bytes: &[u8]) -> Vec<u8> {
    framed(0x82, bytes)
}

fn framed(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap();
    let mut frame = vec![first];
    if length < 126 {
        frame.push(length as u8);
    } else {
        frame.push(126);
        frame.extend(length.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

/// How a stream ends that is read in pieces of a kilobyte.
pub fn ends_as(protocol: &dyn Protocol, bytes: &[u8]) -> StreamError {
    let pieces: Vec<&[u8]> = bytes.chunks(1024).collect();
    read(protocol, &pieces).1.unwrap_err()
}
