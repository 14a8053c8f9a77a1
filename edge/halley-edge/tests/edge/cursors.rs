//! Cursors: those of clients that come back (http.md 10), those that clients get (http.md 7.3, 7.4,
//! 9.6), and the link's own (10.1).

use crate::brain::{Edge, Seen};
use crate::client::{Client, SSE_WELCOME, sse, stream};
use crate::drain::chunk;
use crate::replaying::{handshake_again, sse_json};
use crate::websocket::{UPGRADE, expect_text};

/// http.md 10.1: "A stream goes on after `?cursor=<cursor>` [...] or the header `Last-Event-ID`.
/// The header goes before both". "An empty one counts as missing." link.md 6.2: "longer than 255
/// bytes or has bytes other than 7.2 allows travels as `-`".
#[test]
fn what_a_client_goes_on_behind() {
    let (edge, mut brain) = Edge::start(&[]);
    let long = "x".repeat(256);
    let longest = "x".repeat(255);
    let too_long = format!("/v1/stream?user=u&cursor={long}");
    let just_fits = format!("/v1/stream?user=u&cursor={longest}");
    let upgrade = format!("{UPGRADE}Last-Event-ID: h\r\n");
    let cases = [
        ("/v1/stream?user=u", "", ""),
        ("/v1/stream?user=u&cursor=", "", ""),
        ("/v1/stream?user=u&cursor=a-Z_9", "", "a-Z_9"),
        ("/v1/stream?user=u", "Last-Event-ID: h\r\n", "h"),
        ("/v1/stream?user=u&cursor=p", "Last-Event-ID: h\r\n", "h"),
        ("/v1/stream?user=u&cursor=p", "Last-Event-ID:\r\n", "p"),
        ("/v1/stream?user=u&cursor=", "Last-Event-ID: h\r\n", "h"),
        ("/v1/stream?user=u", "Last-Event-ID:\r\n", ""),
        ("/v1/stream?user=u", "Last-Event-ID: a b\r\n", "-"),
        ("/v1/stream?user=u&cursor=a%22", "", "-"),
        ("/v1/stream?user=u&cursor=a+b", "", "-"),
        (&too_long, "", "-"),
        (&just_fits, "", &longest),
        ("/v1/ws?user=u&cursor=w", &upgrade, "w"),
        ("/test/u?cursor=t", "Last-Event-ID: h\r\n", ""),
    ];
    for (target, lines, expected) in cases {
        let mut client = edge.public();
        client.ask("GET", target, lines);
        let (conn, _, cursor) = brain.open_behind();
        assert_eq!(cursor, expected, "{target} {lines}");
        drop(client);
        brain.opened(conn, 1);
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 1)]));
    }
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u&cursor=a&cursor=b", "");
    let response = client.response();
    assert_eq!(response.status, 400, "http.md 4.2");
    assert!(response.body.contains("duplicate_parameter"));
}

/// 6.2: "OPENED has the cursor for the welcome". http.md 7.3: "for a stream without a cursor of its
/// own, `id: <cursor>`"; 7.4: "`{"cursor":…}` comes first"; 9.6: "The welcome is `{"cursor":…}`".
#[test]
fn welcomes() {
    let (edge, mut brain) = Edge::start(&[]);
    let ndjson = "Accept: application/x-ndjson\r\n";
    for (target, lines) in
        [("/v1/stream?user=u", ""), ("/v1/stream?user=u", ndjson), ("/v1/ws?user=u", UPGRADE)]
    {
        let mut client = edge.public();
        client.ask("GET", target, lines);
        let (conn, transport, _) = brain.open_behind();
        brain.opened_at(conn, 1, "c-0");
        client.head();
        match transport {
            1 => client.expect_chunk(": welcome\nretry: 1\nid: c-0\n\n"),
            2 => client.expect_chunk("{\"cursor\":\"c-0\"}\n"),
            _ => expect_text(&mut client, "{\"cursor\":\"c-0\"}"),
        }
        drop(client);
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 1)]));
    }
    // 6.2: "empty for sessions that came with a cursor".
    let (mut client, conn, _) = stream(&edge, &mut brain, "/v1/ws?user=u", UPGRADE);
    let event = brain.deliver("c-1", "1", &[conn]);
    expect_text(&mut client, &format!("{{\"cursor\":\"c-1\",{}", &event[1..]));
}

