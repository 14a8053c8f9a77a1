//! link.md 9.1 and http.md 13.4: an edge that stops, and what it says before that.

use std::time::{Duration, Instant};

use halley_link::{CloseReason, Frame};

use crate::brain::{Brain, Edge, Seen};
use crate::client::{Client, header, sse_event, stream};
use crate::process::signal;

/// The next chunk of a chunked body.
pub fn chunk(client: &mut Client) -> String {
    let mut length = Vec::new();
    while !length.ends_with(b"\r\n") {
        length.extend(client.bytes(1));
    }
    let length = usize::from_str_radix(String::from_utf8(length).unwrap().trim(), 16).unwrap();
    let bytes = client.bytes(length + 2);
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

/// The milliseconds of a chunk that has `retry:`.
pub fn retry(chunk: &str) -> u64 {
    let line = chunk.lines().find_map(|line| line.strip_prefix("retry: "));
    line.unwrap_or_else(|| panic!("no retry in {chunk:?}")).parse().unwrap()
}

fn cursor(brain: &mut Brain, cursor: &str) {
    brain.send(&Frame::Cursor { cursor: cursor.as_bytes() });
}

/// So many SSE streams whose clients have read their welcome. They ask together, as a drain should
/// last longer than a test may be held up, and that takes many.
fn crowd(edge: &Edge, brain: &mut Brain, count: usize) -> Vec<(Client, u64)> {
    let mut clients: Vec<(Client, u64)> = (0..count).map(|_| (edge.public(), 0)).collect();
    for (i, (client, _)) in clients.iter_mut().enumerate() {
        client.ask("GET", &format!("/v1/stream?user={i}"), "");
    }
    let mut opened = 0;
    while opened < count {
        let Seen::Open(sessions) = brain.next() else { panic!("not OPEN") };
        for (conn, _, user) in &sessions {
            brain.opened(*conn, 1_000);
            clients[user.parse::<usize>().unwrap()].1 = *conn;
        }
        opened += sessions.len();
    }
    for (client, _) in &mut clients {
        client.head();
        chunk(client);
    }
    clients
}

/// The edge has begun another round since this was called, and ended it; streams may close.
fn in_step(brain: &mut Brain) {
    // It may be in the middle of one when it reads the first.
    for nonce in [1, 2] {
        brain.send(&Frame::Ping { nonce });
        loop {
            match brain.next() {
                Seen::Pong(of) if of == nonce => break,
                Seen::Close(_) => {}
                other => panic!("neither PONG nor CLOSE: {other:?}"),
            }
        }
    }
}

/// 9.1: "close their connections over `drain_ms`", but one client is no reason to wait. http.md
/// 13.4: "a last `retry:` into each SSE stream, spread over the time of the drain, and the cursor".
#[test]
fn one_client_hears_where_to_go_on_and_is_gone() {
    let (mut edge, mut brain) = Edge::start(&[("stream_retry_ms", "2000")]);
    let (mut client, conn, _) = stream(&edge, &mut brain, "/v1/stream?user=u", "");
    chunk(&mut client);
    let event = brain.deliver("c-1", "1", &[conn]);
    cursor(&mut brain, "c-2");
    client.expect_chunk(&sse_event("c-1", &event));
    let started = Instant::now();
    brain.send(&Frame::Shutdown { drain_ms: 60_000 });
    let last = chunk(&mut client);
    assert!(last.starts_with("id: c-2\nretry: "), "{last:?}");
    assert!((1_000..=61_000).contains(&retry(&last)), "{last:?}");
    client.expect("0\r\n\r\n");
    client.expect_end();
    drop(client);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    assert_eq!(brain.reasons[&conn], CloseReason::Stopping);
    assert!(matches!(brain.next(), Seen::Goodbye(6, _)));
    assert_eq!(edge.exit_code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

/// http.md 13.4, 7.4, 9.6: the cursor in each transport's own words, behind what waits.
#[test]
fn last_words_of_every_transport() {
    let (mut edge, mut brain) = Edge::start(&[]);
    let (mut ndjson, a, _) =
        stream(&edge, &mut brain, "/v1/stream?user=a", "Accept: application/x-ndjson\r\n");
    let (mut websocket, b) = crate::websocket::open(&edge, &mut brain, "b");
    let (mut article, c, _) = stream(&edge, &mut brain, "/test/c", "");
    chunk(&mut ndjson);
    chunk(&mut article);
    let event = brain.deliver("c-1", "1", &[a, b, c]);
    cursor(&mut brain, "c-2");
    brain.send(&Frame::Shutdown { drain_ms: 1 });
    let spliced = format!("{{\"cursor\":\"c-1\",{}", &event[1..]);
    ndjson.expect_chunk(&format!("{spliced}\n"));
    ndjson.expect_chunk("{\"cursor\":\"c-2\"}\n");
    ndjson.expect("0\r\n\r\n");
    crate::websocket::expect_text(&mut websocket, &spliced);
    crate::websocket::expect_text(&mut websocket, "{\"cursor\":\"c-2\"}");
    let (first, payload) = crate::websocket::frame(&mut websocket);
    assert_eq!((first, &payload[..2]), (0x88, &[0x03, 0xe9][..]), "RFC 6455 7.4.1: going away");
    article.expect_chunk("1");
    article.expect("0\r\n\r\n");
    drop((ndjson, websocket, article));
    assert_eq!(edge.exit_code(), Some(0));
}

/// 9.1: "close their connections over `drain_ms`": evenly, and events flow until a stream's turn.
#[test]
fn two_thousand_clients_go_one_after_the_other() {
    let settings = [("stream_retry_ms", "2000"), ("stream_heartbeat_ms", "600000")];
    let (mut edge, mut brain) = Edge::start(&settings);
    let mut clients = crowd(&edge, &mut brain, 2_000);
    cursor(&mut brain, "c-1");
    let started = Instant::now();
    brain.send(&Frame::Shutdown { drain_ms: 2_000 });
    in_step(&mut brain);
    // By now its time has begun.
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(500));
    // Half a second later most are there, and get what is new.
    let conns: Vec<u64> = clients.iter().map(|(_, conn)| *conn).collect();
    let there = |since: Instant| 2_000 - since.elapsed().as_millis().min(2_000) as usize;
    let most = there(begun);
    // However late the edge is, by now it has closed those whose time has come.
    in_step(&mut brain);
    let event = brain.deliver("c-2", "1", &conns);
    let least = there(started);
    let (mut ends, mut told, mut retries) = (Vec::new(), 0, Vec::new());
    for (client, _) in &mut clients {
        let mut last = chunk(client);
        let got = last == sse_event("c-2", &event);
        if got {
            told += 1;
            last = chunk(client);
        }
        // Who got the event goes on behind it.
        let cursor = if got { "c-2" } else { "c-1" };
        assert!(last.starts_with(&format!("id: {cursor}\nretry: ")), "{last:?}");
        retries.push(retry(&last));
        client.expect("0\r\n\r\n");
        client.expect_end();
        ends.push(started.elapsed().as_millis());
    }
    assert!(told < most + 400 && told + 700 > least, "{told} were there, not {least} to {most}");
    // They may be seen to go later than they did.
    for at in [500, 1_000, 1_500] {
        let gone = ends.iter().filter(|end| **end < at as u128).count();
        assert!(gone < at + 400, "{gone} of 2,000 after {at} ms");
    }
    let (low, high) = (retries.iter().min().unwrap(), retries.iter().max().unwrap());
    assert!(*low >= 1_000 && *high <= 3_000 && high - low > 1_800, "{low} to {high}");
    drop(clients);
    assert_eq!(edge.exit_code(), Some(0));
}

/// 9.1: "a second signal cuts it short", and a signal cuts the brain's drain short.
#[test]
fn a_signal_cuts_a_drain_short() {
    let (mut edge, mut brain) = Edge::start(&[]);
    let mut clients = crowd(&edge, &mut brain, 3_000);
    brain.send(&Frame::Shutdown { drain_ms: 600_000 });
    // At 500 a second this takes six seconds, and few are closed in one round.
    assert!(matches!(brain.next(), Seen::Close(_)));
    signal(&edge, "-TERM");
    let (mut closed, mut at_once) = (0, 0);
    while let Seen::Close(sessions) = brain.next() {
        at_once = at_once.max(sessions.len());
        closed += sessions.len();
    }
    assert!(at_once > 1_000, "{at_once} of {closed} in one round");
    for (client, _) in &mut clients {
        assert!(client.rest().ends_with(b"0\r\n\r\n"));
    }
    drop(clients);
    assert_eq!(edge.exit_code(), Some(0));
}

/// A signal drains as the brain would have it done, over `--drain-ms`.
#[test]
fn a_first_signal_drains() {
    let (mut edge, mut brain) = Edge::start_with(&["--drain-ms", "1000"], &[], 1 << 20);
    let mut clients = crowd(&edge, &mut brain, 600);
    let started = Instant::now();
    signal(&edge, "-INT");
    assert!(clients[599].0.rest().ends_with(b"0\r\n\r\n"));
    assert!(started.elapsed() > Duration::from_millis(700), "{:?}", started.elapsed());
    drop(clients);
    assert_eq!(edge.exit_code(), Some(0));
}

/// 9.1: "workers stop accepting", and the API is served until the streams are closed.
#[test]
fn a_drain_takes_no_new_connections_and_serves_publishers() {
    let (mut edge, mut brain) = Edge::start(&[]);
    let clients = crowd(&edge, &mut brain, 3_000);
    let mut idle = edge.public();
    idle.ask("OPTIONS", "/v1/stream", "");
    idle.response();
    // A public connection that is in the middle of a request can still ask for a stream.
    let mut late = edge.public();
    late.ask("GET", "/v1/page", "");
    let page = brain.request().conn;
    let mut publisher = edge.api();
    brain.send(&Frame::Shutdown { drain_ms: 60_000 });
    idle.expect_end();
    let refused = std::net::TcpStream::connect_timeout(&edge.public, Duration::from_secs(1));
    assert!(refused.is_err(), "nobody listens for clients any more");
    brain.respond(page, 200, "page");
    assert_eq!(late.response().body, "page");
    late.ask("GET", "/v1/stream?user=late", "Accept: application/x-ndjson\r\n");
    let response = late.response();
    assert_eq!(response.status, 503);
    assert!(response.body.contains("\"busy\"") && response.header("retry-after").is_some());
    publisher.ask("GET", "/1", "");
    for publisher in [&mut publisher, &mut edge.api()] {
        publisher.ask("GET", "/2", "");
    }
    let mut answered = 0;
    while answered < 3 {
        if let Seen::Request(request) = brain.next() {
            brain.respond(request.conn, 200, "x");
            answered += 1;
        }
    }
    assert_eq!(publisher.response().body, "x");
    drop((clients, late, publisher));
    assert_eq!(edge.exit_code(), Some(0));
}

/// 9.1: a stream that waits for its session is told when to come back: an SSE stream in a way that
/// an EventSource heeds (http.md 13.2). A request has a moment for its answer, then 503.
#[test]
fn who_waits_is_told() {
    let (mut edge, mut brain) = Edge::start(&[]);
    let mut sse = edge.public();
    sse.ask("GET", "/v1/stream?user=u", "Accept: text/event-stream\r\n");
    brain.open();
    let mut ndjson = edge.public();
    ndjson.ask("GET", "/v1/stream?user=u", "Accept: application/x-ndjson\r\n");
    brain.open();
    let (mut answered, mut unanswered) = (edge.api(), edge.api());
    answered.ask("GET", "/x", "");
    let conn = brain.request().conn;
    unanswered.ask("GET", "/y", "");
    brain.request();
    let began = Instant::now();
    brain.send(&Frame::Shutdown { drain_ms: 1 });
    brain.respond(conn, 200, "in time");
    // Else it was this test that took the moment's 300 ms.
    let in_time = began.elapsed() < Duration::from_millis(250);
    let head = sse.head();
    assert!(head.starts_with("HTTP/1.1 200 ") && header(&head, "connection") == Some("close"));
    let busy = chunk(&mut sse);
    assert!(busy.starts_with(": busy\n") && retry(&busy) >= 1_000, "{busy:?}");
    sse.expect("0\r\n\r\n");
    sse.expect_end();
    let response = ndjson.response();
    assert_eq!(response.status, 503);
    assert!(response.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    ndjson.expect_end();
    let response = answered.response();
    assert!(response.body == "in time" || !in_time, "{response:?}");
    let response = unanswered.response();
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    unanswered.expect_end();
    drop((sse, ndjson, answered, unanswered));
    assert_eq!(edge.exit_code(), Some(0));
}

/// http.md 11.3, 13.4: a poll gets its answer, "with no events and the cursor", and the connection
/// ends. A session that is held goes on behind what its client knows: the link's cursor is another
/// (link.md 10.2).
#[test]
fn polls_and_held_sessions() {
    let (mut edge, mut brain) = Edge::start(&[]);
    let (mut held, conn, _) = stream(&edge, &mut brain, "/v1/stream?user=h&cursor=c-0", "");
    held.expect_chunk(crate::client::SSE_WELCOME);
    let mut poll = edge.public();
    poll.ask("GET", "/v1/poll?user=p&timeout=20", "");
    let (polling, ..) = brain.open();
    brain.opened(polling, 7);
    brain.expect_silence(50);
    cursor(&mut brain, "c-9");
    brain.send(&Frame::Shutdown { drain_ms: 1 });
    let last = chunk(&mut held);
    assert!(last.starts_with("retry: "), "{last:?}");
    held.expect("0\r\n\r\n");
    let response = poll.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    assert!(response.body.starts_with(r#"{"events":[],"cursor":""#), "{}", response.body);
    poll.expect_end();
    drop((held, poll));
    while !(brain.reasons.contains_key(&conn) && brain.reasons.contains_key(&polling)) {
        assert!(matches!(brain.next(), Seen::Close(_)));
    }
    assert!(brain.reasons.values().all(|reason| *reason == CloseReason::Stopping));
    assert_eq!(edge.exit_code(), Some(0));
}

/// 9.1: "SHUTDOWN asks the whole edge to stop".
#[test]
fn shutdown_reaches_every_worker() {
    let (mut edge, mut brain) = Edge::start_with(&["--workers", "2"], &[], 1 << 20);
    let started = Instant::now();
    brain.send(&Frame::Shutdown { drain_ms: 100 });
    assert_eq!(edge.exit_code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}
