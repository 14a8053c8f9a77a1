//! Clause 6: sync, opening, refusing and closing sessions.

use halley_link::{CloseReason, FLAG_END, Frame};

use crate::brain::{Brain, Edge, Seen, WINDOW};
use crate::client::{SSE_WELCOME, sse, sse_event, stream};

/// 6.1: "the worker sends SYNC_BEGIN, its sessions as OPEN frames, and SYNC_END"; 6.3: "each is
/// sent once"; 9.2: "A brain that leaves without SHUTDOWN leaves the edge and its connections in
/// place".
#[test]
fn a_new_brain_gets_all_sessions() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut clients: Vec<_> = (0..20).map(|i| sse(&edge, &mut brain, &format!("u{i}"))).collect();
    drop(brain);
    let mut brain = edge.dial();
    brain.hello(&[], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    assert_eq!(brain.next(), Seen::SyncBegin(20));
    let mut seen = Vec::new();
    loop {
        match brain.next() {
            Seen::Open(sessions) => seen.extend(sessions),
            Seen::SyncEnd => break,
            other => panic!("{other:?}"),
        }
    }
    let all: Vec<_> =
        clients.iter().enumerate().map(|(i, (_, conn))| (*conn, 1, format!("u{i}"))).collect();
    assert_eq!(seen, all);
    brain.expect_silence(100);
    let conns: Vec<u64> = seen.iter().map(|s| s.0).collect();
    conns.iter().for_each(|conn| brain.opened(*conn, 5));
    let event = brain.deliver("c", "true", &conns);
    for (client, _) in &mut clients {
        client.expect_chunk(&sse_event("c", &event));
    }
}

/// 6.1, 6.4: the number that an earlier brain gave is void: who leaves between the sync and OPENED
/// is closed with the new one.
#[test]
fn numbers_of_an_earlier_brain_are_forgotten() {
    let (edge, mut brain) = Edge::start(&[]);
    let (client, conn) = sse(&edge, &mut brain, "u");
    drop(brain);
    let mut brain = edge.dial();
    brain.hello(&[], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    assert_eq!(brain.next(), Seen::SyncBegin(1));
    assert_eq!(brain.open().0, conn);
    assert_eq!(brain.next(), Seen::SyncEnd);
    drop(client);
    brain.expect_silence(100);
    brain.opened(conn, 77);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 77)]));
}

/// 6.2: "A stream that is requested becomes a session when the brain answers OPEN by OPENED; the
/// client's `welcome` is written then".
#[test]
fn no_welcome_before_opened() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=J%C3%BCrgen", "");
    let (conn, transport, user) = brain.open();
    assert_eq!((transport, user.as_str()), (1, "Jürgen"));
    client.expect_silence(100);
    brain.opened(conn, 1);
    assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
    client.expect_chunk(SSE_WELCOME);
}

/// 6.2: "A DELIVER that arrives before OPENED counts as OPENED for the welcome." The number still
/// comes with OPENED, and no second welcome does.
#[test]
fn deliver_before_opened() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u", "");
    let (conn, ..) = brain.open();
    let event = brain.deliver("c1", "1", &[conn]);
    client.head();
    client.expect_chunk(SSE_WELCOME);
    client.expect_chunk(&sse_event("c1", &event));
    brain.opened(conn, 4);
    brain.deliver("c2", "1", &[conn]);
    client.expect_chunk(&sse_event("c2", &event));
    drop(client);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 4)]));
}

/// 6.4: "a connection that ends before OPENED waits for it, then CLOSE is sent".
#[test]
fn a_client_that_leaves_before_opened() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u", "");
    let (conn, ..) = brain.open();
    drop(client);
    brain.expect_silence(150);
    brain.opened(conn, 9);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 9)]));
    brain.stat_becomes("connections", 0);
    brain.stat_becomes("opening", 0);
}

/// 6.5: "REFUSED ends a stream that waits for OPENED: with `status` and the JSON error if the
/// stream has not begun".
#[test]
fn refused_before_the_stream_began() {
    let (edge, mut brain) = Edge::start(&[]);
    for upgrade in ["", crate::websocket::UPGRADE] {
        let mut client = edge.public();
        let path = if upgrade.is_empty() { "/v1/stream" } else { "/v1/ws" };
        client.ask("GET", &format!("{path}?user=u"), upgrade);
        let (conn, ..) = brain.open();
        brain.refused(conn, 503);
        let response = client.response();
        assert_eq!(response.status, 503);
        assert_eq!(response.header("retry-after"), Some("7"));
        assert_eq!(response.body, r#"{"error":{"code":"no","message":"not now"}}"#);
        client.expect_end();
    }
    brain.expect_silence(100);
}

/// 6.5: "otherwise with a close".
#[test]
fn refused_after_the_stream_began() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = sse(&edge, &mut brain, "u");
    brain.refused(conn, 403);
    client.expect("0\r\n\r\n");
    client.expect_end();
    brain.expect_silence(100);
}

