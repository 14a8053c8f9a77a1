//! http.md 12: clients that don't take what they are sent, under each policy. `outbox/slow.rs`
//! tests which events go and which stay; here are the messages to clients, over real sockets.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use halley_link::{CloseReason, Event, Frame, Item, List, NO_CONN, NumberedSession, SessionState};

use crate::brain::{Brain, Edge, Seen};
use crate::client::{Client, sse, stream};
use crate::drain::chunk;

/// Data of one event: so large that a few hundred don't fit into any kernel's buffers.
pub const DATA_BYTES: usize = 20_000;

/// DELIVER of event `n` about the subject: it happened at `n` ms and its cursor is `c<n>`.
pub fn deliver(brain: &mut Brain, n: u64, subject: &str, bytes: usize, conn: u64) {
    let head = format!(r#"{{"id":"{n}","subject":"{subject}","at":{n},"data":""#);
    let json = format!("{head}{}\"}}", "x".repeat(bytes));
    let subject_offset = json.find(subject).unwrap() as u16;
    let mut items = Vec::new();
    conn.write(&mut items);
    brain.send(&Frame::Deliver {
        event: Event {
            shard: 1,
            seq: n,
            at: n,
            data_offset: head.len() as u32 - 1,
            subject_offset,
            subject_bytes: subject.len() as u16,
            cursor: format!("c{n}").as_bytes(),
            json: json.as_bytes(),
        },
        conns: List::from_items(1, &items),
    });
}

/// What a client got: an event's number and subject, or a gap's times.
#[derive(Debug, PartialEq, Eq)]
pub enum Got {
    Event(u64, String),
    Gap(u64, u64),
}

/// The text between two others.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    text.split_once(before)?.1.split_once(after).map(|(found, _)| found)
}

