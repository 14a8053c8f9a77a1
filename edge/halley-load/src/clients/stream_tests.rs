//! Every transport, whole and cut at every byte: the items must be the same.

#![allow(clippy::unwrap_used)]

use super::*;

const BUFFER: usize = 4096;

/// What [`Item`] says, without its lifetime.
#[derive(Debug, Clone, PartialEq)]
enum Got {
    Welcome,
    Event(Option<u64>),
    Ping(Vec<u8>),
}

/// Feeds `pieces` as reads of a shared buffer; returns the items and how it ended.
fn read(transport: Transport, pieces: &[&[u8]]) -> (Vec<Got>, Result<(), StreamError>) {
    let decoder = Decoder::new(transport, BUFFER);
    let mut stream = Stream::new();
    let mut got = Vec::new();
    let mut buffer = vec![0; BUFFER];
    for piece in pieces {
        let mut sink = |item: Item<'_>| {
            got.push(match item {
                Item::Welcome => Got::Welcome,
                Item::Event(stamp) => Got::Event(stamp),
                Item::Ping(payload) => Got::Ping(payload.to_vec()),
            });
        };
        let start = match stream.lend(&mut buffer) {
            Ok(start) => start,
            Err(error) => return (got, Err(error)),
        };
        let end = start + piece.len();
        buffer[start..end].copy_from_slice(piece);
        if let Err(error) = decoder.feed(&mut stream, &buffer[..end], &mut sink) {
            return (got, Err(error));
        }
    }
    (got, Ok(()))
}

