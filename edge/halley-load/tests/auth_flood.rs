//! `halley-load auth-flood` against a server that refuses: is every answer counted, and is every
//! request whole and with a token?

#![allow(clippy::unwrap_used)]

mod double;
mod program;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use program::{Scratch, run, stderr, tool};
use socket2::{Domain, Socket, Type};

/// Requests that the server has to see before the flood ends.
const REQUESTS_MIN: u64 = 500;
const CONNECTIONS: u64 = 4;

/// What the server has seen.
#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    /// Of these, without one token.
    bad: AtomicU64,
}

/// A server that refuses every request, and every 50th in a way that closes the connection.
fn refusing() -> (String, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Seen::default());
    let shared = Arc::clone(&seen);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, seen) = (socket.unwrap(), Arc::clone(&shared));
            thread::spawn(move || refuse(&socket, &seen));
        }
    });
    (url, seen)
}

fn refuse(mut socket: &TcpStream, seen: &Seen) {
    let mut lines = BufReader::new(socket).lines();
    while let Some(Ok(first)) = lines.next() {
        assert_eq!(first, "GET /v1/me/follows HTTP/1.1");
        let mut tokens = 0;
        loop {
            let Some(Ok(line)) = lines.next() else { return };
            if line.is_empty() {
                break;
            }
            tokens += u64::from(line.starts_with("Authorization: Bearer ") && line.len() > 22);
        }
        seen.bad.fetch_add(u64::from(tokens != 1), Ordering::Relaxed);
        let count = seen.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let (code, close) =
            if count % 50 == 0 { ("token_expired", "close") } else { ("token_signature", "x") };
        let body = format!("{{\"error\":{{\"code\":\"{code}\",\"message\":\"No.\"}}}}");
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 401 Unauthorized\r\nConnection: {close}\r\nContent-Length: {length}\r\n\r\n"
        );
        if socket.write_all((answer + &body).as_bytes()).is_err() || close == "close" {
            return;
        }
    }
}

#[test]
fn every_refusal_is_counted() {
    for (kind, pipeline) in [("signature", "1"), ("mixed", "8")] {
        let (url, seen) = refusing();
        let (secret, json) = (Scratch::new(&format!("secret-{kind}")), Scratch::new(kind));
        std::fs::write(&secret.0, "a secret of more than thirty-two bytes\n").unwrap();
        let connections = CONNECTIONS.to_string();
        let child = tool()
            .args(["auth-flood", "--url", &url, "--path", "/v1/me/follows", "--seconds", "60"])
            .args(["--token-secret-file", secret.path(), "--kind", kind, "--pipeline", pipeline])
            .args(["--connections", &connections, "--json", json.path()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(50);
        while seen.requests.load(Ordering::Relaxed) < REQUESTS_MIN && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        // It ends as by Ctrl-C: with its figures.
        let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(interrupt.unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let figures = json.json();
        let of = |name: &str| figures[name].as_u64().unwrap();
        let (answers, requests) = (of("answers"), seen.requests.load(Ordering::Relaxed));
        // What was on its way at the end has no answer any more; nor has what was behind a close.
        let on_its_way = CONNECTIONS * 8;
        assert!(answers >= REQUESTS_MIN - on_its_way && answers <= requests, "{figures}");
        assert!(requests <= answers + on_its_way, "{requests} requests: {figures}");
        assert_eq!(seen.bad.load(Ordering::Relaxed), 0);
        assert_eq!(figures["statuses"]["401"], answers);
        let codes = &figures["codes"];
        let expired = codes["token_expired"].as_u64().unwrap();
        assert_eq!(codes["token_signature"].as_u64().unwrap() + expired, answers);
        // One on each connection may be on its way.
        assert!((answers / 50..=requests / 50 + CONNECTIONS).contains(&(expired + CONNECTIONS)));
        assert_eq!(of("closed"), expired);
        let per_s = answers as f64 / figures["seconds"].as_f64().unwrap();
        assert!((figures["answers_per_s"].as_f64().unwrap() / per_s - 1.0).abs() < 0.01);
    }
}

#[test]
fn nobody_there_is_a_failure() {
    // A port that is taken, so that nobody else listens on it, and that refuses.
    let taken = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    taken.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = taken.local_addr().unwrap().as_socket().unwrap();
    let secret = Scratch::new("secret-nobody");
    std::fs::write(&secret.0, "secret").unwrap();
    let url = format!("http://{address}");
    let file = secret.path();
    let output =
        run(&["auth-flood", "--url", &url, "--token-secret-file", file, "--seconds", "0.1"]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("nothing was answered"), "{}", stderr(&output));
    let output = run(&["auth-flood", "--token-secret-file", file, "--path", "v1"]);
    assert!(stderr(&output).contains("expected one as /v1/stream"), "{}", stderr(&output));
}
