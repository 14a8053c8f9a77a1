//! http.md 18, link.md 12.7: operations of WebSocket clients, and their answers.

use std::time::{Duration, Instant};

use halley_link::Frame::OperationAnswer;
use halley_link::{CloseReason, FLAG_END, FLAG_ERROR};
use halley_wire::websocket::client as frames;

use crate::brain::{Edge, Request, Seen, WINDOW};
use crate::client::Client;
use crate::tokens::expect_close as closed;
use crate::websocket::{KEY, expect_close, expect_text, frame, open};

pub const ALL: &str = concat!(
    r#"{"publish":["*"],"to":["*"],"follow":["*"],"subscribe":["*"],"#,
    r#""presence":["*"],"history":["*"],"state":["*"]}"#
);

pub fn say(client: &mut Client, text: &str) {
    let mut bytes = Vec::new();
    frames::text(&mut bytes, text, KEY);
    client.send(&bytes);
}

pub fn heard(client: &mut Client) -> String {
    let (first, payload) = frame(client);
    assert_eq!(first, 0x81, "{payload:?}");
    String::from_utf8(payload).unwrap()
}

/// The `code` of an error message, and the message.
pub fn refused(client: &mut Client) -> (String, String) {
    let text = heard(client);
    let code = text.split("\"code\":\"").nth(1).and_then(|rest| rest.split('"').next());
    (code.unwrap_or_default().to_owned(), text)
}

pub fn header<'r>(request: &'r Request, name: &str) -> &'r str {
    let found = request.headers.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| value.as_str()).unwrap()
}

/// 18.2, 18.3, and link.md 12.7: "A WebSocket's operations travel as OPERATION (20), to a brain of
/// an earlier build as REQUEST (20.7)": both say the same, and so does the client's answer.
#[test]
fn operations_and_their_answers() {
    for frames in ["on", "off"] {
        operations_travel(frames);
    }
}

