//! True for every input: no panic, no dependence on the cuts, and written bytes are read back. The
//! fuzz targets state the same for the inputs of a fuzzer.

#![allow(clippy::unwrap_used)]

use halley_wire::http1::body::{self, Framing};
use halley_wire::http1::chunked::ChunkedDecoder;
use halley_wire::http1::head::{HeadLimits, Request, parse_request};
use halley_wire::target::{self, Plus};
use halley_wire::websocket::{Decoder, Event, Failure, Rules, Sender, client, encode};
use halley_wire::{HttpError, json_escape};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Text that looks like a head often enough to get far into the parser.
fn nearly_a_head() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&'static [u8]> = vec![
        b"GET / HTTP/1.1\r\n",
        b"POST /a?b HTTP/1.0\r\n",
        b"GET http://h/ HTTP/2",
        b"Host: h\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: upgrade\r\n",
        b"Expect: 100-continue\r\n",
        b"X: y\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b":",
        b"\0",
        b"\xff",
        b"xxxxxxxxxxxxxxxxxxxx",
    ];
    vec(select(words), 0..12).prop_map(|words| words.concat())
}

/// What the parser says of the shortest prefix of which it says anything, as a worker that reads
/// byte by byte would see it.
fn parse_bytewise<'b>(
    input: &'b [u8],
    limits: &HeadLimits,
) -> Result<Option<Request<'b>>, HttpError> {
    for end in 0..input.len() {
        match parse_request(&input[..end], limits) {
            Ok(None) => {}
            said => return said,
        }
    }
    parse_request(input, limits)
}

fn decode_chunked(input: &[u8], cuts: &[usize]) -> (Vec<u8>, usize, Result<bool, HttpError>) {
    let mut decoder = ChunkedDecoder::new();
    let (mut body, mut at) = (Vec::new(), 0);
    for end in cuts.iter().map(|cut| cut % (input.len() + 1)).chain([input.len()]) {
        while at < end && !decoder.is_done() {
            match decoder.decode(&input[at..end]) {
                Err(error) => return (body, 0, Err(error)),
                Ok(chunk) => {
                    assert!(chunk.consumed > 0);
                    body.extend_from_slice(&input[at..end][chunk.data]);
                    at += chunk.consumed;
                }
            }
        }
    }
    (body, at, Ok(decoder.is_done()))
}

fn decode_frames(
    input: &[u8],
    cuts: &[usize],
    rules: &Rules,
) -> (Vec<Event<'static>>, Result<(), Failure>) {
    let mut input = input.to_vec();
    let mut decoder = Decoder::new();
    let (mut events, mut at) = (Vec::new(), 0);
    let bytes = input.len();
    for end in cuts.iter().map(|cut| cut % (bytes + 1)).chain([bytes]) {
        while at < end {
            match decoder.decode(&mut input[at..end], rules) {
                Err(failure) => return (events, Err(failure)),
                Ok(decoded) => {
                    at += decoded.consumed;
                    let Some(event) = decoded.event else { break };
                    events.push(into_owned(event));
                    if matches!(events.last(), Some(Event::Close(_))) {
                        return (events, Ok(()));
                    }
                }
            }
        }
    }
    (events, Ok(()))
}