/// Checks the items for the whole, for every cut in two, and byte by byte.
fn reads_as(transport: Transport, bytes: &[u8], expected: &[Got]) {
    assert_eq!(read(transport, &[bytes]), (expected.to_vec(), Ok(())));
    for cut in 1..bytes.len() {
        let (before, after) = bytes.split_at(cut);
        let (got, end) = read(transport, &[before, after]);
        assert_eq!((got.as_slice(), end), (expected, Ok(())), "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(transport, &single), (expected.to_vec(), Ok(())));
}

fn chunked(chunks: &[&str]) -> Vec<u8> {
    let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in chunks {
        bytes.extend(format!("{:x}\r\n{chunk}\r\n", chunk.len()).into_bytes());
    }
    bytes
}

fn upgraded(frames: &[&[u8]]) -> Vec<u8> {
    let accept = crate::clients::request::WS_ACCEPT;
    let head = format!("HTTP/1.1 101 Switching\r\nsec-websocket-accept: {accept}\r\n\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend(frames.concat());
    bytes
}

#[test]
fn sse_counts_data_lines() {
    let bytes = chunked(&[
        "retry: 1000\n: welcome\n\n",
        ":\n\n",
        "id: c1\ndata: {\"id\":\"1\",\"subject\":\"\\\"t\\\":9\",\"data\":{\"t\":123,\"x\":1}}\n\n",
        "data: {\"data\":1}\n\ndata: {\"data\":{\"t\": 7}}\n\n",
    ]);
    let expected = [Got::Welcome, Got::Event(Some(123)), Got::Event(None), Got::Event(Some(7))];
    reads_as(Transport::Sse, &bytes, &expected);
}

#[test]
fn an_event_may_be_spread_over_chunks() {
    let bytes = chunked(&[": wel", "come\n\nda", "ta: {\"t\":1", "2}\n", "\n"]);
    reads_as(Transport::Sse, &bytes, &[Got::Welcome, Got::Event(Some(12))]);
}

#[test]
fn a_body_without_chunks_is_read_to_its_end() {
    let bytes = b"HTTP/1.1 200 OK\r\n\r\n: welcome\n\ndata: {\"t\":5}\n\n";
    reads_as(Transport::Sse, bytes, &[Got::Welcome, Got::Event(Some(5))]);
}

#[test]
fn ndjson_counts_lines_but_not_heartbeats() {
    let bytes = chunked(&["{\"welcome\":true}\n", "\n", "{\"data\":{\"t\":3}}\n{\"data\":0}\n"]);
    let expected = [Got::Welcome, Got::Event(Some(3)), Got::Event(None)];
    reads_as(Transport::Ndjson, &bytes, &expected);
}

#[test]
fn test_streams_count_chunks_after_the_first() {
    let bytes = chunked(&["welcome!", "{\"t\":4}", "\n", "\"hello\"", "{\"t\":6}"]);
    let expected = [Got::Welcome, Got::Event(Some(4)), Got::Event(None), Got::Event(Some(6))];
    reads_as(Transport::Test, &bytes, &expected);
}

#[test]
fn websocket_messages_pings_and_lengths() {
    let long = format!("{{\"t\":8,\"pad\":\"{}\"}}", "x".repeat(200));
    let mut long_frame = vec![0x81, 126, 0, long.len() as u8];
    long_frame.extend(long.as_bytes());
    let bytes = upgraded(&[
        b"\x81\x07{\"t\":1}",
        b"\x89\x02hi",
        &long_frame,
        b"\x01\x03{\"t\x8a\x00\x00\x03\":2\x80\x01}",
        b"\x81\x0e{\"welcome\":{}}",
        b"\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x07{\"t\":3}",
    ]);
    let expected = [
        Got::Welcome,
        Got::Event(Some(1)),
        Got::Ping(b"hi".to_vec()),
        Got::Event(Some(8)),
        Got::Event(Some(2)),
        Got::Event(Some(3)),
    ];
    reads_as(Transport::Ws, &bytes, &expected);
}

#[test]
fn a_stream_between_events_holds_no_memory() {
    let decoder = Decoder::new(Transport::Sse, BUFFER);
    let mut stream = Stream::new();
    let bytes = chunked(&[": welcome\n\n", "data: 1\n\n"]);
    decoder.feed(&mut stream, &bytes[..bytes.len() - 4], &mut |_| ()).unwrap();
    assert!(stream.held.is_some());
    let mut buffer = vec![0; BUFFER];
    let start = stream.lend(&mut buffer).unwrap();
    buffer[start..start + 4].copy_from_slice(&bytes[bytes.len() - 4..]);
    decoder.feed(&mut stream, &buffer[..start + 4], &mut |_| ()).unwrap();
    assert!(stream.held.is_none());
}

#[test]
fn ends_are_told_apart() {
    let end = |transport, bytes: &[u8]| read(transport, &[bytes]).1.unwrap_err();
    let malformed = |transport, bytes: &[u8]| {
        let error = end(transport, bytes);
        assert!(matches!(error, StreamError::Malformed(_)), "{error:?}");
    };
    assert_eq!(end(Transport::Sse, b"HTTP/1.1 503 Busy\r\n\r\n"), StreamError::Refused(503));
    assert_eq!(end(Transport::Ws, b"HTTP/1.1 200 OK\r\n\r\n"), StreamError::Refused(200));
    assert_eq!(end(Transport::Sse, &chunked(&[": welcome\n", ""])), StreamError::Ended);
    assert_eq!(end(Transport::Ws, &upgraded(&[b"\x88\x02\x03\xe8"])), StreamError::Ended);
    malformed(Transport::Sse, b"SSH-2.0-OpenSSH\r\n\r\n");
    malformed(Transport::Ws, b"HTTP/1.1 101 S\r\nSec-WebSocket-Accept: x\r\n\r\n");
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in ["xyz\r\n", "3\r\nabcd\r\n", "\r\n", "fffffffffffffffffff\r\n"] {
        malformed(Transport::Sse, format!("{head}{body}").as_bytes());
    }
    malformed(Transport::Ws, &upgraded(&[b"\x81\x81aaaaa"]));
    malformed(Transport::Ws, &upgraded(&[b"\xc1\x00"]));
    malformed(Transport::Ws, &upgraded(&[b"\x83\x00"]));
    malformed(Transport::Ws, &upgraded(&[b"\x81\x7f\xff\x00\x00\x00\x00\x00\x00\x00"]));
}

#[test]
fn what_never_ends_is_given_up() {
    let mut bytes = chunked(&[]);
    bytes.extend(b"ffff\r\n");
    let filler = vec![b'x'; BUFFER / 4];
    let (_, end) =
        read(Transport::Sse, &[&bytes, &filler, &filler, &filler, &filler[..900], b"x", b"x"]);
    assert!(end.is_ok(), "it still fits: {end:?}");
    let endless: Vec<String> = vec!["y".repeat(1000); 6];
    let lines: Vec<&str> = endless.iter().map(String::as_str).collect();
    let whole = chunked(&lines);
    let pieces: Vec<&[u8]> = whole.chunks(500).collect();
    let (_, end) = read(Transport::Sse, &pieces);
    assert!(matches!(end, Err(StreamError::Malformed(_))), "{end:?}");
}
