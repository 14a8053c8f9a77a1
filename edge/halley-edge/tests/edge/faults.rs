//! Bad clients, slow clients, too many clients, and a brain that dies.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::brain::{Edge, Seen, WAIT, WINDOW};
use crate::client::{Client, sse, sse_event};
use crate::process::signal;

/// 8.7: "When a link ends, the worker answers its open requests with 503 and `Retry-After: 1`."
/// 9.2: "A brain that leaves without SHUTDOWN leaves the edge and its connections in place".
#[test]
fn a_brain_that_dies() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut stream, conn) = sse(&edge, &mut brain, "u");
    let mut client = edge.api();
    client.ask("GET", "/x", "");
    brain.request();
    let mut upload = edge.api();
    upload.send("POST /y HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\npart");
    brain.request();
    drop(brain);
    for client in [&mut client, &mut upload] {
        let response = client.response();
        assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    }
    let mut client = edge.api();
    client.ask("GET", "/z", "");
    assert_eq!(client.response().status, 503);
    stream.expect_silence(50);
    let mut brain = edge.dial();
    brain.hello(&[], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    assert_eq!(brain.next(), Seen::SyncBegin(1));
    assert_eq!(brain.open().0, conn);
    assert_eq!(brain.next(), Seen::SyncEnd);
    brain.opened(conn, 1);
    let event = brain.deliver("c", "1", &[conn]);
    stream.expect_chunk(&sse_event("c", &event));
    client.ask("GET", "/again", "");
    assert_eq!(brain.request().target, "/again");
    brain.stat_becomes("requests_in_flight", 1);
}

/// 5, `outbox_bytes_max`: "per connection; beyond it the connection is closed as a slow consumer".
/// Others are not disturbed.
#[test]
fn a_slow_consumer() {
    let (edge, mut brain) = Edge::start(&[("outbox_bytes_max", "200000")]);
    let (slow, slow_conn) = sse(&edge, &mut brain, "slow");
    let (mut other, other_conn) = sse(&edge, &mut brain, "other");
    let data = format!("\"{}\"", "x".repeat(60_000));
    // 18 MB are more than any kernel buffer takes.
    for _ in 0..300 {
        let event = brain.deliver("c", &data, &[slow_conn, other_conn]);
        other.expect_chunk(&sse_event("c", &event));
    }
    assert_eq!(brain.next(), Seen::Close(vec![(slow_conn, 1_000)]));
    brain.stat_becomes("slow_consumers_total", 1);
    brain.stat_becomes("outbox_bytes", 0);
    drop(slow);
}

