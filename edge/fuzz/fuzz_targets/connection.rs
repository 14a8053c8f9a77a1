//! A whole connection: pipelined requests with their bodies, then perhaps WebSocket frames, through
//! all layers as a worker reads them. No panic, no dependence on the cuts, no more kept than one
//! head, and the second reader finds the same requests and bodies in the same bytes: nothing of
//! one request is ever taken for another (RFC 9112 11.2).

#![no_main]

use halley_fuzz::connection::{Connection, Said, Seen, WEBSOCKET_PATH};
use halley_fuzz::second::{self, Body, Verdict};
use halley_wire::http1::head::HeadLimits;
use halley_wire::websocket::{Rules, Sender};
use libfuzzer_sys::fuzz_target;

const LIMITS: HeadLimits =
    HeadLimits { request_line_bytes_max: 120, header_bytes_max: 600, headers_max: 12 };
const RULES: Rules = Rules { sender: Sender::Client, message_bytes_max: 300 };

fuzz_target!(|data: &[u8]| {
    let (cuts, input) = halley_fuzz::cuts(data);
    let whole = read(input, &[input.len()]);
    let cut = read(input, &cuts);
    assert_eq!(cut.said, whole.said);
    assert_eq!(cut.is_closed(), whole.is_closed());
    assert!(whole.kept_bytes() < LIMITS.head_bytes_max());
    if !whole.is_closed() {
        assert_eq!((cut.used, cut.kept_bytes()), (whole.used, whole.kept_bytes()));
        assert_eq!(whole.used + whole.kept_bytes(), input.len(), "each byte is read once");
    }
    second_reader_agrees(&whole.said, input);
});

fn read(input: &[u8], cuts: &[usize]) -> Connection {
    let mut connection = Connection::new(LIMITS, RULES);
    let mut at = 0;
    for &end in cuts {
        connection.read(&input[at..end]);
        at = end;
    }
    connection
}

/// Walks the input once more, and compares each request until the two can't be compared: a path of
/// WebSockets, an error, or the end of the input.
fn second_reader_agrees(said: &[Said], input: &[u8]) {
    let (mut said, mut at) = (said.iter(), 0);
    loop {
        let verdict = second::head(&input[at..], &halley_fuzz::second_limits(&LIMITS));
        let Verdict::Is(head) = verdict else {
            // What the first reader makes of a part of a head, an error or nothing, is no request.
            assert!(matches!(said.next(), None | Some(Said::Refused(_))));
            return;
        };
        if head.target.split(|&byte| byte == b'?').next() == Some(WEBSOCKET_PATH.as_bytes()) {
            assert!(matches!(said.next(), Some(Said::Upgraded | Said::Refused(_))));
            return;
        }
        let Some(Said::Request(seen)) = said.next() else { panic!("{head:?} was not seen") };
        let line = [&head.method[..], b" ", &head.target].concat();
        assert_eq!(seen.line.as_bytes(), line);
        let rest = &input[at + head.end..];
        let Some(body_end) = body_end(seen, head.body, rest) else {
            assert!(matches!(said.next(), None | Some(Said::Refused(_))));
            return;
        };
        at += head.end + body_end;
        if !head.keep_alive {
            assert_eq!(said.next(), None);
            return;
        }
    }
}

/// Where the body ends, if it does; it must be the one that was seen.
fn body_end(seen: &Seen, body: Body, rest: &[u8]) -> Option<usize> {
    let found = match body {
        Body::None => Some((Vec::new(), 0)),
        Body::Length(length) => usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(..length))
            .map(|body| (body.to_vec(), body.len())),
        Body::Chunked => match second::chunked(rest) {
            Verdict::Is(found) => Some(found),
            _ => None,
        },
    };
    assert_eq!(seen.whole, found.is_some());
    let (body, end) = found?;
    assert_eq!(seen.body, body);
    Some(end)
}
