//! Requests without a worker.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::os::unix::net::UnixStream;

use halley_link::{CloseReason, FLAG_END, List};

use crate::conns::table::Phase;
use crate::conns::tests::{enter, read};
use crate::http::read::SMALL_CHUNKS_EVERY_MS;
use crate::http::state::Http;
use crate::sessions::Sessions;
use crate::sessions::base::answer::Answer;
use crate::sessions::base::io::Io;
use crate::sessions::tests::{Brain, io, settle};
use crate::stats::Stat;

struct Edge {
    io: Io,
    brain: Brain,
    sessions: Sessions,
    http: Http,
}

impl Edge {
    fn new() -> Edge {
        let (io, brain) = io();
        Edge { io, brain, sessions: Sessions::new(), http: Http::default() }
    }

    fn hears(&mut self, index: u32, text: &str) {
        self.http.http_bytes(&mut self.io, &mut self.sessions, index, text.as_bytes());
    }

    fn reads(&mut self, client: &mut UnixStream) -> (String, bool) {
        settle(&mut self.io, &mut self.sessions);
        read(client)
    }

    fn answers(&mut self, index: u32, body: &[u8]) {
        let (conn, headers) = (self.io.conns.table.conn(index), List::from_items(0, &[]));
        let body_bytes = body.len() as u64;
        let answer = Answer { status: 200, flags: FLAG_END, body_bytes, headers, body };
        self.http.response(&mut self.io, &mut self.sessions, conn, answer);
    }

    fn in_flight(&self) -> u64 {
        self.io.conns.stats.get(Stat::RequestsInFlight)
    }
}

const POST: &str = "POST /v1/me/events?user=ann HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}";

/// 8.1: a request goes to the brain, its answer to the client, and then comes the next.
#[test]
fn requests_are_passed_on_one_by_one() {
    let mut edge = Edge::new();
    let (index, mut client) = enter(&mut edge.io.conns);
    edge.hears(index, &format!("{POST}{POST}"));
    assert_eq!((edge.brain.told(&mut edge.io), edge.in_flight()), (vec!["Request".into()], 1));
    edge.answers(index, b"one");
    assert_eq!(edge.in_flight(), 0);
    assert!(edge.reads(&mut client).0.ends_with("\r\n\r\none"));
    assert_eq!(edge.io.conns.ready, [index], "what was sent ahead is gone on with");
    edge.http.resume_http(&mut edge.io, &mut edge.sessions, index);
    assert_eq!((edge.brain.told(&mut edge.io), edge.in_flight()), (vec!["Request".into()], 1));
}

/// 8.6: the brain hears that nobody waits for its answer, which then meets nobody.
#[test]
fn a_client_that_leaves_is_told_of() {
    let mut edge = Edge::new();
    let (index, mut client) = enter(&mut edge.io.conns);
    edge.hears(index, POST);
    edge.brain.told(&mut edge.io);
    edge.io.conns.doom(index, CloseReason::Client);
    edge.answers(index, b"late");
    assert_eq!(edge.reads(&mut client), (String::new(), true));
    assert_eq!((edge.brain.told(&mut edge.io), edge.in_flight()), (vec!["RequestGone".into()], 0));
    assert_eq!(edge.io.conns.table.used(), 0);
}

/// 8.7: without a brain a request is answered here, and the connection stays.
#[test]
fn without_a_brain_requests_are_answered_here() {
    let mut edge = Edge::new();
    edge.io.link.lost();
    let (index, mut client) = enter(&mut edge.io.conns);
    edge.hears(index, "GET /v1/me/follows?user=ann HTTP/1.1\r\nHost: h\r\n\r\n");
    let (text, ended) = edge.reads(&mut client);
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("brain_away"), "{text}");
    assert!(!ended && edge.io.conns.is_in(index, Phase::Http));
    edge.hears(index, "nonsense\r\n\r\n");
    let (text, ended) = edge.reads(&mut client);
    assert!(text.starts_with("HTTP/1.1 400 ") && ended, "{text}");
    assert_eq!(edge.io.conns.phase(index), Phase::Closing);
}