/// 5, `outboxes_bytes_max`: "per worker, all outboxes together; beyond it the longest outboxes are
/// closed".
#[test]
fn all_outboxes_together() {
    let limits = [("outboxes_bytes_max", "3000000"), ("outbox_bytes_max", "100000000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (long, long_conn) = sse(&edge, &mut brain, "long");
    let (mut short, short_conn) = sse(&edge, &mut brain, "short");
    let data = format!("\"{}\"", "x".repeat(60_000));
    for _ in 0..200 {
        brain.deliver("c", &data, &[long_conn]);
    }
    assert_eq!(brain.next(), Seen::Close(vec![(long_conn, 1_000)]));
    let event = brain.deliver("c", "1", &[short_conn]);
    short.expect_chunk(&sse_event("c", &event));
    brain.stat_becomes("outboxes_full_total", 1);
    brain.stat_becomes("outbox_bytes", 0);
    drop(long);
}

/// http.md 3.5: "A head that takes longer than `request_ms_max` gets 408; a connection that is
/// idle between requests for as long is closed without a word, one that has sent nothing at all
/// after `first_byte_ms_max`."
#[test]
fn slow_heads_and_idle_connections() {
    let settings = [("request_ms_max", "4000"), ("first_byte_ms_max", "4000")];
    let (edge, mut brain) = Edge::start(&settings);
    let mut slow = edge.api();
    let mut idle = edge.api();
    let mut kept = edge.api();
    kept.ask("GET", "/x", "");
    let conn = brain.request().conn;
    brain.respond(conn, 200, "x");
    assert_eq!(kept.response().body, "x");
    let started = Instant::now();
    slow.send("GET / HTTP/1.1\r\n");
    let drip = std::thread::spawn({
        let mut socket = slow.socket.try_clone().unwrap();
        move || {
            while socket.write_all(b"A").is_ok() && started.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    });
    let response = slow.response();
    assert_eq!(response.status, 408);
    assert!(started.elapsed() < Duration::from_secs(15), "while it sends");
    idle.expect_end();
    kept.expect_end();
    drop(slow);
    drip.join().unwrap();
}

/// http.md 3.5: a head has its time from its first byte, however long the connection was idle.
#[test]
fn a_head_that_begins_late() {
    let settings = [("request_ms_max", "6000"), ("first_byte_ms_max", "60000")];
    let (edge, mut brain) = Edge::start(&settings);
    let mut client = edge.api();
    std::thread::sleep(Duration::from_millis(4_800));
    client.send("GET /x HTT");
    std::thread::sleep(Duration::from_millis(1_800));
    client.send("P/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(brain.request().target, "/x");
}

/// http.md 3.5: what came in time is in time, though the edge was held up when it came.
#[test]
fn an_edge_that_is_held_up() {
    let (edge, mut brain) = Edge::start(&[("request_ms_max", "4000")]);
    let mut client = edge.api();
    client.send("GET /x HTT");
    brain.expect_silence(100);
    signal(&edge, "-STOP");
    client.send("P/1.1\r\nHost: h\r\n\r\n");
    std::thread::sleep(Duration::from_millis(4_200));
    signal(&edge, "-CONT");
    assert_eq!(brain.request().target, "/x");
}

/// http.md 3.5: so are all, though they are more than a round of the edge hears of.
#[test]
fn a_crowd_while_an_edge_is_held_up() {
    halley_sys::descriptors_max().unwrap();
    let settings = [("request_ms_max", "6000"), ("pending_connections_percent_max", "100")];
    let (edge, mut brain) = Edge::start(&settings);
    let mut clients: Vec<Client> = (0..1_500).map(|_| edge.api()).collect();
    clients.iter_mut().for_each(|client| client.send("GET /x HTT"));
    brain.expect_silence(100);
    signal(&edge, "-STOP");
    clients.iter_mut().for_each(|client| client.send("P/1.1\r\nHost: h\r\n\r\n"));
    std::thread::sleep(Duration::from_millis(6_200));
    signal(&edge, "-CONT");
    clients.iter().for_each(|_| assert_eq!(brain.request().target, "/x"));
}

/// contract, `edge.connections_max`: "refused beyond it with 503 and Retry-After".
#[test]
fn too_many_connections() {
    let (edge, mut brain) = Edge::start_with(&["--connections-max", "2"], &[], WINDOW);
    let (_one, _) = sse(&edge, &mut brain, "a");
    let (two, b) = sse(&edge, &mut brain, "b");
    let mut third = edge.public();
    let response = third.response();
    assert_eq!((response.status, response.header("retry-after")), (503, Some("5")));
    assert!(response.body.contains("connections_max"));
    third.expect_end();
    drop(two);
    assert_eq!(brain.next(), Seen::Close(vec![(b, 1_000)]));
    sse(&edge, &mut brain, "c");
}

/// Is there a place for a connection? If so its request, which needs no brain, is answered.
fn is_let_in(edge: &Edge) -> bool {
    let mut client = edge.public();
    let ask =
        b"OPTIONS /v1/stream HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: GET\r\n\r\n";
    let mut answer = [0; 12];
    let read = client.socket.write_all(ask).and_then(|()| client.socket.read_exact(&mut answer));
    read.is_ok() && answer == *b"HTTP/1.1 204"
}

/// http.md 16.1: who has left leaves its place to the next, also a stream of which a brain was told
/// that died before it gave the session its number (link.md 6.4): no OPENED is going to come.
#[test]
fn a_place_is_free_without_the_brain() {
    let (edge, mut brain) = Edge::start_with(&["--connections-max", "1"], &[], WINDOW);
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u", "");
    brain.open();
    drop(brain);
    assert!(!is_let_in(&edge));
    drop(client);
    let end = Instant::now() + WAIT;
    while !is_let_in(&edge) {
        assert!(Instant::now() < end, "nobody is connected, and nobody is let in");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// http.md 3.2, and this suite's own bound: a client that asks without reading its answers is not
/// read any more; nothing of it grows in memory.
#[test]
fn a_client_that_only_asks() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    let one = "OPTIONS /p HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: GET\r\n\r\n";
    let many = one.repeat(500);
    client.socket.set_write_timeout(Some(Duration::from_millis(400))).unwrap();
    let mut sent = 0;
    let blocked = loop {
        match client.socket.write(&many.as_bytes()[sent % one.len()..]) {
            Ok(n) => sent += n,
            Err(_) => break true,
        }
        if sent > 64_000_000 {
            break false;
        }
    };
    assert!(blocked, "64 MB were taken");
    brain.expect_silence(10);
    // All that was asked is answered once the client reads.
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    let answers = String::from_utf8(client.rest()).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 204 ").count(), sent / one.len());
}

/// Whatever is waited for, waiting costs nothing: no worker spins.
#[test]
fn waiting_is_idle() {
    let limits = [("request_window_bytes", "10"), ("link_queue_bytes_max", "1000000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (slow, slow_conn) = sse(&edge, &mut brain, "slow");
    let data = format!("\"{}\"", "x".repeat(60_000));
    for _ in 0..12 {
        brain.deliver("c", &data, &[slow_conn]);
    }
    let mut pipelined = edge.api();
    pipelined.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
    brain.request();
    pipelined.send("GET /3 HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut upload = edge.api();
    upload.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n");
    upload.send("x".repeat(50));
    brain.request();
    assert!(matches!(brain.next(), Seen::Body(..)));
    let mut opening = edge.public();
    opening.ask("GET", "/v1/ws?user=w", crate::websocket::UPGRADE);
    brain.open();
    opening.send([0x89, 0x80, 0, 0, 0, 0]);
    let mut closing = edge.api();
    closing.send("nonsense\r\n\r\n");
    assert_eq!(closing.response().status, 400);
    brain.expect_silence(100);
    let cpu = || halley_sys::cpu_ns(edge.child.id()).unwrap();
    let before = cpu();
    std::thread::sleep(Duration::from_millis(600));
    let used = Duration::from_nanos(cpu() - before);
    assert!(used < Duration::from_millis(100), "{used:?} of 600 ms");
    drop((slow, pipelined, upload, opening, closing));
}

/// Says that it is enough, whatever ends the test.
struct Enough(Arc<AtomicBool>);

impl Drop for Enough {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client that asks and reads as fast as it can keeps nobody waiting.
#[test]
fn a_busy_client_leaves_room() {
    let (edge, mut brain) = Edge::start(&[]);
    let client = edge.api();
    let mut reader = client.socket.try_clone().unwrap();
    let mut writer = client.socket.try_clone().unwrap();
    let one = "OPTIONS /p HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: GET\r\n\r\n";
    let many = one.repeat(700);
    let stop = Arc::new(AtomicBool::new(false));
    let enough = Enough(Arc::clone(&stop));
    let write = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) && writer.write_all(many.as_bytes()).is_ok() {}
        let _ = writer.shutdown(std::net::Shutdown::Write);
    });
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let read = std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(n @ 1..) = reader.read(&mut buffer) {
            count.fetch_add(n, Ordering::Relaxed);
        }
    });
    let mut meanwhile: Vec<usize> = (0..11)
        .map(|_| {
            let before = taken.load(Ordering::Relaxed);
            let mut other: Client = edge.api();
            other.ask("GET", "/x", "");
            let conn = brain.request().conn;
            brain.respond(conn, 200, "x");
            assert_eq!(other.response().body, "x");
            taken.load(Ordering::Relaxed) - before
        })
        .collect();
    drop(enough);
    write.join().unwrap();
    read.join().unwrap();
    // About 200,000 in each round of the edge, and a request needs one or two of them: turns are
    // counted, as how long one takes depends on the machine. It may hold this test up for a while,
    // so most of them count.
    meanwhile.sort_unstable();
    assert!(
        meanwhile[5] < 4_000_000,
        "bytes of answers for one while requests waited: {meanwhile:?}"
    );
}
