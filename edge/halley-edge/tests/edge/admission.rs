//! http.md 13.1 to 13.3: admission, and the times that clients get to come back.

use std::time::{Duration, Instant};

use crate::brain::{Edge, Seen};
use crate::client::{Client, header};
use crate::drain::{chunk, retry};
use crate::process::signal;

/// Asks for so many streams on connections that are there already.
fn ask(edge: &Edge, count: usize, lines: &str) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| edge.public()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.ask("GET", &format!("/v1/stream?user=u{i}"), lines);
        // One after the other, so that their order is known.
        std::thread::sleep(Duration::from_micros(300));
    }
    clients
}

/// 13.1: "A worker admits at most `admission_per_s_max` streams and polls in a second. More of them
/// wait in their order".
#[test]
fn the_rate_and_the_order_are_kept() {
    let limits = [("admission_per_s_max", "200"), ("admission_wait_ms_max", "5000")];
    let (edge, mut brain) = Edge::start(&limits);
    let started = Instant::now();
    let clients = ask(&edge, 300, "");
    let (mut users, mut times) = (Vec::new(), Vec::new());
    while users.len() < 300 {
        match brain.next() {
            Seen::Open(sessions) => {
                users.extend(sessions.iter().map(|(_, _, user)| user.clone()));
                times.resize(users.len(), started.elapsed().as_millis());
            }
            other => panic!("not OPEN: {other:?}"),
        }
    }
    let order: Vec<String> = (0..300).map(|i| format!("u{i}")).collect();
    assert_eq!(users, order);
    // At any time: what the rate allows, one, and what may come at once.
    for (n, ms) in times.iter().enumerate() {
        let most = (ms + 64) * 200 / 1_000 + 1;
        assert!(n as u128 <= most, "{n} after {ms} ms");
    }
    let all = *times.last().unwrap();
    assert!((1_400..15_000).contains(&all), "300 at 200/s took {all} ms");
    brain.stat_becomes("waiting", 0);
    brain.stat_becomes("busy_total", 0);
    drop(clients);
}

/// What is done while the edge stands still meets it at one time, and in this order.
fn at_once<T>(edge: &Edge, act: impl FnOnce() -> T) -> T {
    signal(edge, "-STOP");
    let done = act();
    signal(edge, "-CONT");
    done
}

/// 13.2: "To an SSE stream that is a complete answer, 200, with the comment `: busy` and `retry:`
/// [...]; to all others 503 `busy` with `Retry-After`. Both times are spread at random over the
/// time that the waiting ones need, and 1 s at least."
#[test]
fn who_would_wait_too_long_is_told_when_to_come_back() {
    // Four wait, for a second each: all others ask before the first of these has its turn.
    let limits = [("admission_per_s_max", "1"), ("admission_wait_ms_max", "4000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (clients, sse, mut plain, others) = at_once(&edge, || {
        let clients = ask(&edge, 5, "");
        let sse = ask(&edge, 60, "Accept: text/event-stream\r\n");
        let mut plain = edge.public();
        plain.send("GET /v1/stream?user=old HTTP/1.0\r\n\r\n");
        let mut others = ask(&edge, 20, "Accept: application/x-ndjson\r\n");
        for (target, lines) in
            [("/v1/ws?user=w", crate::websocket::UPGRADE), ("/test/a", ""), ("/v1/poll?user=p", "")]
        {
            others.push(edge.public());
            others.last_mut().unwrap().ask("GET", target, lines);
        }
        (clients, sse, plain, others)
    });
    let mut retries = Vec::new();
    for mut client in sse {
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(header(&head, "content-type"), Some("text/event-stream"));
        assert_eq!(header(&head, "connection"), Some("close"));
        let busy = chunk(&mut client);
        retries.push(retry(&busy));
        assert_eq!(busy, format!(": busy\nretry: {}\n\n", retries[retries.len() - 1]));
        client.expect("0\r\n\r\n");
        client.expect_end();
    }
    let (low, high) = (*retries.iter().min().unwrap(), *retries.iter().max().unwrap());
    assert!(low >= 1_000 && high <= 5_000 && high - low > 3_000, "{low} to {high}");
    let all = String::from_utf8(plain.rest()).unwrap();
    assert!(all.contains("\r\n\r\n: busy\nretry: ") && all.ends_with("\n\n"), "{all}");
    let mut times = Vec::new();
    for mut client in others {
        let response = client.response();
        assert_eq!(response.status, 503);
        assert!(response.body.contains("\"code\":\"busy\""), "{}", response.body);
        times.push(response.header("retry-after").unwrap().parse::<u64>().unwrap());
        client.expect_end();
    }
    assert!(times.iter().all(|s| (1..=5).contains(s)), "{times:?}");
    assert!(times.iter().any(|s| *s != times[0]), "{times:?}");
    assert_eq!(brain.open().2, "u0");
    // Who waits gets its turn all the same.
    assert_eq!(brain.open().2, "u1");
    drop(clients);
}

