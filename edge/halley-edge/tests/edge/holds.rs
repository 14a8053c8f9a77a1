//! Clause 10: replays, what is held meanwhile, gaps, inspection.

use halley_link::{CloseReason, Frame, List, SessionState};

use crate::brain::{Brain, Edge, Seen, conn_items};
use crate::client::{sse, stream};
use crate::drain::chunk;
use crate::replaying::{behind, handshake_again, json, sse_json};
use crate::slow::stall;

/// 10.2: "a DELIVER for it is not written but kept in order"; 10.3: "REPLAY brings what the session
/// missed, in order; it is written at once. When all of it has left the outbox, the worker answers
/// REPLAYED"; 10.5: "The worker then drops what it held with a `seq` not above the shard's head,
/// writes the rest in order, and the session is held no longer"; "LAST is not answered".
#[test]
fn missed_then_held_then_live() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = behind(&edge, &mut brain, "c0");
    brain.stat_becomes("held_sessions", 1);
    brain.live((1, 10, "l10"), &[conn]);
    brain.live((2, 9, "l9"), &[conn]);
    brain.live((1, 12, "l12"), &[conn]);
    brain.replay(conn, &[(1, 3, "r3"), (2, 4, "r4")]);
    client.expect_chunk(&sse_json(3, "r3"));
    client.expect_chunk(&sse_json(4, "r4"));
    assert_eq!(brain.next(), Seen::Replayed(conn));
    client.expect_silence(50);
    brain.live((3, 13, "l13"), &[conn]);
    // Shard 1's 10 was replayed, 2's 9 is above its head, 3 is not among the heads.
    brain.last(conn, "l14", &[10, 8], &[(1, 10, "r10")]);
    for (seq, cursor) in [(10, "r10"), (9, "l9"), (12, "l12"), (13, "l13")] {
        client.expect_chunk(&sse_json(seq, cursor));
    }
    brain.live((1, 15, "l15"), &[conn]);
    client.expect_chunk(&sse_json(15, "l15"));
    brain.expect_silence(50);
    brain.stat_becomes("held_sessions", 0);
    brain.stat_becomes("replayed_total", 3);
    brain.stat_becomes("delivered_total", 4);
}

/// 10.3: a REPLAY without items has left the outbox at once; one that arrives before OPENED counts
/// for the welcome as a DELIVER does (6.2).
#[test]
fn an_empty_replay_before_opened() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u&cursor=c", "");
    let (conn, ..) = brain.open_behind();
    brain.replay(conn, &[]);
    client.head();
    client.expect_chunk(crate::client::SSE_WELCOME);
    assert_eq!(brain.next(), Seen::Replayed(conn));
    brain.opened(conn, 7);
    brain.last(conn, "l1", &[], &[]);
    brain.live((1, 2, "l2"), &[conn]);
    client.expect_chunk(&sse_json(2, "l2"));
    drop(client);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 7)]));
}

