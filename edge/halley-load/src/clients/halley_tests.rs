//! Every transport of Halley.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::clients::stream::feed;
use crate::clients::stream_tests::{BUFFER, Got, chunked, ends_as, read, reads_as, upgraded};

fn of(transport: Transport) -> Halley {
    Halley::new(transport, true)
}

#[test]
fn sse_counts_data_lines() {
    let bytes = chunked(&[
        "retry: 1000\n: welcome\n\n",
        ":\n\n",
        "id: c1\ndata: {\"id\":\"1\",\"subject\":\"\\\"t\\\":9\",\"data\":{\"t\":123,\"x\":1}}\n\n",
        "data: {\"data\":1}\n\ndata: {\"data\":{\"t\": 7}}\n\n",
    ]);
    let expected = [
        Got::Retry(1000),
        Got::Welcome,
        Got::Event(Some(123)),
        Got::Cursor("c1"),
        Got::Event(None),
        Got::Event(Some(7)),
    ];
    reads_as(&of(Transport::Sse), &bytes, &expected);
}

/// `protocol/http.md` 7.3, 10.3, 13.2; an `id:` counts from the empty line behind it.
#[test]
fn sse_cursors_gaps_and_busy_answers() {
    let bytes = chunked(&[
        ": welcome\nretry: 2000\nid: c1\n\n",
        "id: c2\n\n",
        ":\n\n",
        "id: c3\nevent: gap\ndata: {\"gap\":{\"from\":null,\"to\":1,\"reason\":\"too_old\"}}\n\n",
        "event: gap\ndata: {\"gap\":{}}\n\n",
        "id: c4\ndata: {\"data\":{\"t\":5}}\n",
    ]);
    let expected = [
        Got::Welcome,
        Got::Retry(2000),
        Got::Cursor("c1"),
        Got::Cursor("c2"),
        Got::Gap,
        Got::Cursor("c3"),
        Got::Gap,
        Got::Event(Some(5)),
    ];
    reads_as(&of(Transport::Sse), &bytes, &expected);
    let busy = b"HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n: busy\nretry: 1500\n\n";
    reads_as(&of(Transport::Sse), busy, &[Got::Busy, Got::Retry(1500)]);
}

