//! http.md 8.5 and 9.8 to 9.11 (RFC 7692) over the real socket. Inflated messages are read by the
//! second reader of `halley-wire`'s tests, which shares no code with the edge. The golden cases of
//! messages are walked in `tables.rs`.

#[path = "../../../halley-wire/tests/tables/second/inflate.rs"]
mod inflate;

use std::collections::HashMap;

use halley_link::{Event, FLAG_LAST, Frame, Item, List, Value};
use halley_wire::websocket::Deflater;
use inflate::inflate;
use serde_json::Value as Json;

use crate::brain::{Brain, Edge, Seen, conn_items};
use crate::client::{Client, header, stream};
use crate::process::signal;
use crate::slow::{Got, check_dropped, got, read_until, stall, subject_of, wake, window};
use crate::websocket::{KEY, UPGRADE, expect_close, expect_text, frame, open};

const TABLE: &str = include_str!("../../../../protocol/websocket-deflate.json");
const ON: (&str, &str) = ("websocket_compression", "on");
const AGREED: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

/// A WebSocket that has made these offers, and the answer to them.
fn offer(edge: &Edge, brain: &mut Brain, lines: &[String]) -> (Client, u64, Option<String>) {
    let offers: String =
        lines.iter().map(|line| format!("Sec-WebSocket-Extensions: {line}\r\n")).collect();
    let (client, conn, head) = stream(edge, brain, "/v1/ws?user=u", &format!("{UPGRADE}{offers}"));
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    (client, conn, header(&head, "sec-websocket-extensions").map(str::to_owned))
}

/// A WebSocket that compresses.
fn agreed(edge: &Edge, brain: &mut Brain) -> (Client, u64) {
    let (client, conn, answer) = offer(edge, brain, &["permessage-deflate".to_owned()]);
    assert_eq!(answer.as_deref(), Some(AGREED));
    (client, conn)
}

/// What the next frame says, and whether it was compressed.
fn heard(client: &mut Client) -> (String, bool) {
    let (first, payload) = frame(client);
    let (text, compressed) = match first {
        0x81 => (payload, false),
        0xc1 => (inflate(&payload, 1_000_000).unwrap(), true),
        other => panic!("{other:02x} {payload:?}"),
    };
    (String::from_utf8(text).unwrap(), compressed)
}

/// A message as a client that compresses sends it.
fn compressed(text: &str) -> Vec<u8> {
    let mut deflater = Deflater::new();
    let payload = deflater.compress(text.as_bytes()).unwrap();
    let mut out = vec![0xc1];
    match payload.len() {
        0..=125 => out.push(0x80 | payload.len() as u8),
        length => {
            out.push(0x80 | 126);
            out.extend((length as u16).to_be_bytes());
        }
    }
    out.extend(KEY);
    out.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
    out
}

/// A text that is hard to compress: hexadecimal digits, each drawn anew.
fn noise(bytes: usize) -> String {
    let mut state = bytes as u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        char::from_digit((state >> 60) as u32, 16).unwrap()
    };
    (0..bytes).map(|_| next()).collect()
}

