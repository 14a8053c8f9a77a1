//! `protocol/http-requests.json`.

use halley_wire::http1::head::HeadLimits;
use halley_wire::websocket::{Rules, Sender};
use serde_json::Value as Json;

use crate::connection::{Connection, Said};
use crate::second::{self, Verdict};
use crate::steps;
use crate::table::{Seen, bytes, cases, seen, text, texts};

const TABLE: &str = include_str!("../../../../protocol/http-requests.json");
const RULES: Rules = Rules { sender: Sender::Client, message_bytes_max: 65_536 };

/// The cases that are the parser's; the others are for the edge alone.
fn parsers_cases() -> Vec<Json> {
    cases(TABLE).into_iter().filter(|case| case["edge_only"].as_bool() != Some(true)).collect()
}

fn walk(input: &[u8], step: usize) -> Connection {
    let mut connection = Connection::new(HeadLimits::default(), RULES);
    input.chunks(step).for_each(|piece| connection.read(piece));
    connection
}

/// What a connection said, as the table says it: requests, errors, and what it waits for.
fn result(connection: &Connection, expected: &[Seen]) -> (Vec<Seen>, Vec<String>, &'static str) {
    let (mut requests, mut errors) = (Vec::new(), Vec::new());
    for said in &connection.said {
        match said {
            Said::Refused(error) => errors.push(format!("{} {}", error.status, error.code)),
            Said::Request(seen) => {
                let ours = |name: &str| name.starts_with("halley-");
                let fields = seen.fields.iter();
                let fields = fields.map(|(name, value)| (name.to_lowercase(), value.clone()));
                let mut fields: Vec<_> = fields.filter(|(name, _)| !ours(name)).collect();
                fields.sort();
                let (line, body) = (seen.line.clone(), seen.body.clone());
                let seen = Seen { line, body, whole: seen.whole, fields: Some(fields) };
                requests.push(match expected.get(requests.len()) {
                    Some(expected) => seen.like(expected),
                    None => seen,
                });
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(connection.kept_bytes() < HeadLimits::default().head_bytes_max());
    (requests, errors, connection.then())
}

#[test]
fn each_case_is_read_as_the_table_says_however_it_is_cut() {
    for case in parsers_cases() {
        let name = text(&case, "name");
        let (input, expected) = (bytes(&case["bytes"]), seen(&case));
        let answers = texts(&case["answers"]);
        let errors: Vec<String> = answers.into_iter().filter(|answer| answer.len() > 3).collect();
        for step in steps(&input) {
            let connection = walk(&input, step);
            let (seen, said, then) = result(&connection, &expected);
            assert_eq!(seen, expected, "{name}, {step}");
            assert_eq!((said, then), (errors.clone(), text(&case, "then")), "{name}, {step}");
        }
    }
}

/// What the first reader accepts, the second does, and no more.
#[test]
fn the_second_reader_accepts_the_same_heads_and_chunks() {
    let HeadLimits { request_line_bytes_max, header_bytes_max, headers_max } =
        HeadLimits::default();
    let limits = second::Limits { request_line_bytes_max, header_bytes_max, headers_max };
    let mut accepted = 0;
    for case in parsers_cases() {
        let (input, expected) = (bytes(&case["bytes"]), seen(&case));
        match second::head(&input, &limits) {
            Verdict::Is(head) => {
                accepted += 1;
                let line = [&head.method[..], b" ", &head.target].concat();
                assert_eq!(line, expected[0].line.as_bytes(), "{case}");
                assert!(!head.fields.is_empty() || !head.keep_alive);
                let body = match head.body {
                    second::Body::None => Some(Vec::new()),
                    second::Body::Length(length) => usize::try_from(length)
                        .ok()
                        .and_then(|length| Some(input[head.end..].get(..length)?.to_vec())),
                    second::Body::Chunked => match second::chunked(&input[head.end..]) {
                        Verdict::Is((body, _)) => Some(body),
                        Verdict::Unfinished | Verdict::Refused => None,
                    },
                };
                assert_eq!(body.is_some(), expected[0].whole, "{case}");
                assert!(body.is_none_or(|body| body == expected[0].body), "{case}");
            }
            Verdict::Unfinished | Verdict::Refused => assert!(expected.is_empty(), "{case}"),
        }
    }
    assert!(accepted > 100, "{accepted}");
}

/// Each case says what it is called, what it proves, and what is to come of it.
#[test]
fn the_table_is_whole() {
    let cases = cases(TABLE);
    let mut names: Vec<&str> = cases.iter().map(|case| text(case, "name")).collect();
    for case in &cases {
        assert!(text(case, "quote").len() > 10 && text(case, "rfc").starts_with("911"), "{case}");
        assert!(matches!(text(case, "then"), "open" | "closed" | "waits"), "{case}");
    }
    assert!(cases.len() >= 120);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases.len(), "a name is there twice");
}
