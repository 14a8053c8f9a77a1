//! Long-polls: http.md 11, and clause 10.7.

use std::time::{Duration, Instant};

use halley_link::CloseReason;

use crate::brain::{Brain, Edge, Seen};
use crate::client::{Client, Response};
use crate::replaying::{handshake_again, json};

/// Asks; gives the client and the connection id after OPEN, which had this cursor.
fn ask(edge: &Edge, brain: &mut Brain, query: &str, cursor: &str) -> (Client, u64) {
    let mut client = edge.public();
    let conn = ask_again(&mut client, brain, query, cursor);
    (client, conn)
}

fn ask_again(client: &mut Client, brain: &mut Brain, query: &str, cursor: &str) -> u64 {
    client.ask("GET", &format!("/v1/poll?user=u&{query}"), "");
    let (conn, transport, seen) = brain.open_behind();
    assert_eq!((transport, seen.as_str()), (5, cursor));
    conn
}

fn body(events: &[u64], cursor: &str) -> String {
    let events: Vec<_> = events.iter().map(|seq| json(*seq)).collect();
    format!(r#"{{"events":[{}],"cursor":"{cursor}"}}"#, events.join(","))
}

/// 11.5: of a poll that isn't whole.
fn part(events: &[u64], cursor: &str) -> String {
    let whole = body(events, cursor);
    format!(r#"{},"more":true}}"#, &whole[..whole.len() - 1])
}

fn answered(client: &mut Client, brain: &mut Brain, session: (u64, u32)) -> Response {
    let response = client.response();
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(brain.next(), Seen::Close(vec![session]));
    assert_eq!(brain.reasons[&session.0], CloseReason::Poll);
    response
}

/// 11.3: "`timeout=0` fetches a cursor to begin with"; 11.4: "The connection stays open for the
/// next one (3.1). `Cache-Control: no-store`." 2.4: the next poll has another connection id, so
/// what is on its way for the first one, which may be another user's, never reaches it.
#[test]
fn a_cursor_to_begin_with_and_the_next_poll() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, first) = ask(&edge, &mut brain, "timeout=0", "");
    client.expect_silence(100);
    brain.opened_at(first, 7, "o1");
    let response = answered(&mut client, &mut brain, (first, 7));
    assert_eq!(response.body, body(&[], "o1"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("connection"), None);
    let second = ask_again(&mut client, &mut brain, "cursor=o1", "o1");
    assert_ne!(first, second);
    brain.live((1, 1, "stale"), &[first]);
    brain.replay(first, &[(1, 2, "stale")]);
    brain.opened(second, 8);
    brain.stat_becomes("stale_deliveries_total", 1);
    brain.replay(second, &[(1, 5, "r5"), (2, 6, "r6")]);
    let response = answered(&mut client, &mut brain, (second, 8));
    assert_eq!(response.body, part(&[5, 6], "r6"));
    // 10.7: no REPLAYED. The connection is one for any request.
    client.ask("GET", "/v1/x", "");
    let conn = brain.request().conn;
    assert!(conn != first && conn != second);
    brain.respond(conn, 200, "x");
    assert_eq!(client.response().body, "x");
    brain.stat_becomes("polls_total", 2);
    brain.stat_becomes("sessions", 0);
    brain.stat_becomes("held_sessions", 0);
}

/// 11.3: "else with the events of the first round that brings any"; the cursor is the link's
/// (10.1). Without a cursor the poll waits for new events alone.
#[test]
fn what_the_first_round_brings() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = ask(&edge, &mut brain, "timeout=20", "");
    brain.opened_at(conn, 7, "o1");
    brain.cursor("c2");
    client.expect_silence(50);
    brain.live((1, 3, "l3"), &[conn]);
    let response = answered(&mut client, &mut brain, (conn, 7));
    assert_eq!(response.body, body(&[3], "l3"));
}

/// 10.5, 11.3: a poll that missed nothing is held until LAST, and gets what was held then.
#[test]
fn held_then_live() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = ask(&edge, &mut brain, "cursor=c0", "c0");
    brain.opened(conn, 7);
    brain.live((1, 10, "l10"), &[conn]);
    brain.live((1, 12, "l12"), &[conn]);
    client.expect_silence(50);
    brain.replay(conn, &[]);
    assert_eq!(brain.next(), Seen::Replayed(conn));
    brain.last(conn, "l13", &[10], &[]);
    let response = answered(&mut client, &mut brain, (conn, 7));
    assert_eq!(response.body, body(&[12], "l13"));
    let conn = ask_again(&mut client, &mut brain, "cursor=l13", "l13");
    brain.opened(conn, 7);
    brain.last(conn, "l13", &[12], &[]);
    client.expect_silence(50);
    brain.live((1, 14, "l14"), &[conn]);
    let response = answered(&mut client, &mut brain, (conn, 7));
    assert_eq!(response.body, body(&[14], "l14"));
}

