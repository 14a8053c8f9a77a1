//! http.md 12.5: clients that read slowly, but do read, after much was published at once; and such
//! as read nothing. A client has a small buffer or a large one: what it hasn't read lies in the
//! edge's kernel or in its own.

use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use halley_link::CloseReason;
use halley_wire::websocket::client as frames;

use crate::brain::{Brain, Edge, Seen};
use crate::client::{Client, sse, stream};
use crate::drain::chunk;
use crate::slow::{DATA_BYTES, deliver, window};
use crate::websocket::{KEY, PING, any_frame};

/// Together more than a client reads in several heartbeats, and less than the kernels take.
const EVENTS: u64 = 60;
const SETTINGS: [(&str, &str); 2] =
    [("stream_heartbeat_ms", "3000"), ("outbox_bytes_max", "4000000")];

type Opened = (Client, u64);

fn ndjson(edge: &Edge, brain: &mut Brain, user: &str) -> Opened {
    let target = format!("/v1/stream?user={user}");
    let (client, conn, _) = stream(edge, brain, &target, "Accept: application/x-ndjson\r\n");
    (client, conn)
}

/// What it read: one event, a heartbeat, or the end.
fn of_stream(client: &mut Client) -> String {
    chunk(client)
}

fn of_websocket(client: &mut Client) -> String {
    match any_frame(client) {
        (PING, payload) => {
            let mut bytes = Vec::new();
            frames::pong(&mut bytes, &payload, KEY);
            client.send(&bytes);
            String::new()
        }
        (0x88, payload) => panic!("closed: {:?}", String::from_utf8_lossy(&payload[2..])),
        (_, payload) => String::from_utf8(payload).unwrap(),
    }
}

/// Reads 150 KB a second until it has them all, in order.
fn reads(mut client: Client, next: fn(&mut Client) -> String) -> JoinHandle<Client> {
    spawn(move || {
        let mut seen = 0;
        while seen < EVENTS {
            let text = next(&mut client);
            let Some((_, id)) = text.split_once(r#""id":""#) else { continue };
            seen += 1;
            assert!(id.starts_with(&format!("{seen}\"")), "{seen} comes next");
            sleep(Duration::from_millis(DATA_BYTES as u64 / 150));
        }
        client
    })
}

fn burst(brain: &mut Brain, conns: &[u64]) {
    for conn in conns {
        (1..=EVENTS).for_each(|n| deliver(brain, n, "s", DATA_BYTES, *conn));
    }
}

/// "A client that takes bytes is there, however few."
#[test]
fn who_reads_slowly_is_not_closed() {
    let (edge, mut brain) = Edge::start(&SETTINGS);
    let (mut conns, mut readers) = (Vec::new(), Vec::new());
    for buffer in [16_384, 4_000_000] {
        for (opening, next) in [
            (sse as fn(&Edge, &mut Brain, &str) -> Opened, of_stream as fn(&mut Client) -> String),
            (ndjson, of_stream),
            (crate::websocket::open, of_websocket),
        ] {
            let (client, conn) = opening(&edge, &mut brain, &format!("u{}", conns.len()));
            window(&client, buffer);
            conns.push(conn);
            readers.push((client, next));
        }
    }
    burst(&mut brain, &conns);
    let readers: Vec<_> = readers.into_iter().map(|(client, next)| reads(client, next)).collect();
    let clients = readers.into_iter().map(|reader| reader.join().unwrap());
    // Each of them had everything over its one connection.
    assert_eq!(clients.count(), conns.len());
}

/// "One that takes nothing is closed", whichever buffer is full: by the kernel, or for want of an
/// answer.
#[test]
fn who_reads_nothing_is_closed() {
    let (edge, mut brain) = Edge::start(&[
        ("stream_heartbeat_ms", "3000"),
        ("outbox_bytes_max", "4000000"),
        ("outbox_ms_max", "2000"),
    ]);
    let small = [
        sse(&edge, &mut brain, "a"),
        ndjson(&edge, &mut brain, "b"),
        crate::websocket::open(&edge, &mut brain, "c"),
    ];
    let large = crate::websocket::open(&edge, &mut brain, "d");
    small.iter().for_each(|(client, _)| window(client, 16_384));
    window(&large.0, 4_000_000);
    let conns: Vec<u64> = small.iter().chain([&large]).map(|(_, conn)| *conn).collect();
    burst(&mut brain, &conns);
    let mut closed = Vec::new();
    while closed.len() < conns.len() {
        match brain.next() {
            Seen::Close(some) => closed.extend(some.into_iter().map(|(conn, _)| conn)),
            other => panic!("not CLOSE: {other:?}"),
        }
    }
    for conn in conns {
        let reason = brain.reasons[&conn];
        assert!(matches!(reason, CloseReason::Vanished | CloseReason::SlowConsumer), "{reason:?}");
    }
}