/// 14.7: "It is the session's from then on, in its welcome and in a sync, until it was sent
/// something else"; "When LAST comes and the session's cursor is still such a one, the worker sends
/// its client the link's."
#[test]
fn where_a_session_began_is_in_its_welcome() {
    let (edge, mut brain) = Edge::start(&[]);
    let open = |brain: &mut Brain, accept: &str| {
        let mut client = edge.public();
        client.ask("GET", "/v1/stream?user=u&cursor=last-5", &format!("Accept: {accept}\r\n"));
        let (conn, ..) = brain.open_behind();
        brain.began(conn, "last-5-C0");
        brain.opened(conn, 7);
        client.head();
        (client, conn)
    };
    let (mut sse, sse_conn) = open(&mut brain, "text/event-stream");
    sse.expect_chunk(": welcome\nretry: 1\nid: last-5-C0\n\n");
    let (mut ndjson, ndjson_conn) = open(&mut brain, "application/x-ndjson");
    ndjson.expect_chunk("{\"cursor\":\"last-5-C0\"}\n");
    brain.expect_silence(50);
    brain.replay(ndjson_conn, &[(1, 3, "last-5_3-C0")]);
    ndjson.expect_chunk(&format!("{{\"cursor\":\"last-5_3-C0\",{}\n", &json(3)[1..]));
    assert_eq!(brain.next(), Seen::Replayed(ndjson_conn));
    let (mut brain, _, sessions) = handshake_again(&edge, brain);
    let with = |conn, cursor: &str| (conn, cursor.to_owned());
    assert_eq!(sessions, [with(sse_conn, "last-5-C0"), with(ndjson_conn, "last-5_3-C0")]);
    sessions.iter().for_each(|(conn, _)| brain.opened(*conn, 5));
    brain.last(sse_conn, "l9", &[9], &[]);
    sse.expect_chunk("id: l9\n\n");
    brain.last(ndjson_conn, "l10", &[9], &[(1, 4, "C0")]);
    ndjson.expect_chunk(&format!("{{\"cursor\":\"C0\",{}\n", &json(4)[1..]));
    brain.live((1, 11, "l11"), &[sse_conn, ndjson_conn]);
    sse.expect_chunk(&sse_json(11, "l11"));
    ndjson.expect_chunk(&format!("{{\"cursor\":\"l11\",{}\n", &json(11)[1..]));
}

/// 10.3: "So a replay takes the client's pace": REPLAYED comes when the client has taken what was
/// written. A replay is not bounded by `outbox_bytes_max`, as it waits for the client itself.
#[test]
fn a_replay_takes_the_clients_pace() {
    let (edge, mut brain) = Edge::start(&[("outbox_bytes_max", "1000")]);
    let (mut client, conn) = behind(&edge, &mut brain, "c0");
    let events: Vec<_> = (1..2_000).map(|seq| (1, seq, "r")).collect();
    let mut batches = 0;
    // What the kernels of both sides take, and then one more.
    loop {
        brain.replay(conn, &events);
        batches += 1;
        assert!(batches < 500, "the client never stalls");
        match brain.next_within(300) {
            Some(seen) => assert_eq!(seen, Seen::Replayed(conn)),
            None => break,
        }
    }
    for _ in 0..batches {
        for seq in 1..2_000 {
            client.expect_chunk(&sse_json(seq, "r"));
        }
    }
    assert_eq!(brain.next(), Seen::Replayed(conn));
}

/// 10.2: "A session that passes this is closed as a slow consumer."
#[test]
fn more_is_held_than_may_be() {
    let (edge, mut brain) = Edge::start(&[("hold_bytes_max", "2000")]);
    let (mut client, conn) = behind(&edge, &mut brain, "c0");
    for seq in 1..100 {
        brain.live((1, seq, "l"), &[conn]);
    }
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    assert_eq!(brain.reasons[&conn], CloseReason::SlowConsumer);
    client.expect_end();
    brain.stat_becomes("slow_consumers_total", 1);
    brain.stat_becomes("held_sessions", 0);
}

/// 5, `outboxes_bytes_max`: "per worker, all outboxes together", and all that is held beside them.
#[test]
fn all_holds_together() {
    let (edge, mut brain) = Edge::start(&[("outboxes_bytes_max", "3000")]);
    let (_one, one) = behind(&edge, &mut brain, "c0");
    let (_other, other) = behind(&edge, &mut brain, "c0");
    for seq in 1..20 {
        brain.live((1, seq, "l"), &[one]);
    }
    for seq in 20..40 {
        brain.live((1, seq, "l"), &[other]);
    }
    assert_eq!(brain.next(), Seen::Close(vec![(other, 1_000)]));
    assert_eq!(brain.reasons[&other], CloseReason::SlowConsumer);
    assert!(matches!(brain.inspect(1, one), Seen::Inspected(.., 19)));
    brain.last(one, "l39", &[39], &[]);
    brain.stat_becomes("held_bytes", 0);
}