/// 11.3: "else, after `timeout`, with no events and the cursor": the link's, or, where the replay
/// has not ended, the poll's own. What came before OPENED is in the answer.
#[test]
fn its_time_is_over() {
    let (edge, mut brain) = Edge::start(&[]);
    brain.cursor("c1");
    let started = Instant::now();
    // The link moves on long before its time is over.
    let (mut live, live_conn) = ask(&edge, &mut brain, "timeout=4", "");
    brain.opened_at(live_conn, 7, "o1");
    brain.cursor("l2");
    let response = answered(&mut live, &mut brain, (live_conn, 7));
    assert_eq!(response.body, body(&[], "l2"));
    assert!(started.elapsed() >= Duration::from_secs(4));
    let (mut held, held_conn) = ask(&edge, &mut brain, "timeout=0.3&cursor=c0", "c0");
    brain.opened(held_conn, 8);
    brain.live((1, 2, "l2"), &[held_conn]);
    let response = answered(&mut held, &mut brain, (held_conn, 8));
    assert_eq!(response.body, part(&[], "c0"), "what was held comes again");
    let (mut early, conn) = ask(&edge, &mut brain, "timeout=9", "");
    brain.live((1, 3, "l3"), &[conn]);
    early.expect_silence(50);
    brain.opened_at(conn, 9, "o3");
    let response = answered(&mut early, &mut brain, (conn, 9));
    assert_eq!(response.body, body(&[3], "o3"));
}

/// 11.1: "with `"gap":{…}` before `events` where there is one".
#[test]
fn a_gap() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = ask(&edge, &mut brain, "cursor=a%22", "-");
    brain.opened(conn, 7);
    brain.gap("malformed", (0, 0), "g1", &[conn]);
    client.expect_silence(50);
    brain.last(conn, "g1", &[1], &[]);
    let response = answered(&mut client, &mut brain, (conn, 7));
    let gap = r#""gap":{"from":null,"to":null,"reason":"malformed"}"#;
    assert_eq!(response.body, format!(r#"{{{gap},"events":[],"cursor":"g1"}}"#));
    let conn = ask_again(&mut client, &mut brain, "cursor=old", "old");
    brain.opened(conn, 7);
    brain.gap("too_old", (1, 2), "g2", &[conn]);
    brain.replay(conn, &[(1, 5, "r5")]);
    let response = answered(&mut client, &mut brain, (conn, 7));
    let gap = r#""gap":{"from":1,"to":2,"reason":"too_old"}"#;
    let expected = format!(r#"{{{gap},"events":[{}],"cursor":"r5","more":true}}"#, json(5));
    assert_eq!(response.body, expected);
}

/// 11.2: "anything else is 400 `bad_timeout`"; "longer than `poll_ms_max` counts as that". The rest
/// is as for streams: who is asking, other methods, HEAD, preflights.
#[test]
fn other_requests() {
    let (edge, mut brain) = Edge::start(&[("poll_ms_max", "200"), ("cors_origins", "*")]);
    for timeout in ["", "x", "-1", "1e3", "1."] {
        let mut client = edge.public();
        client.ask("GET", &format!("/v1/poll?user=u&timeout={timeout}"), "");
        let response = client.response();
        assert_eq!(response.status, 400, "{timeout}");
        assert!(response.body.contains("bad_timeout"));
    }
    let mut client = edge.public();
    client.ask("GET", "/v1/poll", "");
    assert!(client.response().body.contains("user_missing"));
    client.ask("PUT", "/v1/poll?user=u", "");
    let response = client.response();
    let allow = response.header("allow");
    assert_eq!((response.status, allow), (405, Some("GET, HEAD, POST, OPTIONS")));
    client.ask("HEAD", "/v1/poll?user=u", "");
    let head = client.head();
    assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
    client.ask("OPTIONS", "/v1/poll", "Origin: http://a\r\nAccess-Control-Request-Method: GET\r\n");
    assert_eq!(client.response().status, 204);
    brain.expect_silence(20);
    let started = Instant::now();
    client.ask("GET", "/v1/poll?user=u&timeout=999999999999999999999", "Origin: http://a\r\n");
    let (conn, ..) = brain.open_behind();
    brain.opened_at(conn, 7, "o1");
    let response = answered(&mut client, &mut brain, (conn, 7));
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    // HTTP/1.0 without keep-alive: the answer is the connection's last.
    let mut old = edge.public();
    old.send("GET /v1/poll?user=u&timeout=0 HTTP/1.0\r\n\r\n");
    let (conn, ..) = brain.open_behind();
    brain.opened_at(conn, 7, "o1");
    let response = answered(&mut old, &mut brain, (conn, 7));
    assert_eq!(
        (&*response.body, response.header("connection")),
        (&*body(&[], "o1"), Some("close"))
    );
    old.expect_end();
}

/// 3.2: "Requests may be pipelined; they are answered in their order, one at a time".
#[test]
fn pipelined_polls() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.public();
    let poll = |user: &str| format!("GET /v1/poll?user={user} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.send(format!("{}{}", poll("a"), poll("b")));
    let (first, _, user) = brain.open();
    assert_eq!(user, "a");
    // And a third one, while the first is waiting.
    client.send(poll("c"));
    brain.opened_at(first, 1, "o1");
    brain.expect_silence(50);
    brain.live((1, 1, "l1"), &[first]);
    assert_eq!(client.response().body, body(&[1], "l1"));
    let mut last = first;
    for (number, expected) in [(2, "b"), (3, "c")] {
        // OPEN and CLOSE of one round come in this order; the ids are different.
        let seen = [brain.next(), brain.next()];
        let open = seen.iter().find_map(|seen| match seen {
            Seen::Open(sessions) => Some(sessions[0].clone()),
            _ => None,
        });
        let (conn, _, user) = open.unwrap();
        assert_eq!(user, expected);
        assert!(seen.contains(&Seen::Close(vec![(last, number - 1)])), "{seen:?}");
        brain.opened_at(conn, number, "o2");
        brain.live((1, number.into(), "l"), &[conn, last]);
        assert_eq!(client.response().body, body(&[number.into()], "l"));
        last = conn;
    }
    assert_eq!(brain.next(), Seen::Close(vec![(last, 3)]));
}

/// A client that closes, or only its side, while it polls is gone: with what it hasn't read.
#[test]
fn a_client_that_leaves() {
    let (edge, mut brain) = Edge::start(&[]);
    let (client, conn) = ask(&edge, &mut brain, "timeout=20", "");
    brain.opened_at(conn, 7, "o1");
    brain.expect_silence(50);
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 7)]));
    assert_eq!(brain.reasons[&conn], CloseReason::Client);
    // Together with the request, and behind more than is read ahead.
    for ahead in [0, 100_000] {
        let mut client = edge.public();
        client.ask("GET", "/v1/poll?user=u", "");
        client.send("x".repeat(ahead));
        client.socket.shutdown(std::net::Shutdown::Write).unwrap();
        let (conn, ..) = brain.open_behind();
        brain.opened_at(conn, 7, "o1");
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 7)]), "{ahead} bytes ahead");
    }
    brain.stat_becomes("sessions", 0);
    brain.stat_becomes("connections", 0);
}