/// 10.1: "The *link's cursor* is that of the last DELIVER, CURSOR, OPENED or REPLAY with LAST that
/// the worker has read, unless that one was empty"; 6.1: "SYNC_BEGIN has the link's cursor as the
/// worker last read it, from any brain; it is empty if there was none."
#[test]
fn the_links_cursor() {
    let (edge, brain) = Edge::start(&[]);
    let (mut brain, cursor, _) = handshake_again(&edge, brain);
    assert_eq!(cursor, "");
    // Without this one a brain that dies now would leave the session nothing to go on behind.
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u", "");
    let (conn, ..) = brain.open_behind();
    brain.opened_at(conn, 1, "o1");
    client.head();
    client.expect_chunk(": welcome\nretry: 1\nid: o1\n\n");
    let (mut brain, cursor, _) = handshake_again(&edge, brain);
    assert_eq!(cursor, "o1");
    brain.opened_at(conn, 1, "o2");
    brain.live((1, 1, "d1"), &[conn]);
    client.expect_chunk(&sse_json(1, "d1"));
    let (mut brain, cursor, _) = handshake_again(&edge, brain);
    assert_eq!(cursor, "d1");
    brain.cursor("c3");
    assert!(matches!(brain.inspect(1, 0), Seen::Inspected(..)));
    let (mut brain, cursor, _) = handshake_again(&edge, brain);
    assert_eq!(cursor, "c3");
    brain.last(conn + (1 << 24), "l4", &[], &[]);
    assert!(matches!(brain.inspect(1, 0), Seen::Inspected(..)));
    let (_, cursor, _) = handshake_again(&edge, brain);
    assert_eq!(cursor, "l4");
}

/// 10.9: "A DELIVER with an empty cursor moves the link's by itself, which then is the event's as
/// well"; one "after a link's cursor of another layout, or of a shard that it lacks, breaks this
/// clause".
#[test]
fn an_event_moves_the_links_cursor() {
    // Of `cursors.json`: all shards are at 35. Then the first is at 40, and time stands still.
    const AT_35: &str = "AQAAAA5lU_EAAAAAAAAjAAAA";
    const FIRST_AT_40: &str = "AQAAAA5lU_EAAAAAAAAo_gUFBQUFBQUA";
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = sse(&edge, &mut brain, "u");
    brain.cursor(AT_35);
    brain.live((1, 40, ""), &[conn]);
    client.expect_chunk(&sse_json(40, FIRST_AT_40));
    brain.live((1, 39, ""), &[conn]);
    client.expect_chunk(&sse_json(39, FIRST_AT_40));
    let (mut brain, cursor, _) = handshake_again(&edge, brain);
    assert_eq!(cursor, FIRST_AT_40);
    brain.live((9, 41, ""), &[conn]);
    assert!(matches!(brain.next(), Seen::Goodbye(_, why) if why.contains("10.9")));
    let (mut brain, cursor, _) = handshake_again(&edge, brain);
    assert_eq!(cursor, FIRST_AT_40);
    brain.cursor("c1");
    brain.live((1, 41, ""), &[conn]);
    assert!(matches!(brain.next(), Seen::Goodbye(_, why) if why.contains("10.9")));
    client.expect_silence(50);
}

/// 7.3: "All but the last have the cursor of before the event, so that a link that ends between
/// them leaves it to the next one." So the worker's cursor is that of the last frame, however full.
#[test]
fn an_event_in_several_frames() {
    let (edge, mut brain) = Edge::start(&[]);
    brain.cursor("c1");
    brain.live((1, 2, "c1"), &vec![(1 << 48) - 1; 8_192]);
    brain.stat_becomes("stale_deliveries_total", 8_192);
    let (mut brain, cursor, _) = handshake_again(&edge, brain);
    assert_eq!(cursor, "c1");
    brain.live((1, 2, "c1"), &vec![(1 << 48) - 1; 8_192]);
    brain.live((1, 2, "c2"), &vec![(1 << 48) - 1; 8_192]);
    brain.stat_becomes("stale_deliveries_total", 24_576);
    let (_, cursor, _) = handshake_again(&edge, brain);
    assert_eq!(cursor, "c2");
}

/// The first chunk that is another one.
fn after(client: &mut Client, heartbeat: &str) -> String {
    loop {
        let next = chunk(client);
        if next != heartbeat {
            return next;
        }
    }
}

/// 10.1: "streams pass it on with their heartbeats". http.md 7.3: "a heartbeat is `id: <cursor>`
/// and an empty line where the cursor is known"; 7.4: "`{"cursor":…}` comes first and is the
/// heartbeat". A held session's cursor is another (10.2).
#[test]
fn heartbeats() {
    let (edge, mut brain) = Edge::start(&[("stream_heartbeat_ms", "600")]);
    let (mut a, _) = sse(&edge, &mut brain, "a");
    let (mut b, _, _) =
        stream(&edge, &mut brain, "/v1/stream?user=b", "Accept: application/x-ndjson\r\n");
    let (mut held, _) = crate::replaying::behind(&edge, &mut brain, "c0");
    b.expect_chunk("\n");
    brain.cursor("h1");
    brain.expect_silence(1);
    // There may have been some before it was known.
    assert_eq!(after(&mut a, ":\n\n"), "id: h1\n\n");
    assert_eq!(after(&mut b, "\n"), "{\"cursor\":\"h1\"}\n");
    held.expect_chunk(":\n\n");
    assert_eq!(SSE_WELCOME.len(), 20);
}