/// link.md 8.9: all bodies in small chunks together are read once in 4 ms, and each read is one
/// frame. Meanwhile nothing else waits, and none of them is late.
#[test]
fn bodies_in_small_chunks_take_turns() {
    let mut edge = Edge::new();
    let head =
        "POST /v1/me/events?user=ann HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut uploads: Vec<_> = (0..3).map(|_| enter(&mut edge.io.conns)).collect();
    for (index, client) in &mut uploads {
        edge.hears(*index, head);
        edge.hears(*index, &"1\r\nx\r\n".repeat(10));
        client.write_all(&b"1\r\ny\r\n".repeat(100)).unwrap();
    }
    assert_eq!(edge.brain.told(&mut edge.io), ["Request", "RequestBody"].repeat(3));
    let Edge { io, sessions, http, brain } = &mut edge;
    for (index, _) in &uploads {
        http.http_readable(io, sessions, *index);
        http.http_readable(io, sessions, *index);
    }
    assert_eq!((http.small_chunks.len(), http.pause_ms(io)), (3, 0), "each once");
    http.body_is_late(io, sessions, uploads[2].0);
    for (turn, left) in [(0, 2), (1, 1), (2, 0)] {
        io.conns.clock.now_ms = 100 + turn * SMALL_CHUNKS_EVERY_MS;
        http.read_small_chunks(io, sessions);
        assert_eq!(brain.told(io), ["RequestBody"], "one of them, and one frame");
        http.read_small_chunks(io, sessions);
        assert!(brain.told(io).is_empty(), "no other in the same turn");
        let pause_ms = if left > 0 { SMALL_CHUNKS_EVERY_MS } else { u64::MAX };
        assert_eq!((http.small_chunks.len(), http.pause_ms(io)), (left, pause_ms));
    }
}

/// http.md 16.6: a byte now and then doesn't put off the end of a body that is late already.
#[test]
fn a_late_body_stays_late() {
    let mut edge = Edge::new();
    let (index, _client) = enter(&mut edge.io.conns);
    edge.io.conns.clock.now_ms = 1_000;
    edge.hears(index, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
    let grace_ms = edge.io.conns.settings.pace_grace_ms;
    let deadline = |edge: &mut Edge| edge.io.conns.slot(index).map(|slot| slot.deadline);
    edge.io.conns.clock.now_ms += grace_ms + 500;
    edge.hears(index, "a");
    let late = deadline(&mut edge);
    for _ in 0..20 {
        edge.io.conns.clock.now_ms += 100;
        edge.hears(index, "a");
    }
    assert_eq!(deadline(&mut edge), late);
}

/// http.md 6: a preflight is told the methods of the path.
#[test]
fn preflights_name_the_methods_of_the_path() {
    for (path, has_post) in [("/v1/ws", false), ("/v1/stream", true), ("/v1/me/events", true)] {
        let mut edge = Edge::new();
        let (index, mut client) = enter(&mut edge.io.conns);
        let lines = "Host: h\r\nOrigin: http://a\r\nAccess-Control-Request-Method: POST\r\n";
        edge.hears(index, &format!("OPTIONS {path} HTTP/1.1\r\n{lines}\r\n"));
        let (text, _) = edge.reads(&mut client);
        assert!(text.starts_with("HTTP/1.1 204 "), "{text}");
        assert_eq!(text.contains("POST"), has_post, "{text}");
    }
}

/// A stream's request becomes a session, and HEAD is only answered.
#[test]
fn a_stream_waits_for_its_session() {
    let mut edge = Edge::new();
    let (index, mut client) = enter(&mut edge.io.conns);
    edge.io.conns.clock.now_ms = 10_000;
    edge.hears(index, "HEAD /v1/stream?user=ann HTTP/1.1\r\nHost: h\r\n\r\n");
    let (text, _) = edge.reads(&mut client);
    assert!(text.starts_with("HTTP/1.1 200 ") && edge.io.conns.is_in(index, Phase::Http), "{text}");
    edge.hears(index, "GET /v1/stream?user=ann HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(edge.reads(&mut client), (String::new(), false), "before OPENED");
    assert_eq!(
        (edge.io.conns.phase(index), edge.brain.told(&mut edge.io)),
        (Phase::Opening, vec!["Open".into()])
    );
}

/// A connection that is doomed in the middle of a form gives back what that had.
#[test]
fn a_form_ends_with_its_connection() {
    let mut edge = Edge::new();
    let (index, mut client) = enter(&mut edge.io.conns);
    let head = "POST /v1/poll?user=u HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\
                Content-Type: application/x-www-form-urlencoded\r\n\r\n";
    edge.hears(index, &format!("{head}subject="));
    assert_eq!(edge.http.forms.bytes(), head.len() + 9);
    edge.io.conns.doom(index, CloseReason::Client);
    assert_eq!(edge.reads(&mut client), (String::new(), true));
    assert_eq!((edge.http.forms.bytes(), edge.io.conns.table.used()), (0, 0));
}