/// Brain away: a poll waits for its session as streams do (`stream_open_ms_max`), then 503; one
/// that has its session waits on, and goes on with the next brain or its time.
#[test]
fn a_brain_that_is_away() {
    let (edge, mut brain) = Edge::start(&[("stream_open_ms_max", "300")]);
    let (mut late, late_conn) = ask(&edge, &mut brain, "", "");
    let response = late.response();
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    late.expect_end();
    brain.opened(late_conn, 3);
    assert_eq!(brain.next(), Seen::Close(vec![(late_conn, 3)]));
    let (edge, mut brain) = Edge::start(&[]);
    let (mut live, conn) = ask(&edge, &mut brain, "timeout=25", "");
    brain.opened_at(conn, 7, "o1");
    let (mut short, short_conn) = ask(&edge, &mut brain, "timeout=4", "");
    let asked = Instant::now();
    brain.opened_at(short_conn, 8, "o1");
    brain.cursor("c1");
    assert!(matches!(brain.inspect(1, conn), Seen::Inspected(..)));
    let (mut brain, cursor, sessions) = handshake_again(&edge, brain);
    assert_eq!(cursor, "c1");
    assert_eq!(sessions, [(conn, String::new()), (short_conn, String::new())]);
    brain.live((1, 2, "l2"), &[conn]);
    std::thread::sleep(Duration::from_millis(4_200).saturating_sub(asked.elapsed()));
    live.expect_silence(1);
    short.expect_silence(1);
    // 6.4: only with its number can the end be told, so the answers waited for it.
    brain.opened(conn, 17);
    let response = answered(&mut live, &mut brain, (conn, 17));
    assert_eq!(response.body, body(&[2], "l2"));
    brain.opened(short_conn, 18);
    let response = answered(&mut short, &mut brain, (short_conn, 18));
    assert_eq!(response.body, body(&[], "l2"));
}

/// 6.6: a poll whose session is closed is answered with what there is; the connection ends.
#[test]
fn close_sessions() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = ask(&edge, &mut brain, "cursor=c0", "c0");
    brain.opened(conn, 7);
    brain.close_sessions("moved", &[conn]);
    let response = client.response();
    assert_eq!(
        (&*response.body, response.header("connection")),
        (&*part(&[], "c0"), Some("close"))
    );
    client.expect_end();
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 7)]));
    assert_eq!(brain.reasons[&conn], CloseReason::CloseSessions);
}

/// 6.4: "a connection that ends before OPENED waits for it": also one that had an earlier brain's.
#[test]
fn closed_without_its_number() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = ask(&edge, &mut brain, "timeout=20", "");
    brain.opened_at(conn, 7, "o1");
    assert!(matches!(brain.inspect(1, conn), Seen::Inspected(..)));
    let (mut brain, ..) = handshake_again(&edge, brain);
    brain.close_sessions("moved", &[conn]);
    assert_eq!(client.response().body, body(&[], "o1"));
    client.expect_end();
    drop(client);
    brain.expect_silence(50);
    brain.opened(conn, 17);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 17)]));
    brain.stat_becomes("connections", 0);
}
