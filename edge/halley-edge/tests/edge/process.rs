//! Clause 9 and the command line: how the process begins and ends.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use halley_link::Frame;

use crate::brain::{Edge, Seen, command};
use crate::client::sse;

fn signal(edge: &Edge, name: &str) {
    let pid = edge.child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// contract: "`SIGTERM` to either: a clean stop." http.md 7.6: streams are ended by the last chunk.
#[test]
fn sigterm() {
    let (mut edge, mut brain) = Edge::start(&[]);
    let (mut client, _) = sse(&edge, &mut brain, "u");
    let (mut websocket, _) = crate::websocket::open(&edge, &mut brain, "w");
    signal(&edge, "-TERM");
    client.expect("0\r\n\r\n");
    client.expect_end();
    let (first, payload) = crate::websocket::frame(&mut websocket);
    assert_eq!((first, &payload[..2]), (0x88, &[0x03, 0xe9][..]), "RFC 6455 7.4.1: going away");
    drop(websocket);
    assert_eq!(edge.exit_code(), Some(0));
    assert!(!edge.dir.join("worker-0.sock").exists());
}

/// contract: the edge outlives the brain's terminal.
#[test]
fn sighup_is_nothing() {
    let (mut edge, mut brain) = Edge::start(&[]);
    signal(&edge, "-HUP");
    std::thread::sleep(Duration::from_millis(150));
    sse(&edge, &mut brain, "u");
    assert_eq!(edge.child.try_wait().unwrap(), None);
}

/// 9.1: "SHUTDOWN asks the whole edge to stop: workers stop accepting, close their connections
/// over `drain_ms`, and the process exits with 0."
#[test]
fn shutdown() {
    let (mut edge, mut brain) = Edge::start_with(&["--workers", "2"], &[], 1 << 20);
    let mut waiting = edge.api();
    waiting.ask("GET", "/x", "");
    // The kernel chooses the worker, and only worker 0 has met its brain.
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u", "");
    brain.send(&Frame::Shutdown { drain_ms: 100 });
    let started = Instant::now();
    assert_eq!(edge.exit_code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(3));
}

/// 9.1, 2.7: streams end properly and the brain is told: GOODBYE 6.
#[test]
fn shutdown_tells_the_brain() {
    let (mut edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = sse(&edge, &mut brain, "u");
    brain.send(&Frame::Shutdown { drain_ms: 0 });
    client.expect("0\r\n\r\n");
    client.expect_end();
    drop(client);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    assert!(matches!(brain.next(), Seen::Goodbye(6, _)));
    assert_eq!(edge.exit_code(), Some(0));
}

/// 9.1: a stream that waits for its session is told to come back, a request as well.
#[test]
fn shutdown_answers_who_waits() {
    let (mut edge, mut brain) = Edge::start(&[]);
    let mut stream = edge.public();
    stream.ask("GET", "/v1/stream?user=u", "");
    brain.open();
    let mut request = edge.api();
    request.ask("GET", "/x", "");
    brain.request();
    brain.send(&Frame::Shutdown { drain_ms: 0 });
    for client in [&mut stream, &mut request] {
        let response = client.response();
        assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
        client.expect_end();
    }
    drop((stream, request));
    assert_eq!(edge.exit_code(), Some(0));
}

/// 9.1: "close their connections over `drain_ms`"; a signal cuts it short.
#[test]
fn a_drain_takes_its_time_unless_a_signal_comes() {
    let (mut edge, mut brain) = Edge::start(&[]);
    let mut clients: Vec<_> = (0..8).map(|i| sse(&edge, &mut brain, &format!("u{i}")).0).collect();
    // A slot has its turn by its place among the 1,024 of a small table: here two in a second.
    brain.send(&Frame::Shutdown { drain_ms: 600_000 });
    clients[7].expect_silence(300);
    signal(&edge, "-TERM");
    for client in &mut clients {
        client.expect("0\r\n\r\n");
    }
    drop(clients);
    assert_eq!(edge.exit_code(), Some(0));
}

fn one_line(arguments: &[&str]) -> (Option<i32>, String) {
    let (mut command, dir) = command(arguments);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let _ = std::fs::remove_dir_all(dir);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    (output.status.code(), text)
}

/// contract: "a port in use: one clear line on stderr that names the key, and exit 1".
#[test]
fn a_port_in_use() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (option, key) in [("--public", "public.listen"), ("--api", "api.listen")] {
        let (code, line) = one_line(&[option, &address]);
        assert_eq!(code, Some(1));
        assert!(line.contains(key) && line.contains(&address), "{line}");
    }
}

/// contract: the two listeners must not share a port, by which the kernel would mix their clients.
#[test]
fn one_port_for_both() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = address.to_string();
    let (code, line) = one_line(&["--public", &address, "--api", &address]);
    assert_eq!(code, Some(1));
    assert!(line.contains("api.listen"), "{line}");
}

/// contract: an address of another machine.
#[test]
fn an_address_that_is_not_ours() {
    let (code, line) = one_line(&["--public", "192.0.2.1:0"]);
    assert_eq!(code, Some(1));
    assert!(line.contains("public.listen"), "{line}");
}