/// `protocol/http.md` 7.4, 9.6, 10.3.
#[test]
fn json_cursors_and_gaps() {
    let texts = [
        r#"{"cursor":"c1"}"#,
        r#"{"cursor":"c2","id":"1","subject":"a","at":1,"data":{"t":3}}"#,
        r#"{"cursor":"c3","gap":{"from":1,"to":2,"reason":"damaged"}}"#,
        r#"{"gap":{"from":1,"to":2,"reason":"slow_consumer"}}"#,
        r#"{"id":"2","subject":"a","at":1,"data":{"t":4}}"#,
    ];
    let expected = [
        Got::Welcome,
        Got::Cursor("c1"),
        Got::Event(Some(3)),
        Got::Cursor("c2"),
        Got::Gap,
        Got::Cursor("c3"),
        Got::Gap,
        Got::Event(Some(4)),
    ];
    let lines = texts.map(|text| format!("{text}\n"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    reads_as(&of(Transport::Ndjson), &chunked(&lines), &expected);
    let frames = texts.map(|text| [&[0x81, text.len() as u8], text.as_bytes()].concat());
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    reads_as(&of(Transport::Ws), &upgraded(&frames), &expected);
}

#[test]
fn a_refusal_says_when_to_come_back() {
    let bytes = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\n\r\n";
    let (got, end) = read(&of(Transport::Ndjson), &[bytes]);
    assert_eq!((got, end), (vec![Got::Retry(7000)], Err(StreamError::Refused(503))));
}

#[test]
fn an_event_may_be_spread_over_chunks() {
    let bytes = chunked(&[": wel", "come\n\nda", "ta: {\"t\":1", "2}\n", "\n"]);
    reads_as(&of(Transport::Sse), &bytes, &[Got::Welcome, Got::Event(Some(12))]);
}

#[test]
fn a_body_without_chunks_is_read_to_its_end() {
    let bytes = b"HTTP/1.1 200 OK\r\n\r\n: welcome\n\ndata: {\"t\":5}\n\n";
    reads_as(&of(Transport::Sse), bytes, &[Got::Welcome, Got::Event(Some(5))]);
}

#[test]
fn ndjson_counts_lines_but_not_heartbeats() {
    let bytes = chunked(&["{\"welcome\":true}\n", "\n", "{\"data\":{\"t\":3}}\n{\"data\":0}\n"]);
    let expected = [Got::Welcome, Got::Event(Some(3)), Got::Event(None)];
    reads_as(&of(Transport::Ndjson), &bytes, &expected);
}

#[test]
fn test_streams_count_chunks_after_the_first() {
    let bytes = chunked(&["welcome!", "{\"t\":4}", "\n", "\"hello\"", "{\"t\":6}"]);
    let expected = [Got::Welcome, Got::Event(Some(4)), Got::Event(None), Got::Event(Some(6))];
    reads_as(&of(Transport::Test), &bytes, &expected);
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
    reads_as(&of(Transport::Ws), &bytes, &expected);
}

#[test]
fn a_stream_between_events_holds_no_memory() {
    let protocol = Halley::new(Transport::Sse, false);
    let mut stream = Stream::new();
    let bytes = chunked(&[": welcome\n\n", "data: 1\n\n"]);
    feed(&protocol, &mut stream, &bytes[..bytes.len() - 4], &mut |_| ()).unwrap();
    assert!(stream.is_holding());
    let mut buffer = vec![0; BUFFER];
    let start = stream.lend(&mut buffer).unwrap();
    buffer[start..start + 4].copy_from_slice(&bytes[bytes.len() - 4..]);
    feed(&protocol, &mut stream, &buffer[..start + 4], &mut |_| ()).unwrap();
    assert!(!stream.is_holding());
}

#[test]
fn ends_are_told_apart() {
    let end = |transport, bytes: &[u8]| ends_as(&of(transport), bytes);
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
    malformed(Transport::WsDeflate, &upgraded(&[]));
    malformed(Transport::Ws, &upgraded(&[b"\x83\x00"]));
    malformed(Transport::Ws, &upgraded(&[b"\x81\x7f\xff\x00\x00\x00\x00\x00\x00\x00"]));
}

#[test]
fn what_never_ends_is_given_up() {
    let mut bytes = chunked(&[]);
    bytes.extend(b"ffff\r\n");
    let filler = vec![b'x'; BUFFER / 4];
    let (_, end) =
        read(&of(Transport::Sse), &[&bytes, &filler, &filler, &filler, &filler[..900], b"x", b"x"]);
    assert!(end.is_ok(), "it still fits: {end:?}");
    let endless: Vec<String> = vec!["y".repeat(1000); 300];
    let lines: Vec<&str> = endless.iter().map(String::as_str).collect();
    let whole = chunked(&lines);
    let pieces: Vec<&[u8]> = whole.chunks(500).collect();
    let (_, end) = read(&of(Transport::Sse), &pieces);
    assert!(matches!(end, Err(StreamError::Malformed(_))), "{end:?}");
}

#[test]
fn requests_are_whole_and_name_the_user_and_the_cursor() {
    let wanted = [
        (Transport::Sse, "/v1/stream?user=a%2Fb", "/v1/stream?user=a%2Fb"),
        (Transport::Ndjson, "/v1/stream?user=a%2Fb", "/v1/stream?user=a%2Fb&cursor=C-1"),
        (Transport::Ws, "/v1/ws?user=a%2Fb", "/v1/ws?user=a%2Fb&cursor=C-1"),
        (Transport::Test, "/test/a%2Fb", "/test/a%2Fb"),
    ];
    for (transport, without, with) in wanted {
        for (cursor, target) in [(None, without), (Some(&b"C-1"[..]), with)] {
            let (who, mut bytes) =
                (Who { user: "a/b", token: None, channel: "", cursor }, Vec::new());
            of(transport).push_request("h:1", &who, &mut bytes);
            let mut headers = [httparse::EMPTY_HEADER; 8];
            let mut request = httparse::Request::new(&mut headers);
            assert!(request.parse(&bytes).unwrap().is_complete());
            assert_eq!(request.path, Some(target));
            assert_eq!(request.headers[0].value, b"h:1");
            let id = request.headers.iter().find(|header| header.name == "Last-Event-ID");
            let expected = cursor.filter(|_| transport == Transport::Sse);
            assert_eq!(id.map(|header| header.value), expected);
        }
    }
}

/// `protocol/http.md` 21.1: "`subject=`, one subject, as often as needed".
#[test]
fn subjects_are_in_the_target() {
    for (token, cursor, target) in [
        (None, None, "/v1/stream?user=a&subject=g7&subject=g7-1"),
        (None, Some(&b"C"[..]), "/v1/stream?user=a&cursor=C&subject=g7&subject=g7-1"),
        (Some("t"), None, "/v1/stream?subject=g7&subject=g7-1"),
    ] {
        let who = Who { user: "a", token, channel: "g7", cursor };
        let mut bytes = Vec::new();
        of(Transport::Ndjson).subscribed(2).push_request("h:1", &who, &mut bytes);
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut request = httparse::Request::new(&mut headers);
        assert!(request.parse(&bytes).unwrap().is_complete());
        assert_eq!(request.path, Some(target));
    }
}

/// `protocol/http.md` 14.2: "The token stands in `Authorization: Bearer <token>`".
#[test]
fn a_token_names_the_user() {
    for (transport, target) in [
        (Transport::Sse, "/v1/stream"),
        (Transport::Ndjson, "/v1/stream?cursor=C-1"),
        (Transport::Ws, "/v1/ws?cursor=C-1"),
    ] {
        let cursor = Some(&b"C-1"[..]);
        let who = Who { user: "a/b", token: Some("t.o.k"), channel: "", cursor };
        let mut bytes = Vec::new();
        of(transport).push_request("h:1", &who, &mut bytes);
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut request = httparse::Request::new(&mut headers);
        assert!(request.parse(&bytes).unwrap().is_complete());
        assert_eq!(request.path, Some(target));
        assert_eq!(request.headers[1].name, "Authorization");
        assert_eq!(request.headers[1].value, b"Bearer t.o.k");
    }
}
