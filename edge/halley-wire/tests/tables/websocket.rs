//! `protocol/websocket.json`.

use halley_wire::http1::head::{HeadLimits, parse_request};
use halley_wire::http1::response::ResponseOptions;
use halley_wire::websocket::{Event, Rules, Sender, handshake};
use serde_json::Value as Json;

use crate::connection::{Connection, Said};
use crate::second::frames;
use crate::steps;
use crate::table::{self, bytes, cases, says, text};

const TABLE: &str = include_str!("../../../../protocol/websocket.json");
const MESSAGE_BYTES_MAX: usize = 65_536;
const RULES: Rules = Rules { sender: Sender::Client, message_bytes_max: MESSAGE_BYTES_MAX };

/// A request that opens a WebSocket; `lines` are further headers, each with its CR LF.
pub fn upgrade(lines: &str) -> Vec<u8> {
    let usual = "GET /v1/ws?user=u HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    format!("{usual}{lines}\r\n").into_bytes()
}

/// The cases about frames, which have `sends`, or those about the handshake.
fn with(what: &str) -> Vec<Json> {
    cases(TABLE).into_iter().filter(|case| case.get(what).is_some()).collect()
}

/// An event as the table has it.
fn seen(event: &Event<'_>) -> (u8, Vec<u8>) {
    match event {
        Event::Text(text) => (1, text.as_bytes().to_vec()),
        Event::Binary(bytes) => (2, bytes.to_vec()),
        Event::Ping(bytes) => (9, bytes.to_vec()),
        Event::Pong(bytes) => (10, bytes.to_vec()),
        Event::Close(code) => (8, code.map(|code| code.to_be_bytes().to_vec()).unwrap_or_default()),
    }
}

/// What `case` sends behind this upgrade is read as it says: whole, and in pieces.
pub fn is_read_as_said(case: &Json, upgrade: &[u8], rules: Rules) {
    let name = text(case, "name");
    let input = table::frames(&case["sends"]);
    for step in steps(&input) {
        let mut connection = Connection::new(HeadLimits::default(), rules);
        connection.read(upgrade);
        input.chunks(step).for_each(|piece| connection.read(piece));
        let (mut events, mut failure) = (Vec::new(), None);
        for said in &connection.said[1..] {
            match said {
                Said::Event(event) => events.push(seen(event)),
                Said::Failed(code) => failure = Some(u64::from(*code)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(connection.said[0], Said::Upgraded);
        assert!(events == says(case), "{name}, {step}");
        assert_eq!(failure, case["fails"].as_u64(), "{name}, {step}");
        assert_eq!(connection.then(), text(case, "then"), "{name}, {step}");
    }
}

#[test]
fn frames_are_read_as_the_table_says_however_they_are_cut() {
    for case in with("sends") {
        is_read_as_said(&case, &upgrade(""), RULES);
    }
}

/// What one of the two readers finds in whole frames, the other does.
#[test]
fn the_second_reader_finds_the_same() {
    for case in with("sends") {
        let input = table::frames(&case["sends"]);
        let read = frames::frames(&input, true, MESSAGE_BYTES_MAX);
        let known = |event: frames::Event| match event.opcode {
            8 => (8, event.payload[..event.payload.len().min(2)].to_vec()),
            opcode => (opcode, event.payload),
        };
        let events: Vec<_> = read.events.into_iter().map(known).collect();
        assert!(events == says(&case), "{case}");
        let (failure, then) = (read.failure.map(u64::from), text(&case, "then"));
        // It waits for a whole frame where the first reader has seen enough.
        assert!(failure == case["fails"].as_u64() || failure.is_none() && !read.finished, "{case}");
        assert_eq!(
            read.finished,
            failure.is_none() && then != "waits" && case.get("fails").is_none()
        );
    }
}

#[test]
fn handshakes_are_answered_as_the_table_says() {
    let ours = |case: &Json| case["edge_only"].as_bool() != Some(true);
    for case in with("request").into_iter().filter(ours) {
        let input = bytes(&case["request"]);
        let parsed = parse_request(&input, &HeadLimits::default());
        let answer = parsed.and_then(|request| {
            let request = request.unwrap();
            Ok((handshake::accept(&request)?, ResponseOptions::of(&request)))
        });
        let expected = text(&case, "answer");
        match answer {
            Ok((key, options)) => {
                let mut out = Vec::new();
                handshake::response(&mut out, &key, &options);
                let head = String::from_utf8(out).unwrap();
                let accept = format!("\r\nSec-WebSocket-Accept: {}\r\n", text(&case, "accept"));
                assert!(expected == "101" && head.contains(&accept), "{case}\n{head}");
                assert!(!head.contains("Protocol:") && !head.contains("Extensions:"), "{head}");
            }
            Err(error) => {
                let said = format!("{} {}", error.status, error.code);
                // HEAD's answer has no body to say a code in.
                assert!(said == expected || said.starts_with(expected), "{said}: {case}");
            }
        }
    }
}

/// Each case says what it is called, what it proves, and what is to come of it.
#[test]
fn the_table_is_whole() {
    let cases = cases(TABLE);
    let mut names: Vec<_> =
        cases.iter().map(|case| (text(case, "part"), text(case, "name"))).collect();
    for case in &cases {
        let rfc = text(case, "rfc");
        assert!(rfc.starts_with("6455 ") || rfc.starts_with("8259 "), "{case}");
        assert!(text(case, "quote").len() > 10, "{case}");
        assert!(matches!(text(case, "then"), "open" | "closed" | "waits" | "frames"), "{case}");
    }
    assert!(cases.len() >= 150);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases.len(), "a name is there twice");
}
