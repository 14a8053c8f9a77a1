//! `protocol/http-requests.json`, `websocket.json` and `websocket-deflate.json` over real sockets:
//! each case in one write, and in writes of one byte. `halley-wire`'s suite walks the same tables
//! through the parsers.

#[path = "../../../halley-wire/tests/tables/table.rs"]
mod table;

use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use halley_link::{FLAG_END, FLAG_EXPECT, Frame};
use serde_json::Value as Json;
use table::{Seen, bytes, cases, frames, says, text, texts};

use crate::brain::{self, Brain, Edge};
use crate::client::{Client, header};
use crate::websocket::{UPGRADE, frame};

/// Of the table's headers this one travels on (link.md 8.2).
const READ_BY_THE_BRAIN: &str = "host";
const REQUESTS: &str = include_str!("../../../../protocol/http-requests.json");
const FRAMES: &str = include_str!("../../../../protocol/websocket.json");
const COMPRESSED: &str = include_str!("../../../../protocol/websocket-deflate.json");
/// Longer inputs go in pieces of [`PIECE_BYTES`].
const BYTEWISE_BYTES_MAX: usize = 1_000;
const PIECE_BYTES: usize = 499;
/// How long nothing comes where nothing is to come.
const SILENCE_MS: u64 = 30;

/// What the brain has seen, in order; it answers each request when it is whole, and opens each
/// session.
type SeenByBrain = Arc<Mutex<Vec<(u64, Seen)>>>;

fn answer_all(mut brain: Brain) -> SeenByBrain {
    let all = SeenByBrain::default();
    let shared = Arc::clone(&all);
    std::thread::spawn(move || {
        loop {
            let (conn, whole) = match brain.next() {
                brain::Seen::Request(request) => {
                    let (conn, flags) = (request.conn, request.flags);
                    shared.lock().unwrap().push((conn, seen(request)));
                    if flags & FLAG_EXPECT != 0 {
                        brain.send(&Frame::RequestCredit { conn, bytes: 65_536 });
                    }
                    (conn, flags & FLAG_END != 0)
                }
                brain::Seen::Body(conn, flags, bytes) => {
                    let mut all = shared.lock().unwrap();
                    let (_, seen) = all.iter_mut().rfind(|(of, _)| *of == conn).unwrap();
                    seen.body.extend(bytes);
                    seen.whole = flags & FLAG_END != 0;
                    (conn, seen.whole)
                }
                brain::Seen::Open(sessions) => {
                    sessions.iter().for_each(|(conn, ..)| brain.opened(*conn, 1));
                    continue;
                }
                brain::Seen::End => return,
                _ => continue,
            };
            if whole {
                brain.respond(conn, 200, "ok");
            }
        }
    });
    all
}

fn seen(request: brain::Request) -> Seen {
    // The edge's own word of a body that follows (link.md 8.8).
    let fields = request.headers.into_iter().filter(|(name, _)| name != "halley-length");
    let mut fields: Vec<_> = fields.map(|(name, value)| (name, value.into_bytes())).collect();
    fields.sort();
    let line = format!("{} {}", request.method, request.target);
    Seen { line, body: request.body, whole: request.flags & FLAG_END != 0, fields: Some(fields) }
}

/// Writes all, or as much as is still wanted by who has said no already.
fn write(client: &mut Client, input: &[u8], split: bool) {
    use std::io::Write;
    client.socket.set_nodelay(true).unwrap();
    let step = match (split, input.len() > BYTEWISE_BYTES_MAX) {
        (false, _) => input.len().max(1),
        (true, true) => PIECE_BYTES,
        (true, false) => 1,
    };
    for piece in input.chunks(step) {
        if client.socket.write_all(piece).is_err() {
            return;
        }
        std::thread::yield_now();
    }
}

