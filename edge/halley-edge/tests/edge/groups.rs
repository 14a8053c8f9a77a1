//! Clause 11: groups, whose members a worker knows by itself.

use halley_link::{Frame, Item, List, NumberedSession};

use crate::brain::{Brain, Edge, Seen, conn_items};
use crate::client::{Client, SSE_WELCOME, sse, stream};
use crate::replaying::{Numbered, behind, event, handshake_again, json, sse_json};

const GROUP: u32 = 7;
/// More than a round serves, so that what comes behind finds most of them unserved.
const CROWD: usize = 700;

fn join(brain: &mut Brain, group: u32, conns: &[u64]) {
    let items = conn_items(conns);
    let conns = List::from_items(conns.len() as u16, &items);
    brain.send(&Frame::GroupJoin { group, conns });
}

fn leave(brain: &mut Brain, group: u32, conns: &[u64]) {
    let items = conn_items(conns);
    let conns = List::from_items(conns.len() as u16, &items);
    brain.send(&Frame::GroupLeave { group, conns });
}

fn deliver(brain: &mut Brain, group: u32, numbered: Numbered<'_>) {
    let json = json(numbered.1);
    brain.send(&Frame::GroupDeliver { group, event: event(numbered, &json) });
}

fn crowd(edge: &Edge, brain: &mut Brain) -> (Vec<Client>, Vec<u64>) {
    (0..CROWD).map(|n| sse(edge, brain, &format!("u{n}"))).unzip()
}

/// 11.2: "GROUP_JOIN makes sessions members of a group, GROUP_LEAVE takes them out again, GROUP_END
/// takes all out. A repetition is no error; a session that the worker doesn't know is skipped
/// (6.7)."
#[test]
fn members_come_and_go() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut a, conn_a) = sse(&edge, &mut brain, "a");
    let (mut b, conn_b) = sse(&edge, &mut brain, "b");
    let (mut c, conn_c) = sse(&edge, &mut brain, "c");
    join(&mut brain, GROUP, &[conn_a, 1 << 40, conn_b, conn_a]);
    join(&mut brain, GROUP + 1, &[conn_c]);
    deliver(&mut brain, GROUP, (1, 1, "l1"));
    a.expect_chunk(&sse_json(1, "l1"));
    b.expect_chunk(&sse_json(1, "l1"));
    brain.stat_becomes("group_members", 3);
    leave(&mut brain, GROUP, &[conn_b, conn_c, 1 << 40]);
    deliver(&mut brain, GROUP, (1, 2, "l2"));
    a.expect_chunk(&sse_json(2, "l2"));
    brain.send(&Frame::GroupEnd { group: GROUP });
    brain.send(&Frame::GroupEnd { group: GROUP });
    deliver(&mut brain, GROUP, (1, 3, "l3"));
    for client in [&mut a, &mut b, &mut c] {
        client.expect_silence(30);
    }
    brain.stat_becomes("group_members", 1);
    brain.stat_becomes("groups", 1);
    brain.stat_becomes("group_events_total", 3);
    brain.stat_becomes("group_delivered_total", 3);
    brain.stat_becomes("delivered_total", 3);
    drop(c);
    assert_eq!(brain.next(), Seen::Close(vec![(conn_c, 1_000)]));
    brain.stat_becomes("group_members", 0);
}

/// 11.4: "its other writes to a member meanwhile come after it"; 7.4: "the worker keeps it for
/// every connection".
#[test]
fn a_crowd_gets_everything_in_order() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut clients, conns) = crowd(&edge, &mut brain);
    join(&mut brain, GROUP, &conns);
    deliver(&mut brain, GROUP, (1, 1, "l1"));
    // To every second one, the last first.
    let some: Vec<u64> = conns.iter().rev().step_by(2).copied().collect();
    brain.live((2, 2, "l2"), &some);
    deliver(&mut brain, GROUP, (1, 3, "l3"));
    brain.close_sessions("enough", &conns[CROWD - 1..]);
    for (n, client) in clients.iter_mut().enumerate() {
        client.expect_chunk(&sse_json(1, "l1"));
        if n % 2 == (CROWD - 1) % 2 {
            client.expect_chunk(&sse_json(2, "l2"));
        }
        client.expect_chunk(&sse_json(3, "l3"));
    }
    clients[CROWD - 1].expect("0\r\n\r\n");
    assert_eq!(brain.next(), Seen::Close(vec![(conns[CROWD - 1], 1_000)]));
    brain.stat_becomes("group_events_in_flight", 0);
    brain.stat_becomes("delivered_total", (2 * CROWD + some.len()) as u64);
}

/// More events than may be in flight, in one read: the rest waits in the link's buffer, and nothing
/// more needs to come for it to be dealt with.
#[test]
fn a_burst_waits_for_the_crowd() {
    const EVENTS: u64 = 200;
    let (edge, mut brain) = Edge::start(&[]);
    let (mut clients, conns): (Vec<_>, Vec<_>) =
        (0..8).map(|n| sse(&edge, &mut brain, &format!("u{n}"))).unzip();
    join(&mut brain, GROUP, &conns);
    let texts: Vec<String> = (1..=EVENTS).map(json).collect();
    let frames: Vec<Frame<'_>> = (1..=EVENTS)
        .zip(&texts)
        .map(|(seq, text)| Frame::GroupDeliver { group: GROUP, event: event((1, seq, "c"), text) })
        .collect();
    brain.send_together(&frames);
    for client in &mut clients {
        for seq in 1..=EVENTS {
            client.expect_chunk(&sse_json(seq, "c"));
        }
    }
    brain.stat_becomes("group_events_in_flight", 0);
    brain.stat_becomes("group_events_total", EVENTS);
}