/// 10.6: "Sessions that were held come with their own cursor in the sync (the one they were opened
/// with, or that of the last replayed event) and are replayed one by one; events that were held for
/// them stay held." 10.1: live ones come without.
#[test]
fn a_link_that_ends_in_the_middle_of_a_replay() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut live, live_conn) = sse(&edge, &mut brain, "l");
    let (mut begun, begun_conn) = behind(&edge, &mut brain, "c0");
    let (mut fresh, fresh_conn) = behind(&edge, &mut brain, "c1");
    brain.replay(begun_conn, &[(1, 3, "r3")]);
    begun.expect_chunk(&sse_json(3, "r3"));
    assert_eq!(brain.next(), Seen::Replayed(begun_conn));
    brain.live((1, 10, "l10"), &[live_conn, begun_conn, fresh_conn]);
    live.expect_chunk(&sse_json(10, "l10"));
    let (mut brain, cursor, sessions) = handshake_again(&edge, brain);
    assert_eq!(cursor, "l10");
    let with = |conn, cursor: &str| (conn, cursor.to_owned());
    let all = [with(live_conn, ""), with(begun_conn, "r3"), with(fresh_conn, "c1")];
    assert_eq!(sessions, all);
    sessions.iter().for_each(|(conn, _)| brain.opened(*conn, 5));
    brain.live((1, 11, "l11"), &[live_conn, begun_conn, fresh_conn]);
    live.expect_chunk(&sse_json(11, "l11"));
    brain.last(begun_conn, "l11", &[9], &[(1, 9, "r9")]);
    brain.last(fresh_conn, "l11", &[10], &[(1, 3, "r3"), (1, 10, "r10")]);
    for (seq, cursor) in [(9, "r9"), (10, "l10"), (11, "l11")] {
        begun.expect_chunk(&sse_json(seq, cursor));
    }
    for (seq, cursor) in [(3, "r3"), (10, "r10"), (11, "l11")] {
        fresh.expect_chunk(&sse_json(seq, cursor));
    }
}

/// 6.7 for REPLAY and GAP: a connection that is gone, and one that is not held, are skipped.
#[test]
fn replays_that_come_too_late() {
    let (edge, mut brain) = Edge::start(&[]);
    let (client, gone) = behind(&edge, &mut brain, "c0");
    drop(client);
    assert_eq!(brain.next(), Seen::Close(vec![(gone, 1_000)]));
    assert_eq!(brain.reasons[&gone], CloseReason::Client);
    let (mut client, conn) = sse(&edge, &mut brain, "u");
    brain.replay(gone, &[(1, 1, "r")]);
    brain.last(gone, "l0", &[1], &[]);
    brain.replay(conn, &[(1, 1, "r")]);
    brain.gap("too_old", (0, 0), "g", &[gone]);
    brain.live((1, 2, "l2"), &[gone, conn]);
    client.expect_chunk(&sse_json(2, "l2"));
    brain.expect_silence(50);
}

/// http.md 10.3 on every transport, and 10.4: "An empty list of connections means every session of
/// the worker", but who is held learns of gaps from its own replay: this one's cursor is not its.
#[test]
fn gaps() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut a, a_conn) = sse(&edge, &mut brain, "a");
    let (mut b, b_conn, _) =
        stream(&edge, &mut brain, "/v1/stream?user=b", "Accept: application/x-ndjson\r\n");
    let (mut c, c_conn) = crate::websocket::open(&edge, &mut brain, "c");
    let (mut d, d_conn, _) = stream(&edge, &mut brain, "/test/d", "");
    let (mut held, held_conn) = behind(&edge, &mut brain, "c0");
    b.expect_chunk("\n");
    d.expect_chunk("Welcome, Url: '/test/d' Id: d\n");
    brain.gap("damaged", (1, 2), "g", &[a_conn, b_conn, c_conn, d_conn]);
    let gap = r#""gap":{"from":1,"to":2,"reason":"damaged"}}"#;
    a.expect_chunk(&format!("event: gap\nid: g\ndata: {{{gap}\n\n"));
    b.expect_chunk(&format!("{{\"cursor\":\"g\",{gap}\n"));
    crate::websocket::expect_text(&mut c, &format!("{{\"cursor\":\"g\",{gap}"));
    brain.gap("too_old", (0, 2), "", &[]);
    let gap = r#"{"gap":{"from":null,"to":2,"reason":"too_old"}}"#;
    a.expect_chunk(&format!("event: gap\ndata: {gap}\n\n"));
    b.expect_chunk(&format!("{gap}\n"));
    crate::websocket::expect_text(&mut c, gap);
    d.expect_silence(20);
    held.expect_silence(20);
    brain.gap("malformed", (0, 0), "g1", &[held_conn]);
    let gap = r#"{"gap":{"from":null,"to":null,"reason":"malformed"}}"#;
    held.expect_chunk(&format!("event: gap\nid: g1\ndata: {gap}\n\n"));
    let (_brain, _, sessions) = handshake_again(&edge, brain);
    assert_eq!(sessions[4], (held_conn, "g1".to_owned()), "10.6: from the gap on");
}