/// The status of the next answer, and its code if it is the edge's error.
fn answer(client: &mut Client, to_head: bool) -> String {
    let head = client.head();
    let status = &head[9..12];
    if to_head || status == "100" || status == "101" {
        return status.into();
    }
    let length = header(&head, "content-length").map_or(0, |n| n.parse().unwrap());
    let body = String::from_utf8(client.bytes(length)).unwrap();
    let code = body.split(r#""code":""#).nth(1).and_then(|rest| rest.split('"').next());
    code.map_or(status.into(), |code| format!("{status} {code}"))
}

/// Asks for something by a connection that is there for this, so that what went to the brain
/// before it has arrived.
fn in_step(client: &mut Client) {
    client.ask("GET", "/step", "");
    assert_eq!(client.response().status, 200);
}

struct Walk {
    edge: Edge,
    seen: SeenByBrain,
    step: Client,
    /// Headers with which WebSockets are opened.
    lines: String,
}

impl Walk {
    fn start() -> Walk {
        Walk::with("off", "")
    }

    fn with(compression: &str, offers: &str) -> Walk {
        // However long a case takes, nobody is asked whether it is there.
        let (edge, brain) = Edge::start(&[
            ("stream_heartbeat_ms", "600000"),
            ("websocket_compression", compression),
        ]);
        let (step, lines) = (edge.api(), format!("{UPGRADE}{offers}"));
        Walk { seen: answer_all(brain), step, edge, lines }
    }

    /// What the brain has seen since the last time.
    fn seen_since(&mut self, expected: &[Seen]) -> Vec<Seen> {
        in_step(&mut self.step);
        let all = std::mem::take(&mut *self.seen.lock().unwrap());
        let others = all.into_iter().map(|(_, seen)| seen).filter(|seen| seen.line != "GET /step");
        let like = |(i, seen): (usize, Seen)| match expected.get(i) {
            Some(expected) => seen.like(expected),
            None => seen,
        };
        others.enumerate().map(like).collect()
    }

    fn request(&mut self, case: &Json, split: bool) {
        let name = format!("{}{}", text(case, "name"), if split { ", byte by byte" } else { "" });
        let public = text(case, "listener") == "public";
        let mut client = if public { self.edge.public() } else { self.edge.api() };
        write(&mut client, &bytes(&case["bytes"]), split);
        let mut expected = table::seen(case);
        expected.iter_mut().filter_map(|seen| seen.fields.as_mut()).for_each(|fields| {
            fields.retain(|(name, _)| name == READ_BY_THE_BRAIN);
        });
        for (i, expected_answer) in texts(&case["answers"]).iter().enumerate() {
            let to_head = expected.get(i).is_some_and(|seen| seen.line.starts_with("HEAD "));
            assert_eq!(answer(&mut client, to_head), *expected_answer, "{name}");
        }
        match text(case, "then") {
            "closed" => client.expect_end(),
            "waits" => {
                client.expect_silence(SILENCE_MS);
                // Its frames may come in any number.
                sleep(Duration::from_millis(2));
            }
            _ => {
                let path = if public { "/v1/stream" } else { "/next" };
                client.ask("GET", path, "");
                let status = client.response().status;
                assert_eq!(status, if public { 400 } else { 200 }, "{name}");
                if !public {
                    let line = "GET /next".into();
                    expected.push(Seen { line, body: Vec::new(), whole: true, fields: None });
                }
            }
        }
        assert_eq!(self.seen_since(&expected), expected, "{name}");
    }

    /// A WebSocket that is open.
    fn websocket(&self) -> Client {
        let mut client = self.edge.public();
        client.ask("GET", "/v1/ws?user=u", &self.lines);
        assert!(client.head().starts_with("HTTP/1.1 101 "));
        client
    }

    fn frames(&mut self, case: &Json, split: bool) {
        let name = format!("{}{}", text(case, "name"), if split { ", byte by byte" } else { "" });
        let mut client = self.websocket();
        write(&mut client, &frames(&case["sends"]), split);
        for (opcode, payload) in says(case) {
            match opcode {
                1 | 2 => {
                    let (first, answer) = frame(&mut client);
                    let answer = String::from_utf8(answer).unwrap();
                    // Else it is not this table's what is said to a message.
                    let code = case["code"].as_str();
                    let is_said = code.is_none_or(|code| answer.contains(&format!("\"{code}\"")));
                    assert!(first == 0x81 && is_said, "{name}: {answer}");
                }
                9 => assert_eq!(frame(&mut client), (0x8a, payload), "{name}"),
                8 => assert_eq!(frame(&mut client), (0x88, payload), "{name}"),
                _ => {}
            }
        }
        if let Some(code) = case["fails"].as_u64() {
            let (first, payload) = frame(&mut client);
            assert_eq!((first, &payload[..2]), (0x88, &(code as u16).to_be_bytes()[..]), "{name}");
        }
        match text(case, "then") {
            "closed" => client.expect_end(),
            "waits" => client.expect_silence(SILENCE_MS),
            _ => {
                client.send([0x89, 0x84, 0, 0, 0, 0, b'n', b'e', b'x', b't']);
                assert_eq!(frame(&mut client), (0x8a, b"next".to_vec()), "{name}");
            }
        }
    }

    fn handshake(&mut self, case: &Json, split: bool) {
        let name = format!("{}{}", text(case, "name"), if split { ", byte by byte" } else { "" });
        let mut client = self.edge.public();
        write(&mut client, &bytes(&case["request"]), split);
        let expected = text(case, "answer");
        if expected == "101" {
            let head = client.head();
            assert!(head.starts_with("HTTP/1.1 101 "), "{name}: {head}");
            assert_eq!(header(&head, "sec-websocket-accept"), case["accept"].as_str(), "{name}");
            let agreed = ["sec-websocket-protocol", "sec-websocket-extensions"];
            assert!(agreed.iter().all(|other| header(&head, other).is_none()), "{name}: {head}");
        } else {
            let to_head = text(case, "request").starts_with("HEAD ");
            assert_eq!(answer(&mut client, to_head), expected, "{name}");
        }
        match text(case, "then") {
            "closed" => client.expect_end(),
            "frames" => {
                client.send([0x88, 0x80, 0, 0, 0, 0]);
                assert_eq!(frame(&mut client).0, 0x88, "{name}");
            }
            _ => {
                client.ask("GET", "/v1/stream", "");
                assert_eq!(client.response().status, 400, "{name}");
            }
        }
    }
}

/// RFC 9112 and 9110, as each case quotes them.
#[test]
fn requests_are_answered_as_the_table_says() {
    let mut walk = Walk::start();
    let cases = cases(REQUESTS);
    for split in [false, true] {
        let fits = |case: &&Json| !split || case["one_write"].as_bool() != Some(true);
        cases.iter().filter(fits).for_each(|case| walk.request(case, split));
    }
}

/// RFC 6455, and 8259 of operations, as each case quotes it.
#[test]
fn frames_are_answered_as_the_table_says() {
    let mut walk = Walk::start();
    for case in cases(FRAMES) {
        for split in [false, true] {
            match case.get("sends") {
                Some(_) => walk.frames(&case, split),
                None => walk.handshake(&case, split),
            }
        }
    }
}

/// RFC 7692, as each case quotes it.
#[test]
fn compressed_frames_are_answered_as_the_table_says() {
    let mut walk = Walk::with("on", "Sec-WebSocket-Extensions: permessage-deflate\r\n");
    for case in cases(COMPRESSED) {
        for split in [false, true] {
            walk.frames(&case, split);
        }
    }
}