fn into_owned(event: Event<'_>) -> Event<'static> {
    match event {
        Event::Text(text) => Event::Text(text.into_owned().into()),
        Event::Binary(bytes) => Event::Binary(bytes.into_owned().into()),
        Event::Ping(bytes) => Event::Ping(bytes.into_owned().into()),
        Event::Pong(bytes) => Event::Pong(bytes.into_owned().into()),
        Event::Close(code) => Event::Close(code),
    }
}

/// Frames that are valid one by one, in an order that need not be.
fn nearly_frames() -> impl Strategy<Value = Vec<u8>> {
    let first = select(vec![0x00, 0x01, 0x02, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8a, 0x83, 0x91]);
    let payload = prop_oneof![
        vec(any::<u8>(), 0..8),
        "[aé€😀]{0,6}".prop_map(String::into_bytes),
        vec(Just(b'x'), 120..140),
    ];
    let frame = (first, payload, any::<[u8; 4]>()).prop_map(|(first, payload, key)| {
        let mut frame = Vec::new();
        client::binary(&mut frame, &payload, key);
        frame[0] = first;
        frame
    });
    vec(frame, 0..8).prop_map(|frames| frames.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn heads_are_read_alike_however_they_arrive(input in nearly_a_head(), small: bool) {
        let limits = if small {
            HeadLimits { request_line_bytes_max: 30, header_bytes_max: 60, headers_max: 3 }
        } else {
            HeadLimits::default()
        };
        prop_assert_eq!(parse_bytewise(&input, &limits), parse_request(&input, &limits));
    }

    #[test]
    fn arbitrary_bytes_are_a_head_or_an_error(input in vec(any::<u8>(), 0..200)) {
        let limits = HeadLimits::default();
        prop_assert_eq!(parse_bytewise(&input, &limits), parse_request(&input, &limits));
    }

    #[test]
    fn what_follows_a_head_changes_nothing(input in nearly_a_head(), rest: Vec<u8>) {
        let limits = HeadLimits::default();
        if let Ok(Some(request)) = parse_request(&input, &limits) {
            let longer = [&input[..request.head_bytes], &rest].concat();
            prop_assert_eq!(parse_request(&longer, &limits), Ok(Some(request)));
        }
    }

    #[test]
    fn headers_are_those_that_were_sent(
        fields in vec(("[a-zA-Z!#-]{1,9}", "[!-~]([ -~]{0,9}[!-~])?|"), 0..20)
    ) {
        let taken = ["host", "expect"];
        prop_assume!(!fields.iter().any(|(name, _)| taken.contains(&&*name.to_lowercase())));
        let line = |(name, value): &(String, String)| format!("{name}:{value}\r\n");
        let lines: String = fields.iter().map(line).collect();
        let head = format!("GET / HTTP/1.0\r\n{lines}\r\n");
        let request = parse_request(head.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
        let sent = fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        prop_assert!(request.headers.iter().eq(sent));
    }

    #[test]
    fn chunked_bodies_are_read_alike_however_they_arrive(
        pieces in vec(vec(any::<u8>(), 0..40), 0..6),
        damage: Option<(usize, u8)>,
        mut cuts: Vec<usize>,
    ) {
        let mut input = Vec::new();
        for piece in &pieces {
            body::write(&mut input, Framing::Chunked, &[piece]);
        }
        body::write_end(&mut input, Framing::Chunked);
        let bytes = input.len();
        input.extend_from_slice(b"GET");
        if let Some((at, byte)) = damage {
            let at = at % input.len();
            input[at] = byte;
        }
        let whole = decode_chunked(&input, &[]);
        if damage.is_none() {
            prop_assert_eq!(&whole, &(pieces.concat(), bytes, Ok(true)));
        }
        cuts.sort_by_key(|cut| cut % (input.len() + 1));
        prop_assert_eq!(decode_chunked(&input, &cuts), whole);
    }

    #[test]
    fn arbitrary_bytes_are_chunks_or_an_error(input: Vec<u8>, mut cuts: Vec<usize>) {
        cuts.sort_by_key(|cut| cut % (input.len() + 1));
        prop_assert_eq!(decode_chunked(&input, &cuts), decode_chunked(&input, &[]));
    }

    #[test]
    fn frames_are_read_alike_however_they_arrive(input in nearly_frames(), mut cuts: Vec<usize>) {
        let rules = Rules { sender: Sender::Client, message_bytes_max: 200 };
        cuts.sort_by_key(|cut| cut % (input.len() + 1));
        let whole = decode_frames(&input, &[], &rules);
        prop_assert_eq!(decode_frames(&input, &cuts, &rules), whole.clone());
        let every: Vec<_> = (0..input.len()).collect();
        prop_assert_eq!(decode_frames(&input, &every, &rules), whole);
    }

    #[test]
    fn arbitrary_bytes_are_frames_or_a_failure(input: Vec<u8>, server: bool, mut cuts: Vec<usize>) {
        let sender = if server { Sender::Server } else { Sender::Client };
        let rules = Rules { sender, message_bytes_max: 200 };
        cuts.sort_by_key(|cut| cut % (input.len() + 1));
        let whole = decode_frames(&input, &[], &rules);
        prop_assert_eq!(decode_frames(&input, &cuts, &rules), whole);
    }

    #[test]
    fn messages_arrive_as_they_were_sent(
        text: String, length in 0..70_000_usize, key: [u8; 4], cut: usize
    ) {
        let bytes: Vec<_> = (0..length).map(|at| (at * at % 251) as u8).collect();
        let mut input = Vec::new();
        client::text(&mut input, &text, key);
        client::binary(&mut input, &bytes, key);
        let sent = vec![Event::Text(text.as_str().into()), Event::Binary(bytes.as_slice().into())];
        let rules = Rules { sender: Sender::Client, message_bytes_max: 100_000 };
        prop_assert_eq!(decode_frames(&input, &[cut], &rules), (sent.clone(), Ok(())));
        input.clear();
        encode::text(&mut input, &text);
        encode::binary(&mut input, &bytes);
        let rules = Rules { sender: Sender::Server, ..rules };
        prop_assert_eq!(decode_frames(&input, &[cut], &rules), (sent, Ok(())));
    }

    #[test]
    fn decoding_is_the_inverse_of_encoding(text in "[^\0]*") {
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        prop_assert_eq!(target::decode(&encoded, Plus::Literal).unwrap(), text.as_str());
        let target = format!("/s?user={encoded}&b");
        prop_assert_eq!(target::query_value(&target, "user").unwrap().unwrap(), text);
    }

    #[test]
    fn arbitrary_targets_decode_or_are_refused(text: String) {
        for plus in [Plus::Literal, Plus::Space] {
            if let Ok(decoded) = target::decode(&text, plus) {
                prop_assert!(!decoded.contains('\0') && decoded.len() <= text.len());
            }
        }
    }

    #[test]
    fn escaped_text_is_one_line_of_json(text: String) {
        let mut out = Vec::new();
        json_escape(&mut out, &text);
        prop_assert!(out.iter().all(|&byte| byte >= 0x20));
        prop_assert!(out.starts_with(b"\"") && out.ends_with(b"\"") && out.len() >= 2);
    }
}