/// Streams that leave while they wait are skipped, and cost those behind them nothing.
#[test]
fn who_leaves_makes_room() {
    let limits = [("admission_per_s_max", "1"), ("admission_wait_ms_max", "20000")];
    let (edge, mut brain) = Edge::start(&limits);
    let asked = Instant::now();
    let mut clients = ask(&edge, 18, "");
    assert_eq!(brain.open().2, "u0");
    let last = clients.pop();
    for client in clients.drain(1..) {
        client.reset();
    }
    let left = Instant::now();
    // Of those that leave some may have had their turn before: one in each second.
    let others = std::iter::from_fn(|| Some(brain.open().2).filter(|user| user != "u17")).count();
    assert!(others as u64 <= (left - asked).as_secs() + 1, "{others} until {:?}", left - asked);
    assert!(left.elapsed() < Duration::from_secs(10), "{:?}", left.elapsed());
    brain.stat_becomes("waiting", 0);
    drop(last);
}

/// Sessions that are there are no part of admission: a new brain hears of all of them at once.
#[test]
fn a_sync_is_no_admission() {
    let limits = [("admission_per_s_max", "100"), ("admission_wait_ms_max", "5000")];
    let (edge, mut brain) = Edge::start(&limits);
    let clients = ask(&edge, 150, "");
    let mut opened = 0;
    while opened < 150 {
        if let Seen::Open(sessions) = brain.next() {
            sessions.iter().for_each(|(conn, ..)| brain.opened(*conn, 1));
            opened += sessions.len();
        }
    }
    brain.stat_becomes("sessions", 150);
    let started = Instant::now();
    let mut brain = edge.dial();
    // By this rate they would need half a minute.
    brain.hello(&[("admission_per_s_max", "5")], crate::brain::WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    assert_eq!(brain.next(), Seen::SyncBegin(150));
    assert!(matches!(brain.next(), Seen::Open(sessions) if sessions.len() == 150));
    assert_eq!(brain.next(), Seen::SyncEnd);
    assert!(started.elapsed() < Duration::from_secs(10));
    drop(clients);
}

/// 13.3: "Each welcome's `retry:` is drawn from half to one and a half times `stream_retry_ms`".
#[test]
fn no_two_come_back_together() {
    let (edge, mut brain) = Edge::start(&[("stream_retry_ms", "2000")]);
    let mut clients = ask(&edge, 200, "");
    let mut opened = 0;
    while opened < 200 {
        match brain.next() {
            Seen::Open(sessions) => {
                sessions.iter().for_each(|(conn, ..)| brain.opened(*conn, 1));
                opened += sessions.len();
            }
            other => panic!("not OPEN: {other:?}"),
        }
    }
    let welcome = |client: &mut Client| {
        client.head();
        retry(&chunk(client))
    };
    let retries: Vec<u64> = clients.iter_mut().map(welcome).collect();
    let (low, high) = (*retries.iter().min().unwrap(), *retries.iter().max().unwrap());
    assert!(low >= 1_000 && high <= 3_000 && high - low > 1_600, "{low} to {high}");
    let mut values = retries.clone();
    values.sort_unstable();
    values.dedup();
    assert!(values.len() > 150, "{} values of 200", values.len());
}