/// 6.6: "CLOSE_SESSIONS closes connections; the edge answers each by CLOSE as usual." http.md 7.6:
/// "A stream that the server ends is ended by the last chunk, then the connection is closed."
#[test]
fn close_sessions() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut one, a) = sse(&edge, &mut brain, "a");
    let (mut two, b) = sse(&edge, &mut brain, "b");
    let (mut other, c) = sse(&edge, &mut brain, "c");
    brain.close_sessions("moved", &[a, b]);
    for client in [&mut one, &mut two] {
        client.expect("0\r\n\r\n");
        client.expect_end();
    }
    assert_eq!(brain.next(), Seen::Close(vec![(a, 1_000), (b, 1_000)]));
    let event = brain.deliver("", "1", &[c]);
    other.expect_chunk(&format!("data: {event}\n\n"));
    brain.stat_becomes("sessions", 1);
}

/// 6.7: "A `conn` that the worker does not know is counted and skipped, not an error". 2.4: "a
/// frame about a connection that is gone never meets its successor".
#[test]
fn frames_about_connections_that_are_gone() {
    let (edge, mut brain) = Edge::start(&[]);
    let (client, gone) = sse(&edge, &mut brain, "a");
    drop(client);
    assert_eq!(brain.next(), Seen::Close(vec![(gone, 1_000)]));
    let (mut client, conn) = sse(&edge, &mut brain, "b");
    for stale in [gone, conn + (1 << 24), (1 << 48) - 1] {
        brain.opened(stale, 1);
        brain.refused(stale, 503);
        brain.close_sessions("x", &[stale]);
        brain.respond(stale, 200, "x");
        brain.send(&Frame::ResponseBody { conn: stale, flags: FLAG_END, body: b"x" });
        brain.send(&Frame::RequestCredit { conn: stale, bytes: 10 });
        brain.deliver("c", "0", &[stale]);
    }
    let event = brain.deliver("c", "1", &[gone, conn]);
    client.expect_chunk(&sse_event("c", &event));
    brain.stat_becomes("stale_deliveries_total", 4);
}

/// 5, `stream_open_ms_max`: "how long a stream may wait for its session before 503".
#[test]
fn a_stream_that_nobody_opens() {
    let (edge, mut brain) = Edge::start(&[("stream_open_ms_max", "200")]);
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u", "");
    let (conn, ..) = brain.open();
    let response = client.response();
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    client.expect_end();
    brain.opened(conn, 3);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 3)]));
}

/// 6.1, 6.2: a stream that is asked for while the brain is away waits for the next one.
#[test]
fn a_stream_waits_for_the_next_brain() {
    let (edge, brain) = Edge::start(&[]);
    drop(brain);
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u", "");
    client.expect_silence(100);
    // Who asks later and has an answer shows that the edge has read it.
    let mut later = edge.public();
    later.ask("OPTIONS", "/v1/stream", "");
    later.response();
    let mut brain = edge.dial();
    brain.hello(&[], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    assert_eq!([brain.next(), brain.next()], [Seen::SyncBegin(0), Seen::SyncEnd]);
    let (conn, ..) = brain.open();
    brain.opened(conn, 1);
    client.head();
    client.expect_chunk(SSE_WELCOME);
}

/// 6.2: a client that asks for HEAD of a stream gets the head and no session.
#[test]
fn head_of_a_stream_opens_nothing() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.public();
    client.ask("HEAD", "/v1/stream?user=u", "");
    assert!(client.head().contains("\r\nContent-Type: text/event-stream\r\n"));
    let (_, _, head) = stream(&edge, &mut brain, "/v1/stream?user=u", "");
    assert!(head.contains("\r\nX-Accel-Buffering: no\r\n"), "http.md 7.1: {head}");
}

/// 2.8: "Reasons of CLOSE: 1 the client closed, 2 the client vanished, [...] 4 CLOSE_SESSIONS,
/// [...] 6 the client broke its protocol". The others are in `slow.rs`, `drain.rs`, `polls.rs`.
#[test]
fn why_a_session_ended() {
    let (edge, mut brain) = Edge::start(&[]);
    let ends = |brain: &mut Brain, conn: u64, reason: CloseReason| {
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
        assert_eq!(brain.reasons[&conn], reason);
    };
    let (client, conn) = sse(&edge, &mut brain, "closed");
    drop(client);
    ends(&mut brain, conn, CloseReason::Client);
    let (client, conn) = sse(&edge, &mut brain, "reset");
    client.reset();
    ends(&mut brain, conn, CloseReason::Vanished);
    let (client, conn) = sse(&edge, &mut brain, "asked");
    brain.close_sessions("enough", &[conn]);
    ends(&mut brain, conn, CloseReason::CloseSessions);
    drop(client);
    let (mut client, conn) = crate::websocket::open(&edge, &mut brain, "unmasked");
    client.send([0x81, 0x00]);
    ends(&mut brain, conn, CloseReason::Protocol);
    // 6.4: one that ended before OPENED keeps its reason until then.
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=early", "");
    let (conn, ..) = brain.open();
    client.reset();
    brain.stat_becomes("opening", 0);
    brain.opened(conn, 1_000);
    ends(&mut brain, conn, CloseReason::Vanished);
}
