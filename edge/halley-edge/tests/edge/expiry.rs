//! http.md 14.6, link.md 12.8: what becomes of a session when its token expires.

use std::time::{Duration, Instant};

use halley_link::CloseReason;

use crate::brain::{Brain, Edge, Seen};
use crate::client::{Client, SSE_WELCOME, stream};
use crate::token;
use crate::tokens::expect_close;
use crate::websocket::{UPGRADE, expect_text, frame};

const END: &str = r#"{"end":{"reason":"token_expired"}}"#;

/// How long a token is good, less a part of a second: longer than it takes to open a session with
/// it, however busy the machine is.
const GOOD_S: i64 = 6;

/// A session whose token is good until that is over.
fn soon(edge: &Edge, brain: &mut Brain, target: &str, lines: &str) -> (Client, u64, Instant) {
    let begin = Instant::now();
    let target = format!("{target}?token={}", token::for_s("ann", GOOD_S));
    let (client, conn, _) = stream(edge, brain, &target, lines);
    (client, conn, begin)
}

/// It took [`GOOD_S`] less a part of a second, and a busy machine's grace.
fn expect_time(begin: Instant) {
    let took = begin.elapsed();
    let (least, most) = (Duration::from_secs(GOOD_S as u64 - 1), Duration::from_secs(20));
    assert!(took + Duration::from_millis(50) >= least && took < most, "after {took:?}");
}

/// "SSE by `event: end`, with `id:` if there is a cursor, and `data:
/// {"end":{"reason":"token_expired"}}`"; CLOSE has the reason 8.
#[test]
fn of_server_sent_events() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let (mut client, conn, begin) = soon(&edge, &mut brain, "/v1/stream", "");
    client.expect_chunk(SSE_WELCOME);
    let event = brain.deliver("c7", "1", &[conn]);
    client.expect_chunk(&format!("id: c7\ndata: {event}\n\n"));
    client.expect_chunk(&format!("event: end\nid: c7\ndata: {END}\n\n"));
    client.expect("0\r\n\r\n");
    client.expect_end();
    expect_time(begin);
    expect_close(&mut brain, conn, CloseReason::Expired);
    brain.stat_becomes("sessions_expired_total", 1);
    // 14.4: "An `EventSource` doesn't come back after that."
    let mut again = edge.public();
    again.ask("GET", &format!("/v1/stream?token={}", token::for_s("ann", -1)), "");
    assert_eq!(again.response().status, 401);
}

/// "NDJSON by that object, with the cursor before it; WebSocket likewise, and by a close with the
/// code 4401 and the reason `token_expired`".
#[test]
fn of_lines_and_of_websockets() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let (mut lines, first, _) =
        soon(&edge, &mut brain, "/v1/stream", "Accept: application/x-ndjson\r\n");
    let (mut socket, second, begin) = soon(&edge, &mut brain, "/v1/ws", UPGRADE);
    lines.expect_chunk("\n");
    let event = brain.deliver("c7", "1", &[first, second]);
    let with_cursor = |json: &str| format!(r#"{{"cursor":"c7",{}"#, &json[1..]);
    lines.expect_chunk(&format!("{}\n", with_cursor(&event)));
    lines.expect_chunk(&format!("{}\n", with_cursor(END)));
    lines.expect("0\r\n\r\n");
    lines.expect_end();
    expect_text(&mut socket, &with_cursor(&event));
    expect_text(&mut socket, &with_cursor(END));
    let (first_byte, payload) = frame(&mut socket);
    assert_eq!((first_byte, &payload[..2]), (0x88, &4_401_u16.to_be_bytes()[..]));
    assert_eq!(&payload[2..], b"token_expired");
    socket.expect_end();
    expect_time(begin);
    let mut closed = 0;
    while closed < 2 {
        let Seen::Close(sessions) = brain.next() else { panic!("no CLOSE") };
        closed += sessions.len();
    }
    assert_eq!([first, second].map(|conn| brain.reasons[&conn]), [CloseReason::Expired; 2]);
}

/// "a poll by its answer, with what there is and `"end":{"reason":"token_expired"}` at its end";
/// its connection stays, and its next request needs a token of its own.
#[test]
fn of_polls() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let begin = Instant::now();
    let token = token::for_s("ann", GOOD_S);
    let mut client = edge.public();
    client.ask("GET", &format!("/v1/poll?token={token}"), "");
    let (conn, ..) = brain.open();
    brain.opened_at(conn, 1, "c7");
    let body = r#"{"events":[],"cursor":"c7","end":{"reason":"token_expired"}}"#;
    assert_eq!(client.response().body, body);
    expect_time(begin);
    expect_close(&mut brain, conn, CloseReason::Expired);
    client.ask("GET", &format!("/v1/poll?token={token}"), "");
    assert_eq!(client.response().status, 401);
    let live = token::of("ann");
    client.ask("GET", &format!("/v1/poll?timeout=0&token={live}"), "");
    let (conn, ..) = brain.open();
    brain.opened_at(conn, 1, "c8");
    assert_eq!(client.response().body, r#"{"events":[],"cursor":"c8"}"#);
}