/// 10.8: "INSPECT requests what a connection has waiting; the worker answers INSPECTED at once,
/// state 0 when it doesn't know the connection."
#[test]
fn inspection() {
    let (edge, mut brain) = Edge::start(&[]);
    let (_live, live) = sse(&edge, &mut brain, "u");
    let (_held, held) = behind(&edge, &mut brain, "c0");
    let mut opening = edge.public();
    opening.ask("GET", "/v1/ws?user=w", crate::websocket::UPGRADE);
    let (opening_conn, ..) = brain.open();
    brain.live((1, 1, "l1"), &[held]);
    brain.live((1, 2, "l2"), &[held]);
    let seen = |token, conn, state, transport, held| {
        Seen::Inspected(token, conn, state, transport, 0, held)
    };
    assert_eq!(brain.inspect(1, live), seen(1, live, SessionState::Live, 1, 0));
    assert_eq!(brain.inspect(2, held), seen(2, held, SessionState::Held, 1, 2));
    let expected = seen(3, opening_conn, SessionState::Opening, 3, 0);
    assert_eq!(brain.inspect(3, opening_conn), expected);
    let unknown = live + (1 << 24);
    assert_eq!(brain.inspect(4, unknown), seen(4, unknown, SessionState::Unknown, 0, 0));
}

/// PRESENCE of this many bytes for a session.
fn presence(brain: &mut Brain, bytes: usize, conn: u64, frames: usize) {
    let json = format!(r#"{{"presence":{{"subject":"{}"}}}}"#, "x".repeat(bytes));
    let items = conn_items(&[conn]);
    let frame = Frame::Presence { json: json.as_bytes(), conns: List::from_items(1, &items) };
    brain.send_together(&vec![frame; frames]);
}

/// link.md 15.1: what is told of presence is written to a held session as well, within a bound of
/// its own: `outbox_bytes_max` and a REPLAY. Beyond it a client is slow (http.md 12.1, 22.10),
/// though not for more than came with one round.
#[test]
fn presence_beside_a_replay_is_bounded() {
    let limits = [("outbox_bytes_max", "1000"), ("outbox_ms_max", "600000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (mut client, conn) = behind(&edge, &mut brain, "c0");
    presence(&mut brain, 2_000, conn, 300);
    (0..300).for_each(|_| assert!(chunk(&mut client).starts_with("event: presence\n")));
    brain.live((1, 2, "l2"), &[conn]);
    brain.last(conn, "l2", &[1], &[]);
    client.expect_chunk(&sse_json(2, "l2"));
    brain.stat_becomes("slow_consumers_total", 0);
    let (slow, conn) = behind(&edge, &mut brain, "c0");
    stall(&slow);
    (0..300).for_each(|_| presence(&mut brain, 50_000, conn, 1));
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    assert_eq!(brain.reasons[&conn], CloseReason::SlowConsumer);
    brain.stat_becomes("slow_consumers_total", 1);
    brain.stat_becomes("held_sessions", 0);
    drop(slow);
}
