//! http.md 16.6 and 16.7: clients that take their time.

use std::time::{Duration, Instant};

use halley_link::{FLAG_END, Frame};

use crate::brain::{Brain, Edge, Seen};
use crate::client::{Client, sse};
use crate::slow::stall;

/// Sends a byte every so often until it can't, or for so long.
pub fn drip(client: &mut Client, every_ms: u64, ms: u128) {
    use std::io::Write;
    let started = Instant::now();
    while started.elapsed().as_millis() < ms && client.socket.write_all(b"a").is_ok() {
        std::thread::sleep(Duration::from_millis(every_ms));
    }
}

/// Answers with so many bytes, piece by piece.
fn respond_long(brain: &mut Brain, conn: u64, bytes: usize) {
    let piece = vec![b'x'; 100_000];
    brain.response(conn, 200, 0, bytes as u64, &[], b"");
    for n in 1..=bytes / piece.len() {
        let flags = if n == bytes / piece.len() { FLAG_END } else { 0 };
        brain.send(&Frame::ResponseBody { conn, flags, body: &piece });
        assert_eq!(brain.next_within(2), None);
    }
}

/// 16.6: "it is never later than `pace_grace_ms` [...] Else 408 `body_too_slow`", and its
/// place among the requests in flight is free.
#[test]
fn a_body_that_drips() {
    let settings = [("pace_grace_ms", "500"), ("pace_bytes_per_s_min", "1000")];
    let (edge, mut brain) = Edge::start(&settings);
    for head in ["Content-Length: 1000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n400\r\n"] {
        let mut client = edge.api();
        let started = Instant::now();
        client.send(format!("POST /x HTTP/1.1\r\nHost: h\r\n{head}"));
        let conn = brain.request().conn;
        let mut reader = Client::of(client.socket.try_clone().unwrap());
        let dripping = std::thread::spawn(move || drip(&mut client, 20, 20_000));
        loop {
            match brain.next() {
                Seen::Body(of, ..) => assert_eq!(of, conn),
                Seen::Gone(of) => break assert_eq!(of, conn),
                other => panic!("not the body: {other:?}"),
            }
        }
        let response = reader.response();
        let lasted = started.elapsed().as_millis();
        assert!((450..15_000).contains(&lasted), "{lasted} ms");
        assert_eq!(response.status, 408);
        assert!(response.body.contains("body_too_slow"));
        drop(reader);
        dripping.join().unwrap();
    }
    brain.stat_becomes("slow_bodies_total", 2);
    brain.stat_becomes("requests_in_flight", 0);
}

impl Brain {
    /// The connection of the next REQUEST, where bodies of others come meanwhile.
    fn request_beside_bodies(&mut self) -> u64 {
        loop {
            match self.next() {
                Seen::Request(request) => return request.conn,
                Seen::Body(..) => {}
                other => panic!("not REQUEST: {other:?}"),
            }
        }
    }
}

/// 16.6: who keeps the pace has all the time it needs, also while the brain lets it wait.
#[test]
fn a_body_that_keeps_the_pace() {
    let settings = [
        ("pace_grace_ms", "5000"),
        ("pace_bytes_per_s_min", "1000"),
        ("request_window_bytes", "9000"),
    ];
    let (edge, mut brain) = Edge::start(&settings);
    let mut waits = edge.api();
    waits.send("POST /w HTTP/1.1\r\nHost: h\r\nContent-Length: 9400\r\n\r\n");
    let waiting = brain.request().conn;
    // The window is full: it is the brain that is waited for.
    waits.send([b'a'; 9_000]);
    let mut client = edge.api();
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 8000\r\n\r\n");
    let conn = brain.request_beside_bodies();
    // Longer than the grace, so that without its pace it were late.
    for _ in 0..40 {
        client.send([b'a'; 200]);
        std::thread::sleep(Duration::from_millis(150));
    }
    brain.send(&Frame::RequestCredit { conn: waiting, bytes: 1_600 });
    waits.send([b'a'; 400]);
    let mut ended = 0;
    while ended < 2 {
        match brain.next() {
            Seen::Body(_, flags, _) => ended += u8::from(flags & FLAG_END != 0),
            other => panic!("not REQUEST_BODY: {other:?}"),
        }
    }
    for (mut client, conn) in [(client, conn), (waits, waiting)] {
        brain.respond(conn, 200, "done");
        assert_eq!(client.response().body, "done");
    }
}

/// 16.7: "An answer that isn't a stream is taken within `request_ms_max` and the time that its
/// bytes need at `pace_bytes_per_s_min`. Else the connection is closed."
#[test]
fn an_answer_that_nobody_takes() {
    let settings = [("request_ms_max", "5000"), ("pace_bytes_per_s_min", "4000000")];
    let (edge, mut brain) = Edge::start(&settings);
    // More than the kernel holds.
    let bytes = 8_000_000;
    let mut takes = edge.api();
    takes.ask("GET", "/x", "");
    let conn = brain.request().conn;
    let taking = std::thread::spawn(move || takes.response().body.len());
    respond_long(&mut brain, conn, bytes);
    let mut client = edge.api();
    client.ask("GET", "/x", "");
    let conn = brain.request().conn;
    let started = Instant::now();
    respond_long(&mut brain, conn, bytes);
    // A byte at a time is no better, nor are further requests.
    client.ask("GET", "/y", "");
    assert_eq!(taking.join().unwrap(), bytes);
    while brain.stat("slow_readers_total") == 0 {
        client.bytes(1);
        std::thread::sleep(Duration::from_millis(100));
        assert!(started.elapsed() < Duration::from_secs(25));
    }
    let took = started.elapsed().as_millis();
    assert!((6_500..20_000).contains(&took), "5 s and 8 MB at 4 MB/s took {took} ms");
    assert!(client.rest().len() < bytes);
    brain.stat_becomes("outbox_bytes", 0);
}

/// 16.7 is about answers: a stream's last words are none, though the client doesn't take them.
#[test]
fn last_words_that_nobody_takes() {
    let (edge, mut brain) = Edge::start(&[("outbox_bytes_max", "100000000")]);
    let (stream, conn) = sse(&edge, &mut brain, "a");
    let (websocket, other) = crate::websocket::open(&edge, &mut brain, "b");
    [&stream, &websocket].into_iter().for_each(stall);
    let data = format!("\"{}\"", "x".repeat(60_000));
    (0..200).for_each(|_| drop(brain.deliver("c", &data, &[conn, other])));
    for conn in [conn, other] {
        brain.close_sessions("bye", &[conn]);
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    }
    brain.stat_becomes("timeouts_total", 2);
    assert_eq!(brain.stat("slow_readers_total"), 0);
    brain.stat_becomes("outbox_bytes", 0);
    drop((stream, websocket));
}

/// link.md 8.8: "the header `halley-length` has it in decimal digits", which no client can send.
#[test]
fn a_length_is_told() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nHalley-Length: 1\r\nContent-Length: 99999\r\n\r\n");
    let request = brain.request();
    let lengths: Vec<_> =
        request.headers.iter().filter(|(name, _)| name == "halley-length").collect();
    assert_eq!(lengths, [&("halley-length".to_owned(), "99999".to_owned())]);
    // 3.4: the answer comes before the body, of which nothing was sent.
    brain.respond(request.conn, 413, "no");
    assert_eq!(client.response().status, 413);
    client.expect_end();
    let mut chunked = edge.api();
    chunked.send("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert!(brain.request().headers.iter().all(|(name, _)| name != "halley-length"));
}