/// "A stream that waits for its session gets 401 `token_expired`."
#[test]
fn of_streams_that_wait_for_their_session() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let mut client = edge.public();
    client.ask("GET", &format!("/v1/stream?token={}", token::for_s("ann", GOOD_S)), "");
    let (conn, ..) = brain.open();
    let response = client.response();
    assert_eq!(response.status, 401);
    assert!(response.body.contains(r#""code":"token_expired""#), "{}", response.body);
    assert!(response.header("www-authenticate").unwrap().contains("invalid_token"));
    client.expect_end();
    brain.opened(conn, 1);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 1)]));
}

/// link.md 10.2: a session that is held has its own cursor, which the client knows: the end has
/// none.
#[test]
fn of_sessions_that_are_held() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    brain.cursor("link");
    let mut client = edge.public();
    let token = token::for_s("ann", GOOD_S);
    client.ask("GET", &format!("/v1/stream?cursor=mine&token={token}"), "");
    let (conn, ..) = brain.open();
    brain.opened(conn, 1);
    client.head();
    client.expect_chunk(SSE_WELCOME);
    client.expect_chunk(&format!("event: end\ndata: {END}\n\n"));
    expect_close(&mut brain, conn, CloseReason::Expired);
}

/// 12.8: "`auth_leeway_ms` included".
#[test]
fn not_before_the_leeway_is_over() {
    let (edge, mut brain) = Edge::start_jwt(&[("auth_leeway_ms", "6000")]);
    let begin = Instant::now();
    let lines = format!("Authorization: Bearer {}\r\n", token::for_s("ann", 0));
    let (mut client, conn, _) = stream(&edge, &mut brain, "/v1/stream", &lines);
    client.expect_chunk(SSE_WELCOME);
    client.expect_chunk(&format!("event: end\ndata: {END}\n\n"));
    expect_time(begin);
    expect_close(&mut brain, conn, CloseReason::Expired);
}

/// The sweep finds it however far it was: here walks pass before the token expires.
#[test]
fn a_token_that_lasts_longer_than_a_heartbeat() {
    let (edge, mut brain) = Edge::start_jwt(&[("stream_heartbeat_ms", "600")]);
    let (mut client, conn, begin) = soon(&edge, &mut brain, "/v1/stream", "");
    client.expect_chunk(SSE_WELCOME);
    let rest = String::from_utf8(client.rest()).unwrap();
    assert!(rest.contains(":\n\n") && rest.contains("event: end\n"), "{rest}");
    expect_time(begin);
    expect_close(&mut brain, conn, CloseReason::Expired);
}

/// What a client takes too slowly is not what keeps it here.
#[test]
fn of_a_client_that_reads_nothing() {
    let (edge, mut brain) = Edge::start_jwt(&[("outbox_bytes_max", "8000000")]);
    let (mut client, conn, begin) = soon(&edge, &mut brain, "/v1/stream", "");
    client.expect_chunk(SSE_WELCOME);
    let data = format!("\"{}\"", "x".repeat(100_000));
    (0..60).for_each(|_| drop(brain.deliver("", &data, &[conn])));
    expect_close(&mut brain, conn, CloseReason::Expired);
    expect_time(begin);
    drop(client);
}

/// 14.6: "Of the body of a request nothing more is passed on from that second: 401
/// `token_expired`, and the connection is closed."
#[test]
fn of_bodies() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let begin = Instant::now();
    let mut client = edge.public();
    let token = token::for_s("ann", GOOD_S);
    let head = format!("POST /v1/me/events?token={token} HTTP/1.1\r\nHost: h\r\n");
    client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"));
    let conn = brain.request().conn;
    assert_eq!(brain.next(), Seen::Body(conn, 0, b"a".to_vec()));
    client.send("1\r\nb\r\n");
    assert_eq!(brain.next(), Seen::Body(conn, 0, b"b".to_vec()));
    std::thread::sleep((begin + Duration::from_secs(GOOD_S as u64)) - Instant::now());
    std::thread::sleep(Duration::from_millis(100));
    client.send("1\r\nc\r\n");
    assert_eq!(brain.next(), Seen::Gone(conn));
    let response = client.response();
    assert_eq!(response.status, 401);
    assert!(response.body.contains(r#""code":"token_expired""#), "{}", response.body);
    assert!(response.header("www-authenticate").unwrap().contains("invalid_token"));
    client.expect_end();
}