fn operations_travel(frames: &str) {
    let (edge, mut brain) = Edge::start(&[("operation_frames", frames)]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    let publish = r#"{"op":"publish","ref":7,"subject":"room/7","data":{"x":null},"id":"a"}"#;
    let body = r#"{"subject":"room/7","data":{"x":null},"id":"a"}"#;
    for (said, method, target, body, status, answer, expected) in [
        (
            publish,
            "POST",
            "/v1/me/events",
            body,
            200,
            "{\"id\":\"me\"}\n",
            r#"{"ref":7,"ok":{"id":"me"}}"#,
        ),
        (
            r#"{"op":"follow","subject":"room/7","ref":"f"}"#,
            "PUT",
            "/v1/me/follows/room%2F7",
            "",
            200,
            r#"{"added":1,"already":0}"#,
            r#"{"ref":"f","ok":{"added":1,"already":0}}"#,
        ),
        (
            r#"{"op":"unfollow","subject":"é"}"#,
            "DELETE",
            "/v1/me/follows/%C3%A9",
            "",
            403,
            r#"{"error":{"code":"right_missing","message":"no"}}"#,
            r#"{"error":{"code":"right_missing","message":"no"}}"#,
        ),
    ] {
        say(&mut client, said);
        let request = brain.request();
        assert_eq!(request.number.is_some(), frames == "on");
        assert_eq!((request.conn, request.listener, request.flags), (conn, 1, FLAG_END));
        assert_eq!((request.method.as_str(), request.target.as_str()), (method, target));
        assert_eq!(String::from_utf8_lossy(&request.body), body);
        assert_eq!(
            (header(&request, "halley-user"), header(&request, "halley-rights")),
            ("ann", ALL)
        );
        assert_eq!(header(&request, "content-type"), "application/json");
        brain.respond(conn, status, answer);
        expect_text(&mut client, expected);
    }
    brain.stat_becomes("operations_total", 3);
    brain.stat_becomes("requests_in_flight", 0);
    let event = brain.deliver("", "1", &[conn]);
    expect_text(&mut client, &event);
}

/// Link.md 20.7: "a subscription to the presence of `*` has the header `halley-view` (19.3)."
#[test]
fn a_brain_of_an_earlier_build_hears_that_views_are_kept() {
    let (edge, mut brain) = Edge::start(&[("operation_frames", "off")]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    for (subject, id, view) in [("*", "%01%2A", Some("kept")), ("bob", "%01bob", None)] {
        say(&mut client, &format!(r#"{{"op":"subscribe","presence":"{subject}"}}"#));
        let request = brain.request();
        assert_eq!(request.target, format!("/v1/me/subscriptions/{id}"));
        let found = request.headers.iter().find(|(name, _)| name == "halley-view");
        assert_eq!(found.map(|(_, value)| value.as_str()), view);
        let error = r#"{"error":{"code":"right_missing","message":"no"}}"#;
        brain.respond(conn, 403, error);
        expect_text(&mut client, error);
    }
}

/// 12.2 and 18.4: a client that doesn't take what waits for it is disconnected, also by the answer
/// to an operation; what waits behind that is never asked for in its place.
#[test]
fn an_answer_that_is_too_much() {
    let (edge, mut brain) = Edge::start(&[("outbox_bytes_max", "65536")]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    say(&mut client, r#"{"op":"follow","subject":"a","ref":1}"#);
    say(&mut client, r#"{"op":"follow","subject":"b","ref":2}"#);
    brain.request();
    // The client reads no more: events fill the kernel's buffers, then the outbox, nearly.
    let data = format!("\"{}\"", "x".repeat(1_000));
    let full = (0..20_000).any(|_| {
        brain.deliver("", &data, &[conn]);
        matches!(brain.inspect(1, conn), Seen::Inspected(.., pieces, _) if pieces >= 58)
    });
    assert!(full);
    brain.respond(conn, 200, &format!("{{\"id\":\"{}\"}}", "x".repeat(16_000)));
    match brain.next() {
        Seen::Close(closed) => assert_eq!((closed.len(), closed[0].0), (1, conn)),
        other => panic!("not CLOSE: {other:?}"),
    }
    assert_eq!(brain.next_within(300), None);
    brain.stat_becomes("requests_in_flight", 0);
    // The slot's next one is itself.
    let (mut next, conn) = open(&edge, &mut brain, "bob");
    say(&mut next, r#"{"op":"follow","subject":"c","ref":3}"#);
    let request = brain.request();
    assert_eq!((request.conn, header(&request, "halley-user")), (conn, "bob"));
}

/// Link.md 20.5: an answer may come in parts, and events between; 20.6: "An answer whose `number`
/// isn't that of the session's operation is skipped".
#[test]
fn answers_in_parts() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    say(&mut client, r#"{"op":"follow","subject":"a","ref":1}"#);
    let number = brain.request().number.unwrap();
    let part = |number, flags, json: &'static [u8]| OperationAnswer { conn, number, flags, json };
    brain.send(&part(number.wrapping_sub(1), FLAG_END, b"{\"another\":1}"));
    brain.send(&part(number, FLAG_ERROR, b"{\"code\":\"overloaded\","));
    let event = brain.deliver("", "1", &[conn]);
    brain.send(&part(number.wrapping_add(1), FLAG_END, b"}"));
    brain.send(&part(number, FLAG_ERROR | FLAG_END, "\"message\":\"später\"}".as_bytes()));
    expect_text(&mut client, &event);
    let error = r#"{"code":"overloaded","message":"später"}"#;
    expect_text(&mut client, &format!("{{\"ref\":1,\"error\":{error}}}"));
    // It has been answered: a second time it isn't.
    brain.send(&part(number, FLAG_END, b"{}"));
    say(&mut client, r#"{"op":"follow","subject":"a","ref":2}"#);
    let second = brain.request().number.unwrap();
    assert_ne!(number, second);
    brain.send(&part(number, FLAG_END, b"{\"late\":1}"));
    brain.send(&part(second, FLAG_END, b"{\"added\":1}"));
    expect_text(&mut client, r#"{"ref":2,"ok":{"added":1}}"#);
    // 20.5: what can't be shown.
    let long = format!("\"{}\"", "x".repeat(524_288));
    let parts: Vec<_> = long.as_bytes().chunks(200_000).collect();
    for (n, parts) in [(3, vec![&b"\"\xff\""[..]]), (4, parts)] {
        say(&mut client, &format!(r#"{{"op":"follow","subject":"a","ref":{n}}}"#));
        let number = brain.request().number.unwrap();
        for (i, json) in parts.iter().enumerate() {
            let flags = if i + 1 == parts.len() { FLAG_END } else { 0 };
            brain.send(&OperationAnswer { conn, number, flags, json });
        }
        let (code, text) = refused(&mut client);
        assert_eq!(code, "bad_answer");
        assert!(text.starts_with(&format!("{{\"ref\":{n},")), "{text}");
    }
    brain.stat_becomes("requests_in_flight", 0);
}

/// 18.3: "with `retry_after_s` in it where HTTP has `Retry-After`"; an answer may come in parts,
/// and events between. Of a brain of an earlier build, by RESPONSE (link.md 20.7).
#[test]
fn responses_as_they_come() {
    let (edge, mut brain) = Edge::start(&[("operation_frames", "off")]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    say(&mut client, r#"{"op":"follow","subject":"a","ref":1}"#);
    brain.request();
    let body = r#"{"error":{"code":"overloaded","message":"later"}}"#;
    let (one, two) = body.as_bytes().split_at(10);
    brain.response(conn, 503, 0, body.len() as u64, &[("retry-after", "2")], one);
    let event = brain.deliver("", "1", &[conn]);
    brain.send(&halley_link::Frame::ResponseBody { conn, flags: FLAG_END, body: two });
    expect_text(&mut client, &event);
    let error = r#"{"code":"overloaded","message":"later","retry_after_s":2}"#;
    expect_text(&mut client, &format!("{{\"ref\":1,\"error\":{error}}}"));
    say(&mut client, r#"{"op":"follow","subject":"a","ref":2}"#);
    brain.request();
    let long = format!("\"{}\"", "x".repeat(524_288));
    let parts: Vec<_> = long.as_bytes().chunks(200_000).collect();
    brain.response(conn, 200, 0, long.len() as u64, &[], parts[0]);
    for (n, body) in parts.iter().enumerate().skip(1) {
        let flags = if n + 1 == parts.len() { FLAG_END } else { 0 };
        brain.send(&halley_link::Frame::ResponseBody { conn, flags, body });
    }
    assert_eq!(refused(&mut client).0, "bad_answer");
}

/// 18.1, 18.2: what isn't understood is refused, "the connection stays", the brain hears nothing.
#[test]
fn what_is_not_understood() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    for (said, code) in [
        ("hello?", "bad_json"),
        (r#"["follow","a"]"#, "bad_json"),
        (r#"{"op":"shout"}"#, "bad_operation"),
        (r#"{"op":"publish","subject":"a"}"#, "bad_operation"),
        (r#"{"op":"follow","subject":7}"#, "bad_subject"),
        (r#"{"op":"follow","subject":"a","ref":[]}"#, "bad_ref"),
    ] {
        say(&mut client, said);
        assert_eq!(refused(&mut client).0, code, "{said}");
    }
    let mut bytes = Vec::new();
    frames::text(&mut bytes, "{}", KEY);
    bytes[0] = 0x82;
    client.send(&bytes);
    assert_eq!(refused(&mut client).0, "bad_json", "binary");
    let event = brain.deliver("", "1", &[conn]);
    expect_text(&mut client, &event);
    brain.stat_becomes("operations_refused_total", 7);
    brain.stat_becomes("messages_total", 7);
}

/// 18.4: "The brain has one operation of a session at a time; the others wait and are passed on in
/// their order. `operations_waiting_max` wait at most".
#[test]
fn one_at_a_time() {
    let (edge, mut brain) = Edge::start(&[("operations_waiting_max", "3")]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    let (mut other, other_conn) = open(&edge, &mut brain, "bob");
    for n in 0..6 {
        say(&mut client, &format!(r#"{{"op":"follow","subject":"s{n}","ref":{n}}}"#));
    }
    for n in [4, 5] {
        let (code, text) = refused(&mut client);
        assert_eq!(code, "operations_waiting_max");
        assert!(text.starts_with(&format!("{{\"ref\":{n},")), "{text}");
    }
    assert_eq!(brain.request().target, "/v1/me/follows/s0");
    brain.expect_silence(50);
    // Who waits keeps nobody else waiting.
    say(&mut other, r#"{"op":"follow","subject":"x"}"#);
    assert_eq!(brain.request().conn, other_conn);
    for n in 0..4 {
        brain.respond(conn, 200, "{}");
        expect_text(&mut client, &format!("{{\"ref\":{n},\"ok\":{{}}}}"));
        if n < 3 {
            assert_eq!(brain.request().target, format!("/v1/me/follows/s{}", n + 1));
        }
    }
    brain.expect_silence(50);
    brain.respond(other_conn, 200, "{}");
    brain.stat_becomes("requests_in_flight", 0);
}

/// 18.4: "with `message_bytes_max` bytes".
#[test]
fn what_waits_is_bounded_in_bytes() {
    let (edge, mut brain) = Edge::start(&[("message_bytes_max", "1000")]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    let large = format!(r#"{{"op":"publish","subject":"a","data":"{}"}}"#, "x".repeat(500));
    (0..3).for_each(|_| say(&mut client, &large));
    assert_eq!(refused(&mut client).0, "operations_waiting_max");
    for _ in 0..2 {
        brain.request();
        brain.respond(conn, 200, "{}");
        expect_text(&mut client, r#"{"ok":{}}"#);
    }
    brain.expect_silence(50);
}

/// link.md 12.7: "When the session ends, its operation ends by REQUEST_GONE (8.6)."
#[test]
fn a_session_that_ends_takes_its_request_along() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    for n in 0..3 {
        say(&mut client, &format!(r#"{{"op":"follow","subject":"s{n}"}}"#));
    }
    brain.request();
    drop(client);
    assert_eq!(brain.next(), Seen::Gone(conn));
    closed(&mut brain, conn, CloseReason::Client);
    brain.respond(conn, 200, "{}");
    brain.stat_becomes("requests_in_flight", 0);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    say(&mut client, r#"{"op":"follow","subject":"a"}"#);
    brain.request();
    brain.close_sessions("moved", &[conn]);
    assert_eq!(brain.next(), Seen::Gone(conn));
    assert_eq!(expect_close(&mut client, 1_001), "moved");
}

/// 18.6: "Without a brain it is `brain_away`"; link.md 8.7. The session itself stays.
#[test]
fn a_brain_that_goes() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    say(&mut client, r#"{"op":"follow","subject":"a","ref":1}"#);
    say(&mut client, r#"{"op":"follow","subject":"b","ref":2}"#);
    brain.request();
    drop(brain);
    for n in [1, 2] {
        let (code, text) = refused(&mut client);
        assert_eq!(code, "brain_away");
        assert!(text.starts_with(&format!("{{\"ref\":{n},")), "{text}");
        assert!(text.ends_with("\"retry_after_s\":1}}"), "{text}");
    }
    say(&mut client, r#"{"op":"follow","subject":"c","ref":3}"#);
    assert_eq!(refused(&mut client).0, "brain_away");
    let mut brain = edge.dial();
    brain.hello(&[], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    assert_eq!(brain.next(), Seen::SyncBegin(1));
    brain.open();
    assert_eq!(brain.next(), Seen::SyncEnd);
    brain.opened(conn, 1);
    say(&mut client, r#"{"op":"follow","subject":"d","ref":4}"#);
    assert_eq!(brain.request().target, "/v1/me/follows/d");
    brain.respond(conn, 200, "{}");
    expect_text(&mut client, r#"{"ref":4,"ok":{}}"#);
}

/// 18.6: "An operation that the brain doesn't answer in `response_ms_max` is answered with
/// `response_timeout`, those that wait for it, and new ones until the brain's answer has come, with
/// `brain_busy`." The late answer goes to no operation.
#[test]
fn a_brain_that_is_late() {
    let (edge, mut brain) = Edge::start(&[("response_ms_max", "4000")]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    let begin = Instant::now();
    for n in 0..2 {
        say(&mut client, &format!(r#"{{"op":"follow","subject":"s{n}","ref":{n}}}"#));
    }
    brain.request();
    let (code, text) = refused(&mut client);
    assert_eq!(code, "response_timeout");
    assert!(text.starts_with("{\"ref\":0,"), "{text}");
    assert!(begin.elapsed() >= Duration::from_millis(4_000));
    assert_eq!(refused(&mut client).0, "brain_busy");
    say(&mut client, r#"{"op":"follow","subject":"a","ref":2}"#);
    assert_eq!(refused(&mut client).0, "brain_busy");
    brain.expect_silence(50);
    brain.respond(conn, 200, r#"{"late":true}"#);
    brain.ping();
    say(&mut client, r#"{"op":"follow","subject":"a","ref":3}"#);
    brain.request();
    brain.respond(conn, 200, "{}");
    expect_text(&mut client, r#"{"ref":3,"ok":{}}"#);
    brain.stat_becomes("requests_in_flight", 0);
}

/// 18.5: "A client for which more than 64 KiB wait is not read until it has taken them", and then
/// it is read on.
#[test]
fn a_client_that_takes_nothing_is_not_read() {
    let (edge, mut brain) = Edge::start(&[("outbox_bytes_max", "30000000")]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    let data = format!("\"{}\"", "x".repeat(60_000));
    let events: Vec<_> = (0..300).map(|_| brain.deliver("", &data, &[conn])).collect();
    brain.ping();
    say(&mut client, r#"{"op":"follow","subject":"a"}"#);
    brain.expect_silence(300);
    events.iter().for_each(|event| expect_text(&mut client, event));
    brain.request();
    brain.respond(conn, 200, "{}");
    expect_text(&mut client, r#"{"ok":{}}"#);
}

/// 18.5: "a message that would be refused ends the connection with 1008".
#[test]
fn a_flood_of_nonsense_ends() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    let mut bytes = Vec::new();
    (0..5_000).for_each(|_| frames::text(&mut bytes, "?", KEY));
    client.send(&bytes);
    let mut answers = 0;
    let reason = loop {
        let (first, payload) = frame(&mut client);
        match first {
            0x81 => answers += 1,
            _ => break String::from_utf8(payload[2..].to_vec()).unwrap(),
        }
    };
    assert_eq!(reason, "answers are not read");
    assert!(answers > 100 && answers < 5_000, "{answers}");
    closed(&mut brain, conn, CloseReason::Protocol);
}

/// 16.3 and 18.4: "Each operation is a request of its user".
#[test]
fn operations_are_counted_by_user() {
    let limits = [("requests_per_user_per_s_max", "1"), ("requests_burst_ms", "2000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    say(&mut client, r#"{"op":"follow","subject":"a"}"#);
    brain.request();
    brain.respond(conn, 200, "{}");
    expect_text(&mut client, r#"{"ok":{}}"#);
    let mut codes = Vec::new();
    for _ in 0..3 {
        say(&mut client, r#"{"op":"follow","subject":7}"#);
        codes.push(refused(&mut client).0);
    }
    assert!(codes.iter().all(|code| code == "bad_subject"), "what isn't understood is no request");
    // In one write: the clock gives back one in a second. Those that pass wait for the brain.
    let mut bytes = Vec::new();
    (0..9).for_each(|_| {
        frames::text(&mut bytes, r#"{"op":"follow","subject":"b","ref":9}"#, KEY);
    });
    client.send(&bytes);
    let (code, text) = refused(&mut client);
    assert_eq!(code, "too_many_requests");
    assert!(text.starts_with("{\"ref\":9,") && text.contains("\"retry_after_s\":"), "{text}");
}