/// The JSON text of event `n` about a subject; its cursor is `c<n>`.
fn json(n: u64, subject: &str, bytes: usize) -> String {
    let text = noise(bytes);
    format!(r#"{{"id":"{n}","subject":"{subject}","at":{n},"data":"{text}"}}"#)
}

/// What a WebSocket is told of it.
fn told(n: u64, subject: &str, bytes: usize) -> String {
    json(n, subject, bytes).replacen('{', &format!(r#"{{"cursor":"c{n}","#), 1)
}

fn with_event<R>(n: u64, subject: &str, bytes: usize, then: impl FnOnce(Event<'_>) -> R) -> R {
    let json = json(n, subject, bytes);
    let cursor = format!("c{n}");
    let subject_offset = json.find(subject).unwrap() as u16;
    then(Event {
        shard: 1,
        seq: n,
        at: n,
        data_offset: json.find("\"data\":").unwrap() as u32 + 7,
        subject_offset,
        subject_bytes: subject.len() as u16,
        cursor: cursor.as_bytes(),
        json: json.as_bytes(),
    })
}

fn deliver(brain: &mut Brain, n: u64, subject: &str, bytes: usize, conns: &[u64]) {
    let items = conn_items(conns);
    with_event(n, subject, bytes, |event| {
        let conns = List::from_items(conns.len() as u16, &items);
        brain.send(&Frame::Deliver { event, conns });
    });
}

fn replay(brain: &mut Brain, conn: u64, flags: u8, heads: &[u64], events: &[(u64, usize)]) {
    let (mut head_items, mut items) = (Vec::new(), Vec::new());
    heads.iter().for_each(|head| Value(*head).write(&mut head_items));
    for (n, bytes) in events {
        with_event(*n, "s", *bytes, |event| event.write(&mut items));
    }
    let last = heads.iter().max().map_or_else(String::new, |n| format!("c{n}"));
    brain.send(&Frame::Replay {
        conn,
        flags,
        cursor: last.as_bytes(),
        heads: List::from_items(heads.len() as u16, &head_items),
        items: List::from_items(events.len() as u16, &items),
    });
}

/// 8.5, as each case of the table quotes it.
#[test]
fn offers_are_answered_as_the_table_says() {
    let (edge, mut brain) = Edge::start(&[ON]);
    let table: Json = serde_json::from_str(TABLE).unwrap();
    let (mut accepted, mut declined) = (0, 0);
    for case in table["offers"].as_array().unwrap() {
        let lines: Vec<String> = serde_json::from_value(case["lines"].clone()).unwrap();
        let (client, conn, answer) = offer(&edge, &mut brain, &lines);
        assert_eq!(answer.as_deref(), case["answer"].as_str(), "{case}");
        accepted += u64::from(answer.is_some());
        declined += u64::from(answer.is_none() && case.get("none").is_none());
        drop(client);
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    }
    brain.stat_becomes("deflate_websockets_total", accepted);
    brain.stat_becomes("deflate_declined_total", declined);
}

/// 8.5: "unless `websocket_compression` is `on`".
#[test]
fn nothing_is_agreed_on_where_it_is_off() {
    for settings in [&[][..], &[("websocket_compression", "off")]] {
        let (edge, mut brain) = Edge::start(settings);
        let (mut client, conn, answer) =
            offer(&edge, &mut brain, &["permessage-deflate".to_owned()]);
        assert_eq!(answer, None);
        deliver(&mut brain, 1, "s", 1_000, &[conn]);
        assert_eq!(heard(&mut client), (told(1, "s", 1_000), false));
        client.send(compressed(&"x".repeat(300)));
        expect_close(&mut client, 1_002);
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
        brain.stat_becomes("deflate_websockets_total", 0);
        brain.stat_becomes("deflate_declined_total", 0);
    }
}

/// 9.11: an event is compressed once for all; what is short, or too long for a client's window, is
/// not compressed; nor does anybody else notice.
#[test]
fn an_event_is_compressed_once() {
    let (edge, mut brain) = Edge::start(&[ON]);
    let (mut one, conn_one) = agreed(&edge, &mut brain);
    let (mut two, conn_two) = agreed(&edge, &mut brain);
    let (mut narrow, conn_narrow, answer) =
        offer(&edge, &mut brain, &["permessage-deflate; server_max_window_bits=10".to_owned()]);
    assert_eq!(answer.unwrap(), format!("{AGREED}; server_max_window_bits=9"));
    let (mut plain, conn_plain) = open(&edge, &mut brain, "plain");
    let all = [conn_plain, conn_one, conn_narrow, conn_two];
    // Of these, the first is short, and the last one is longer than 2^9 bytes.
    for (n, bytes, is_compressed, is_compressed_narrow) in
        [(1, 150, false, false), (2, 400, true, true), (3, 600, true, false)]
    {
        deliver(&mut brain, n, "s", bytes, &all);
        let text = told(n, "s", bytes);
        expect_text(&mut plain, &text);
        assert_eq!(heard(&mut one), (text.clone(), is_compressed), "{n}");
        assert_eq!(heard(&mut narrow), (text.clone(), is_compressed_narrow), "{n}");
        assert_eq!(heard(&mut two), (text, is_compressed), "{n}");
    }
    brain.stat_becomes("deflated_events_total", 2);
    let before = told(2, "s", 400).len() + told(3, "s", 600).len();
    brain.stat_becomes("deflated_from_bytes_total", before as u64);
    let after = brain.stat("deflated_to_bytes_total");
    assert!((500..800).contains(&after), "{after}");
}

/// 9.11 for a subject's whole crowd (link.md 11).
#[test]
fn a_crowd_gets_the_same_bytes() {
    let (edge, mut brain) = Edge::start(&[ON]);
    let (mut clients, mut conns): (Vec<_>, Vec<_>) =
        (0..300).map(|_| agreed(&edge, &mut brain)).unzip();
    let (client, conn) = open(&edge, &mut brain, "plain");
    clients.push(client);
    conns.push(conn);
    let items = conn_items(&conns);
    let of_all = List::from_items(conns.len() as u16, &items);
    brain.send(&Frame::GroupJoin { group: 7, conns: of_all });
    for n in 1..=2 {
        with_event(n, "s", 2_000, |event| brain.send(&Frame::GroupDeliver { group: 7, event }));
    }
    for (place, client) in clients.iter_mut().enumerate() {
        for n in 1..=2 {
            assert_eq!(heard(client), (told(n, "s", 2_000), place < 300), "{place}");
        }
    }
    brain.stat_becomes("group_delivered_total", 602);
    brain.stat_becomes("deflated_events_total", 2);
}

/// 9.11, link.md 10: what was missed is compressed, and so is what waits behind it.
#[test]
fn a_replay_is_compressed() {
    let (edge, mut brain) = Edge::start(&[ON]);
    let mut client = edge.public();
    let lines = format!("{UPGRADE}Sec-WebSocket-Extensions: permessage-deflate\r\n");
    client.ask("GET", "/v1/ws?user=u&cursor=c0", &lines);
    let (conn, ..) = brain.open();
    brain.opened(conn, 1);
    client.head();
    deliver(&mut brain, 4, "s", 900, &[conn]);
    replay(&mut brain, conn, 0, &[], &[(1, 900), (2, 100)]);
    assert_eq!(heard(&mut client), (told(1, "s", 900), true));
    assert_eq!(heard(&mut client), (told(2, "s", 100), false));
    assert_eq!(brain.next(), Seen::Replayed(conn));
    replay(&mut brain, conn, FLAG_LAST, &[3], &[(3, 900)]);
    assert_eq!(heard(&mut client), (told(3, "s", 900), true));
    assert_eq!(heard(&mut client), (told(4, "s", 900), true));
    deliver(&mut brain, 5, "s", 900, &[conn]);
    assert_eq!(heard(&mut client), (told(5, "s", 900), true));
}

/// 12.3: a gap in place of events that were compressed.
#[test]
fn a_slow_client_loses_compressed_events() {
    let limits = [ON, ("slow_consumer", "drop_oldest"), ("outbox_bytes_max", "200000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (mut client, conn) = agreed(&edge, &mut brain);
    stall(&client);
    (1..=300).for_each(|n| deliver(&mut brain, n, &subject_of(n), 20_000, &[conn]));
    wake(&mut brain, &client);
    let all = read_until(300, || heard(&mut client).0);
    let dropped = check_dropped(&all, 300);
    assert!(dropped > 100, "{dropped}");
    brain.stat_becomes("events_dropped_total", dropped);
    brain.stat_becomes("outbox_bytes", 0);
}

/// 12.4, likewise.
#[test]
fn a_slow_client_keeps_the_latest_of_each_subject() {
    let limits = [ON, ("slow_consumer", "latest_per_subject"), ("outbox_bytes_max", "400000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (mut client, conn) = agreed(&edge, &mut brain);
    stall(&client);
    (1..=500).for_each(|n| deliver(&mut brain, n, &subject_of(n), 20_000, &[conn]));
    wake(&mut brain, &client);
    let all = read_until(500, || heard(&mut client).0);
    let latest: HashMap<&str, u64> = all
        .iter()
        .map(|got| match got {
            Got::Event(n, subject) => (subject.as_str(), *n),
            Got::Gap(..) => panic!("ten subjects fit"),
        })
        .collect();
    assert!(all.len() < 450, "{}", all.len());
    assert_eq!(latest.len(), 10);
    assert!(latest.values().all(|n| *n > 490), "{latest:?}");
    deliver(&mut brain, 501, "s", 500, &[conn]);
    assert_eq!(got(&heard(&mut client).0), Got::Event(501, "s".into()));
}

/// 9.9: a compressed operation is one like others; its answer isn't compressed.
#[test]
fn operations_may_be_compressed() {
    let (edge, mut brain) = Edge::start(&[ON]);
    let (mut client, conn) = agreed(&edge, &mut brain);
    let data = noise(3_000);
    let body = format!(r#"{{"subject":"s","data":"{data}"}}"#);
    client.send(compressed(&format!(r#"{{"op":"publish","subject":"s","data":"{data}"}}"#)));
    let request = brain.request();
    assert_eq!((request.conn, String::from_utf8(request.body).unwrap()), (conn, body));
    brain.respond(conn, 200, &format!("{{\"id\":\"{}\"}}\n", "i".repeat(600)));
    let (text, compressed) = heard(&mut client);
    assert!(text.starts_with(r#"{"ok":{"id":"iii"#) && !compressed, "{text}");
    brain.stat_becomes("inflated_messages_total", 1);
    let inflated = brain.stat("inflated_to_bytes_total");
    assert!(inflated > 3_000 && brain.stat("inflated_from_bytes_total") < inflated);
}

/// 9.10: what a message becomes is bounded, and a message of many bytes disturbs nobody.
#[test]
fn a_message_that_becomes_too_long() {
    let (edge, mut brain) = Edge::start(&[ON, ("message_bytes_max", "10000")]);
    let (mut other, other_conn) = agreed(&edge, &mut brain);
    for bytes in [10_001, 20_000_000] {
        let (mut client, conn) = agreed(&edge, &mut brain);
        client.send(compressed(&" ".repeat(bytes)));
        expect_close(&mut client, 1_009);
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    }
    // One that fits: it is no operation, but that is all.
    let (mut client, _) = agreed(&edge, &mut brain);
    client.send(compressed(&" ".repeat(10_000)));
    assert!(heard(&mut client).0.contains("bad_json"));
    deliver(&mut brain, 1, "s", 300, &[other_conn]);
    assert_eq!(heard(&mut other).0, told(1, "s", 300));
    brain.stat_becomes("websocket_errors_total", 2);
    assert!(brain.stat("inflated_to_bytes_total") <= 2 * 10_001 + 10_000);
}

/// 9.9: however many messages come in a few bytes, and however long they become, each is read.
#[test]
fn many_messages_that_become_long() {
    let limits = [ON, ("requests_per_user_per_s_max", "1000000")];
    let (edge, mut brain) = Edge::start(&limits);
    let (mut client, conn) = agreed(&edge, &mut brain);
    let padding = " ".repeat(60_000);
    let publish = |n: u32| format!(r#"{{"op":"publish","subject":"s","data":{n}{padding}}}"#);
    let mut bytes = Vec::new();
    (1..=17).for_each(|n| bytes.extend(compressed(&publish(n))));
    // They are a few bytes, so that a plain read would have them all.
    assert!(bytes.len() < 4_096, "{}", bytes.len());
    client.send(&bytes);
    for n in 1..=17 {
        let request = brain.request();
        let body = String::from_utf8(request.body).unwrap();
        assert_eq!(body, format!(r#"{{"subject":"s","data":{n}}}"#));
        brain.respond(conn, 200, "{\"id\":\"x\"}\n");
        assert_eq!(heard(&mut client), (r#"{"ok":{"id":"x"}}"#.to_owned(), false));
    }
    brain.stat_becomes("inflated_messages_total", 17);
}

/// 9.9, 18.5: of what comes at once a turn deals with a little, so that its answers are on their
/// way before there are too many, and others have theirs.
#[test]
fn a_turn_deals_with_a_little() {
    // Their answers are more than may wait, in one turn, and fewer than the kernel takes.
    const MESSAGES: usize = 700;
    let (edge, mut brain) = Edge::start(&[ON]);
    let (mut client, _) = agreed(&edge, &mut brain);
    window(&client, 4_000_000);
    let message = compressed(&" ".repeat(10_000));
    let bytes = message.repeat(MESSAGES);
    // All of it is there when the edge looks.
    signal(&edge, "-STOP");
    client.send(&bytes);
    signal(&edge, "-CONT");
    for _ in 0..MESSAGES {
        assert!(heard(&mut client).0.contains("bad_json"));
    }
    brain.stat_becomes("inflated_messages_total", MESSAGES as u64);
}
