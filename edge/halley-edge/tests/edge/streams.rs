//! Clause 7 and http.md 7: events on every transport, heartbeats.

use std::time::{Duration, Instant};

use crate::brain::{Edge, Seen};
use crate::client::{header, sse, sse_event, stream};
use crate::drain::chunk;

/// http.md 7.2, 7.3: "each event, heartbeat and welcome is one chunk"; "an event is `id: <cursor>`,
/// `data: <json>`, an empty line, and without a cursor there is no `id:`".
#[test]
fn sse_in_chunks() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn, head) =
        stream(&edge, &mut brain, "/v1/stream?user=u", "Accept: text/event-stream\r\n");
    assert_eq!(header(&head, "content-type"), Some("text/event-stream"));
    assert_eq!(header(&head, "cache-control"), Some("no-cache, no-transform"));
    assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
    client.expect_chunk(": welcome\nretry: 1\n\n");
    let event = brain.deliver("", "null", &[conn]);
    client.expect_chunk(&format!("data: {event}\n\n"));
    let event = brain.deliver("c-1", r#"{"a":[1,2]}"#, &[conn]);
    assert_eq!(event, r#"{"id":"1","subject":"s","at":1,"data":{"a":[1,2]}}"#);
    client.expect_chunk(&format!("id: c-1\ndata: {event}\n\n"));
}

/// http.md 7.2: "To HTTP/1.0 it is plain, with `Connection: close`."
#[test]
fn sse_to_http_1_0() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.public();
    client.send("GET /v1/stream?user=u HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let (conn, ..) = brain.open();
    brain.opened(conn, 1);
    let head = client.head();
    assert_eq!(header(&head, "connection"), Some("close"));
    assert_eq!(header(&head, "transfer-encoding"), None);
    client.expect(crate::client::SSE_WELCOME);
    let event = brain.deliver("c", "1", &[conn]);
    client.expect(&sse_event("c", &event));
    brain.close_sessions("", &[conn]);
    client.expect_end();
}

/// http.md 7.4: "An event is one line; the cursor, if there is one, is the first member of its
/// object. An empty line comes first".
#[test]
fn ndjson() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn, head) =
        stream(&edge, &mut brain, "/v1/stream?user=u", "Accept: application/x-ndjson\r\n");
    assert_eq!(header(&head, "content-type"), Some("application/x-ndjson"));
    client.expect_chunk("\n");
    let event = brain.deliver("", "1", &[conn]);
    client.expect_chunk(&format!("{event}\n"));
    let event = brain.deliver("c_1", "1", &[conn]);
    client.expect_chunk(&format!("{{\"cursor\":\"c_1\",{}\n", &event[1..]));
    brain.close_sessions("", &[conn]);
    client.expect("0\r\n\r\n");
    client.expect_end();
}

/// http.md 7.5: "First the chunk `Welcome, Url: '<target>' Id: <user>` and a line end, both escaped
/// for HTML; then the data of each event as one chunk". 7.1: "a transport that wants only the data
/// cuts it out".
#[test]
fn the_article() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn, head) = stream(&edge, &mut brain, "/test/%3Cb%3E", "");
    assert_eq!(header(&head, "content-type"), Some("text/html; charset=utf-8"));
    client.expect_chunk("Welcome, Url: '/test/%3Cb%3E' Id: &lt;b&gt;\n");
    brain.deliver("c", r#""hello""#, &[conn]);
    client.expect_chunk(r#""hello""#);
}

/// http.md 2.6 of transports: SSE, NDJSON, WebSocket and the article get one event from one frame;
/// 7.4: "the worker keeps [the order] for every connection".
#[test]
fn one_event_on_every_transport_in_order() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut a, a_conn) = sse(&edge, &mut brain, "a");
    let (mut b, b_conn, _) =
        stream(&edge, &mut brain, "/v1/stream?user=b", "Accept: application/x-ndjson\r\n");
    let (mut c, c_conn) = crate::websocket::open(&edge, &mut brain, "c");
    let (mut d, d_conn, _) = stream(&edge, &mut brain, "/test/d", "");
    b.expect_chunk("\n");
    d.expect_chunk("Welcome, Url: '/test/d' Id: d\n");
    for i in 0..200 {
        let (cursor, data) = (format!("c{i}"), i.to_string());
        let event = brain.deliver(&cursor, &data, &[a_conn, b_conn, c_conn, d_conn]);
        let spliced = format!("{{\"cursor\":\"{cursor}\",{}", &event[1..]);
        a.expect_chunk(&sse_event(&cursor, &event));
        b.expect_chunk(&format!("{spliced}\n"));
        crate::websocket::expect_text(&mut c, &spliced);
        d.expect_chunk(&data);
    }
}

