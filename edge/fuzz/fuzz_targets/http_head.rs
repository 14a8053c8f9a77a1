//! Request heads: no panic, no dependence on the cuts, limits kept, an accepted head is coherent
//! and the same that the second reader accepts.

#![no_main]

use halley_fuzz::second::{self, Verdict};
use halley_wire::HttpError;
use halley_wire::http1::head::{BodyFraming, HeadLimits, Request, Version, parse_request};
use halley_wire::http1::response::{self, ResponseOptions};
use halley_wire::target;
use halley_wire::websocket::handshake;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (cuts, input) = halley_fuzz::cuts(data);
    let small = data.len() % 2 == 0;
    let limits = if small {
        HeadLimits { request_line_bytes_max: 40, header_bytes_max: 100, headers_max: 4 }
    } else {
        HeadLimits::default()
    };
    let whole = parse_request(input, &limits);
    let first_said = cuts
        .iter()
        .map(|&end| parse_request(&input[..end], &limits))
        .find(|said| !matches!(said, Ok(None)))
        .unwrap_or(Ok(None));
    assert_eq!(first_said, whole);
    second_reader_agrees(&whole, input, &limits);
    match whole {
        Ok(None) => assert!(input.len() < limits.head_bytes_max()),
        Ok(Some(request)) => coherent(&request, input, &limits),
        Err(error) => {
            assert!((400..600).contains(&error.status));
            let mut out = Vec::new();
            response::http_error(&mut out, &error, &ResponseOptions::default());
        }
    }
});

fn second_reader_agrees(
    said: &Result<Option<Request<'_>>, HttpError>,
    input: &[u8],
    limits: &HeadLimits,
) {
    let second = second::head(input, &halley_fuzz::second_limits(limits));
    match (said, second) {
        (Ok(Some(request)), Verdict::Is(head)) => {
            assert_eq!(request.method.as_bytes(), head.method);
            assert_eq!(target::with_path(request.target).as_bytes(), head.target);
            assert_eq!(request.head_bytes, head.end);
            assert_eq!(request.keep_alive, head.keep_alive);
            let body = match request.body {
                BodyFraming::None => second::Body::None,
                BodyFraming::Length(length) => second::Body::Length(length),
                BodyFraming::Chunked => second::Body::Chunked,
            };
            assert_eq!(body, head.body);
            let fields = request.headers.iter();
            let fields = fields.map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()));
            assert_eq!(fields.collect::<Vec<_>>(), head.fields);
        }
        // What is wrong may be seen before the head's end.
        (Ok(None) | Err(_), Verdict::Unfinished) | (Err(_), Verdict::Refused) => {}
        (first, second) => panic!("{first:?} and {second:?}"),
    }
}

fn coherent(request: &Request<'_>, input: &[u8], limits: &HeadLimits) {
    assert!(request.head_bytes <= input.len().min(limits.head_bytes_max()));
    assert!(input[..request.head_bytes].ends_with(b"\r\n\r\n"));
    assert_eq!(parse_request(&input[..request.head_bytes], limits), Ok(Some(*request)));
    assert!(request.target.starts_with(['/', '?']) || request.target == "*");
    assert!(request.target.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(request.headers.iter().count() <= limits.headers_max);
    for (name, value) in request.headers {
        assert!(!name.is_empty() && request.header(name).is_some());
        assert!(!value.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t'));
    }
    let lengths = request.headers.iter().filter(|(name, _)| is(name, "content-length")).count();
    let codings = request.headers.iter().filter(|(name, _)| is(name, "transfer-encoding")).count();
    match request.body {
        BodyFraming::None => assert!(lengths <= 1 && codings == 0),
        BodyFraming::Length(length) => assert!(length > 0 && lengths == 1 && codings == 0),
        BodyFraming::Chunked => {
            assert!(lengths == 0 && codings == 1 && request.version == Version::Http11);
        }
    }
    assert!(request.headers.end_to_end().all(|(name, _)| !is(name, "content-length")));
    let _ = handshake::accept(request);
    let _ = target::query_value(request.target, "user");
}

fn is(name: &str, other: &str) -> bool {
    name.eq_ignore_ascii_case(other)
}