/// Reads an event or a gap from the text of one.
pub fn got(text: &str) -> Got {
    if let Some(times) = between(text, r#"{"gap":{"from":"#, r#","reason":"slow_consumer"}}"#) {
        let (from, to) = times.split_once(r#","to":"#).unwrap();
        return Got::Gap(from.parse().unwrap(), to.parse().unwrap());
    }
    let n = between(text, r#""id":""#, "\"").unwrap_or_else(|| panic!("{:.100}", text));
    let cursor = format!("c{n}");
    assert!(text.contains(&cursor), "an event has its own cursor: {text:.100}");
    Got::Event(n.parse().unwrap(), between(text, r#""subject":""#, "\"").unwrap().to_owned())
}

/// Reads until event `last`; heartbeats in between are nothing.
pub fn read_until(last: u64, mut next: impl FnMut() -> String) -> Vec<Got> {
    let mut all = Vec::new();
    loop {
        let text = next();
        if text.contains("\"id\"") || text.contains("gap") {
            all.push(got(&text));
        }
        if matches!(all.last(), Some(Got::Event(n, _)) if *n == last) {
            return all;
        }
    }
}

/// A small window, so that little of what isn't read lies in the kernel.
pub fn stall(client: &Client) {
    window(client, 16_384);
}

pub fn window(client: &Client, bytes: usize) {
    socket2::SockRef::from(&client.socket).set_recv_buffer_size(bytes).unwrap();
}

/// The client didn't read until now; from here on it is as fast as can be.
pub fn wake(brain: &mut Brain, client: &Client) {
    brain.expect_silence(200);
    window(client, 4_000_000);
}

pub fn subject_of(n: u64) -> String {
    format!("subject-{}", n % 10)
}

/// Events in order, none twice, and of what is missing everything within a gap that stands where
/// it was. Gives how many are missing.
pub fn check_dropped(all: &[Got], last: u64) -> u64 {
    let (mut seen, mut missing, mut told) = (0, 0, 0);
    for got in all {
        match got {
            Got::Event(n, subject) => {
                assert!(*n > seen, "{n} after {seen}");
                assert_eq!(*subject, subject_of(*n));
                assert!(*n == seen + 1 || told + 1 == *n, "{seen}, then {n}, told until {told}");
                missing += n - seen - 1;
                seen = *n;
            }
            Got::Gap(from, to) => {
                assert!(*from == seen + 1 || *from == told + 1, "{from} after {seen}, {told}");
                told = *to;
            }
        }
    }
    assert_eq!(seen, last, "the newest always comes");
    missing
}

/// 12.3: "events that wait are dropped from the front [...] and a gap event (10.3) with the reason
/// `slow_consumer` and the times of the first and last of them takes their place." On every
/// transport that has gaps.
#[test]
fn the_oldest_are_dropped_and_the_client_knows() {
    let limits = [("slow_consumer", "drop_oldest"), ("outbox_bytes_max", "200000")];
    let (edge, mut brain) = Edge::start(&limits);
    let mut dropped = 0;
    let (mut client, conn) = sse(&edge, &mut brain, "a");
    stall(&client);
    (1..=150).for_each(|n| deliver(&mut brain, n, &subject_of(n), DATA_BYTES, conn));
    wake(&mut brain, &client);
    let all = read_until(150, || chunk(&mut client));
    dropped += check_dropped(&all, 150);
    let (mut client, conn, _) =
        stream(&edge, &mut brain, "/v1/stream?user=b", "Accept: application/x-ndjson\r\n");
    stall(&client);
    (1..=150).for_each(|n| deliver(&mut brain, n, &subject_of(n), DATA_BYTES, conn));
    wake(&mut brain, &client);
    let all = read_until(150, || chunk(&mut client));
    dropped += check_dropped(&all, 150);
    let (mut client, conn) = crate::websocket::open(&edge, &mut brain, "c");
    stall(&client);
    (1..=150).for_each(|n| deliver(&mut brain, n, &subject_of(n), DATA_BYTES, conn));
    wake(&mut brain, &client);
    let all =
        read_until(150, || String::from_utf8(crate::websocket::frame(&mut client).1).unwrap());
    dropped += check_dropped(&all, 150);
    assert!(dropped > 150, "{dropped}");
    brain.stat_becomes("events_dropped_total", dropped);
    brain.stat_becomes("slow_consumers_total", 0);
    brain.stat_becomes("outbox_bytes", 0);
    // Afterwards it is a stream like any other.
    deliver(&mut brain, 151, "s", 1, conn);
    assert_eq!(
        got(&String::from_utf8(crate::websocket::frame(&mut client).1).unwrap()),
        Got::Event(151, "s".into())
    );
}

/// link.md 10.8 tells what a connection has lost, also when nothing waits for it any more, and
/// nothing of it of another one.
#[test]
fn what_was_lost_is_remembered() {
    let limits = [("slow_consumer", "drop_oldest"), ("outbox_bytes_max", "200000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (mut client, conn) = sse(&edge, &mut brain, "a");
    stall(&client);
    (1..=150).for_each(|n| deliver(&mut brain, n, &subject_of(n), DATA_BYTES, conn));
    wake(&mut brain, &client);
    let dropped = check_dropped(&read_until(150, || chunk(&mut client)), 150);
    brain.stat_becomes("outbox_bytes", 0);
    assert!(dropped > 0);
    brain.inspect(1, conn);
    assert_eq!(brain.lost[&conn], (dropped as u32, 0));
    drop(client);
    assert!(matches!(brain.next(), Seen::Close(..)));
    let (_next, next) = sse(&edge, &mut brain, "b");
    brain.inspect(2, next);
    assert_eq!(brain.lost[&next], (0, 0));
}

/// 12.3: the exact words, in the place of what is missing.
#[test]
fn the_words_of_a_gap() {
    let limits = [("slow_consumer", "drop_oldest"), ("outbox_bytes_max", "200000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (mut client, conn) = sse(&edge, &mut brain, "a");
    stall(&client);
    (1..=100).for_each(|n| deliver(&mut brain, n, "s", DATA_BYTES, conn));
    wake(&mut brain, &client);
    let mut last = 0;
    let gap = loop {
        let text = chunk(&mut client);
        match text.starts_with("id: ") {
            true => last = between(&text, r#""at":"#, ",").unwrap().parse().unwrap(),
            false => break text,
        }
    };
    let next: u64 = between(&chunk(&mut client), r#""at":"#, ",").unwrap().parse().unwrap();
    let (from, to) = (last + 1, next - 1);
    let object = format!(r#"{{"gap":{{"from":{from},"to":{to},"reason":"slow_consumer"}}}}"#);
    assert_eq!(gap, format!("event: gap\ndata: {object}\n\n"));
}

/// 12.4: "of the events that wait, only the newest about each subject stays."
#[test]
fn the_latest_of_each_subject_comes() {
    let limits = [("slow_consumer", "latest_per_subject"), ("outbox_bytes_max", "500000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (mut client, conn) = sse(&edge, &mut brain, "a");
    stall(&client);
    (1..=300).for_each(|n| deliver(&mut brain, n, &subject_of(n), DATA_BYTES, conn));
    wake(&mut brain, &client);
    let all = read_until(300, || chunk(&mut client));
    let (mut seen, mut latest) = (0, HashMap::new());
    for got in &all {
        let Got::Event(n, subject) = got else { panic!("ten subjects fit: {got:?}") };
        assert!(*n > seen, "{n} after {seen}");
        assert_eq!(*subject, subject_of(*n));
        seen = *n;
        latest.insert(subject.clone(), *n);
    }
    let expected: HashMap<String, u64> = (291..=300).map(|n| (subject_of(n), n)).collect();
    assert_eq!(latest, expected, "the latest is really the latest");
    assert!(all.len() < 200, "{}", all.len());
    brain.stat_becomes("events_conflated_total", 300 - all.len() as u64);
    brain.stat_becomes("events_dropped_total", 0);
    brain.stat_becomes("slow_consumers_total", 0);
}

/// 12.4: "If that isn't enough, 12.3."
#[test]
fn too_many_subjects_are_a_gap() {
    let limits = [("slow_consumer", "latest_per_subject"), ("outbox_bytes_max", "200000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (mut client, conn) = sse(&edge, &mut brain, "a");
    stall(&client);
    (1..=150).for_each(|n| deliver(&mut brain, n, &format!("own-{n}"), DATA_BYTES, conn));
    wake(&mut brain, &client);
    let all = read_until(150, || chunk(&mut client));
    assert!(all.iter().any(|got| matches!(got, Got::Gap(..))));
    brain.stat_becomes("events_conflated_total", 0);
    brain.stat_becomes("slow_consumers_total", 0);
}

/// 12.2: "the connection is closed; with its cursor the client loses nothing": it has everything up
/// to some event, and the brain is told why it left.
#[test]
fn a_disconnect_leaves_no_hole() {
    let (edge, mut brain) = Edge::start(&[("outbox_bytes_max", "200000")]);
    let (mut client, conn) = sse(&edge, &mut brain, "a");
    stall(&client);
    (1..=150).for_each(|n| deliver(&mut brain, n, &subject_of(n), DATA_BYTES, conn));
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    assert_eq!(brain.reasons[&conn], CloseReason::SlowConsumer);
    window(&client, 4_000_000);
    let all = String::from_utf8(client.rest()).unwrap();
    let numbers: Vec<u64> = all
        .split("\nid: c")
        .skip(1)
        .map(|t| t.split_once('\n').unwrap().0.parse().unwrap())
        .collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    brain.stat_becomes("slow_consumers_total", 1);
    brain.stat_becomes("outbox_bytes", 0);
}

/// 12.1: "when its socket has taken nothing for `outbox_ms_max` while something waits"; 12.3: "A
/// client that takes nothing at all for `outbox_ms_max` is disconnected all the same." That is
/// longer than the kernel leaves a heartbeat unacknowledged here.
#[test]
fn who_takes_nothing_has_its_time() {
    // The edge has until half of a third of the heartbeat to see that a socket is full, before the
    // kernel gives it up.
    let policies = ["disconnect", "drop_oldest", "latest_per_subject"];
    let all = policies.map(|policy| {
        let (edge, mut brain) = Edge::start(&[
            ("slow_consumer", policy),
            ("outbox_ms_max", "9000"),
            ("stream_heartbeat_ms", "24000"),
        ]);
        let (client, conn) = sse(&edge, &mut brain, "a");
        let (other, other_conn) = crate::websocket::open(&edge, &mut brain, "b");
        stall(&client);
        stall(&other);
        let began = Instant::now();
        for n in 1..=60 {
            deliver(&mut brain, n, &subject_of(n), DATA_BYTES, conn);
            deliver(&mut brain, n, &subject_of(n), DATA_BYTES, other_conn);
        }
        (policy, edge, brain, [conn, other_conn], began, Instant::now(), [client, other])
    });
    for (policy, _edge, mut brain, conns, began, started, _clients) in all {
        let mut closed = 0;
        while closed < 2 {
            match brain.next() {
                Seen::Close(sessions) => closed += sessions.len(),
                other => panic!("not CLOSE: {other:?}"),
            }
            let (least, most) = (began.elapsed().as_millis(), started.elapsed().as_millis());
            assert!(least >= 8_900 && most < 25_000, "{policy}: {most} to {least} ms");
        }
        for conn in conns {
            assert_eq!(brain.reasons[&conn], CloseReason::SlowConsumer, "{policy}");
        }
        brain.stat_becomes("slow_consumers_total", 2);
        brain.stat_becomes("events_dropped_total", 0);
    }
}

/// link.md 10.8: what came with the question, and is written as soon as all has been read, waits
/// for nobody.
#[test]
fn what_is_about_to_be_written_does_not_wait() {
    let (edge, mut brain) = Edge::start(&[]);
    let (client, conn) = sse(&edge, &mut brain, "a");
    let json = r#"{"id":"1","subject":"s","at":1,"data":1}"#;
    let (data_offset, subject_offset) = (json.len() as u32 - 2, json.find("\"s\"").unwrap() + 1);
    let event = Event {
        shard: 1,
        seq: 1,
        at: 1,
        data_offset,
        subject_offset: subject_offset as u16,
        subject_bytes: 1,
        cursor: b"c1",
        json: json.as_bytes(),
    };
    let mut items = Vec::new();
    conn.write(&mut items);
    let conns = List::from_items(1, &items);
    for token in 1..=20 {
        brain.send_together(&[
            Frame::Deliver { event, conns },
            Frame::Inspect { token, conn },
            Frame::Inspect { token, conn: NO_CONN },
        ]);
        let live = Seen::Inspected(token, conn, SessionState::Live, 1, 0, 0);
        assert_eq!([brain.next(), brain.next()], [live, Seen::Behind(token, vec![])]);
    }
    drop(client);
}

/// link.md 10.8: those whose socket didn't take all, the ones with most waiting first; nobody who
/// has read all.
#[test]
fn who_is_behind() {
    let (edge, mut brain) = Edge::start(&[("outbox_bytes_max", "8000000")]);
    assert_eq!(brain.inspect(1, NO_CONN), Seen::Behind(1, vec![]));
    let (reads, reads_conn) = sse(&edge, &mut brain, "reads");
    let stalled = [300, 200].map(|events| {
        let (client, conn) = sse(&edge, &mut brain, "stalls");
        stall(&client);
        for n in 1..=events {
            deliver(&mut brain, n, "s", DATA_BYTES, conn);
        }
        (client, conn)
    });
    deliver(&mut brain, 1, "s", 1, reads_conn);
    let Seen::Behind(2, behind) = brain.inspect(2, NO_CONN) else { panic!("not BEHIND") };
    let sessions: Vec<_> = behind.iter().map(|slow| slow.session).collect();
    let expected = stalled.each_ref().map(|(_, conn)| *conn);
    assert_eq!(sessions, expected.map(|conn| NumberedSession { conn, user_number: 1_000 }));
    assert!(behind.iter().all(|slow| slow.transport == 1 && slow.outbox_pieces > 1));
    assert!(behind[0].outbox_bytes > behind[1].outbox_bytes);
    drop((reads, stalled));
}

/// 12.1: who takes a little now and then is slow, but not for `outbox_ms_max` at a time.
#[test]
fn who_takes_a_little_stays() {
    let (edge, mut brain) =
        Edge::start(&[("outbox_ms_max", "7000"), ("outbox_bytes_max", "100000000")]);
    let (mut client, conn) = sse(&edge, &mut brain, "a");
    window(&client, 65_536);
    (1..=400).for_each(|n| deliver(&mut brain, n, &subject_of(n), DATA_BYTES, conn));
    let started = Instant::now();
    let mut n = 0;
    while started.elapsed() < Duration::from_millis(9_000) {
        for _ in 0..12 {
            n += 1;
            assert_eq!(got(&chunk(&mut client)), Got::Event(n, subject_of(n)));
        }
        std::thread::sleep(Duration::from_millis(400));
    }
    assert!(n < 400, "it was slow until here");
    window(&client, 4_000_000);
    assert_eq!(read_until(400, || chunk(&mut client)).len() as u64, 400 - n);
    brain.stat_becomes("slow_consumers_total", 0);
}

/// 12.1 is about slow clients: one round may bring more than `outbox_bytes_max` to a fast one.
#[test]
fn a_burst_is_not_slowness() {
    let (edge, mut brain) = Edge::start(&[("outbox_bytes_max", "10000")]);
    let (mut client, conn) = sse(&edge, &mut brain, "a");
    (1..=100).for_each(|n| deliver(&mut brain, n, &subject_of(n), 2_000, conn));
    let all = read_until(100, || chunk(&mut client));
    assert_eq!(all.len(), 100);
    brain.stat_becomes("slow_consumers_total", 0);
}