/// 7.4: order is kept through an outbox that is written in pieces.
#[test]
fn order_is_kept_for_a_client_that_reads_late() {
    let (edge, mut brain) = Edge::start(&[("outbox_bytes_max", "100000000")]);
    let (mut client, conn) = sse(&edge, &mut brain, "u");
    let data = format!("\"{}\"", "x".repeat(50_000));
    let mut event = String::new();
    for i in 0..300 {
        event = brain.deliver(&format!("c{i}"), &data, &[conn]);
    }
    for i in 0..300 {
        client.expect_chunk(&sse_event(&format!("c{i}"), &event));
    }
    brain.stat_becomes("outbox_bytes", 0);
    brain.stat_becomes("delivered_total", 300);
}

/// 5, `stream_heartbeat_ms`: "longest silence on a stream"; http.md 7.3: "a heartbeat is an empty
/// comment", 7.4: an empty line, 7.5: "a heartbeat is a line end".
#[test]
fn heartbeats_on_silent_streams() {
    let (edge, mut brain) = Edge::start(&[("stream_heartbeat_ms", "3000")]);
    let (mut a, _) = sse(&edge, &mut brain, "a");
    let (mut b, _, _) =
        stream(&edge, &mut brain, "/v1/stream?user=b", "Accept: application/x-ndjson\r\n");
    let (mut c, _, _) = stream(&edge, &mut brain, "/test/c", "");
    b.expect_chunk("\n");
    c.expect_chunk("Welcome, Url: '/test/c' Id: c\n");
    // What holds this test up for a while makes one or two of them late.
    let in_time = (0..4).filter(|_| {
        let started = Instant::now();
        a.expect_chunk(":\n\n");
        b.expect_chunk("\n");
        c.expect_chunk("\n");
        started.elapsed() < Duration::from_millis(3_000)
    });
    assert!(in_time.count() >= 2);
}

/// 5, `stream_heartbeat_ms`: no heartbeat where events are.
#[test]
fn no_heartbeat_between_events() {
    let (edge, mut brain) = Edge::start(&[("stream_heartbeat_ms", "3000")]);
    let (mut client, conn) = sse(&edge, &mut brain, "u");
    let mut sent = Instant::now();
    for i in 0..35 {
        std::thread::sleep(Duration::from_millis(100));
        let before = std::mem::replace(&mut sent, Instant::now());
        let event = brain.deliver(&i.to_string(), "1", &[conn]);
        loop {
            let next = chunk(&mut client);
            if next == sse_event(&i.to_string(), &event) {
                break;
            }
            // Nothing came for a third of it: then it was this test that was held up.
            assert!(next.ends_with("\n\n") && !next.contains("data"), "{next}");
            assert!(before.elapsed() > Duration::from_millis(900), "{next} between events");
        }
    }
}

/// 5, `stream_heartbeat_ms`: "a client that vanished is gone within it". Here it is one whose
/// machine takes nothing any more: its window is closed and stays so.
#[test]
fn a_client_that_vanished() {
    let (edge, mut brain) = Edge::start(&[("stream_heartbeat_ms", "900")]);
    let (client, conn) = sse(&edge, &mut brain, "u");
    let data = format!("\"{}\"", "x".repeat(60_000));
    let started = Instant::now();
    // Below `outbox_bytes_max`, above what the kernels of both sides hold.
    for _ in 0..14 * 8 {
        brain.deliver("c", &data, &[conn]);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    drop(client);
}

/// http.md 3.4: streams leave, by a close or by a reset, and are counted off.
#[test]
fn clients_that_leave() {
    let (edge, mut brain) = Edge::start(&[]);
    let (client, a) = sse(&edge, &mut brain, "a");
    drop(client);
    assert_eq!(brain.next(), Seen::Close(vec![(a, 1_000)]));
    let (client, b) = sse(&edge, &mut brain, "b");
    client.reset();
    assert_eq!(brain.next(), Seen::Close(vec![(b, 1_000)]));
    brain.stat_becomes("sessions", 0);
    brain.stat_becomes("connections", 0);
}