/// 11.4: "Members are those of the moment when it is read."
#[test]
fn members_of_the_moment() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut clients, conns) = crowd(&edge, &mut brain);
    let (mut late, late_conn) = sse(&edge, &mut brain, "late");
    join(&mut brain, GROUP, &conns);
    deliver(&mut brain, GROUP, (1, 1, "l1"));
    leave(&mut brain, GROUP, &conns);
    join(&mut brain, GROUP, &[late_conn]);
    deliver(&mut brain, GROUP, (1, 2, "l2"));
    brain.send(&Frame::GroupEnd { group: GROUP });
    clients.iter_mut().for_each(|client| client.expect_chunk(&sse_json(1, "l1")));
    late.expect_chunk(&sse_json(2, "l2"));
    clients[CROWD - 1].expect_silence(30);
}

/// 11.4: "who is held keeps it"; 10.5: "The worker then drops what it held with a `seq` not above
/// the shard's head, writes the rest in order".
#[test]
fn a_held_member() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = behind(&edge, &mut brain, "c0");
    join(&mut brain, GROUP, &[conn]);
    deliver(&mut brain, GROUP, (1, 10, "l10"));
    brain.live((2, 11, "l11"), &[conn]);
    deliver(&mut brain, GROUP, (1, 12, "l12"));
    brain.replay(conn, &[(1, 3, "r3")]);
    client.expect_chunk(&sse_json(3, "r3"));
    assert_eq!(brain.next(), Seen::Replayed(conn));
    deliver(&mut brain, GROUP, (1, 13, "l13"));
    brain.last(conn, "l13", &[10, 4], &[(1, 10, "r10")]);
    for (seq, cursor) in [(10, "r10"), (11, "l11"), (12, "l12"), (13, "l13")] {
        client.expect_chunk(&sse_json(seq, cursor));
    }
    client.expect_silence(30);
}

/// 11.4: "a poll is answered by it"; 11.3: a session that ends is no member, nor is the next
/// session on its connection.
#[test]
fn a_poll_is_answered_once() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.public();
    client.ask("GET", "/v1/poll?user=u", "");
    let (conn, ..) = brain.open_behind();
    brain.opened_at(conn, 7, "c0");
    join(&mut brain, GROUP, &[conn]);
    deliver(&mut brain, GROUP, (1, 1, "l1"));
    let response = client.response();
    assert_eq!(response.body, format!(r#"{{"events":[{}],"cursor":"l1"}}"#, json(1)));
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 7)]));
    client.ask("GET", "/v1/poll?user=u&timeout=0.2", "");
    let (again, ..) = brain.open_behind();
    // Read together, as its time may be over by now.
    let mut items = Vec::new();
    NumberedSession { conn: again, user_number: 7 }.write(&mut items);
    let (sessions, json) = (List::from_items(1, &items), json(2));
    brain.send_together(&[
        Frame::Opened { cursor: b"l1", sessions },
        Frame::GroupDeliver { group: GROUP, event: event((1, 2, "l2"), &json) },
    ]);
    assert_eq!(client.response().body, r#"{"events":[],"cursor":"l2"}"#);
}

/// 6.2: "A DELIVER that arrives before OPENED counts as OPENED for the welcome."
#[test]
fn before_opened() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u", "");
    let (conn, ..) = brain.open_behind();
    join(&mut brain, GROUP, &[conn]);
    deliver(&mut brain, GROUP, (1, 1, "l1"));
    brain.opened_at(conn, 7, "l2");
    client.head();
    client.expect_chunk(SSE_WELCOME);
    client.expect_chunk(&sse_json(1, "l1"));
    client.expect_silence(30);
}

/// 11.3: "A handshake ends all groups."
#[test]
fn the_next_brain_begins_anew() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn, _) = stream(&edge, &mut brain, "/v1/stream?user=u", "");
    client.expect_chunk(SSE_WELCOME);
    join(&mut brain, GROUP, &[conn]);
    deliver(&mut brain, GROUP, (1, 1, "l1"));
    client.expect_chunk(&sse_json(1, "l1"));
    let (mut next, ..) = handshake_again(&edge, brain);
    deliver(&mut next, GROUP, (1, 2, "l2"));
    client.expect_silence(30);
    join(&mut next, GROUP, &[conn]);
    deliver(&mut next, GROUP, (1, 3, "l3"));
    client.expect_chunk(&sse_json(3, "l3"));
}

/// 11.2: "A worker holds at most 1,024 groups."
#[test]
fn too_many_groups() {
    let (edge, mut brain) = Edge::start(&[]);
    let (_client, conn) = sse(&edge, &mut brain, "u");
    for group in 0..1_025 {
        join(&mut brain, group, &[conn]);
    }
    match brain.next() {
        Seen::Goodbye(1, why) => assert!(why.contains("11.2"), "{why}"),
        other => panic!("not GOODBYE: {other:?}"),
    }
}
