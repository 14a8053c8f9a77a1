//! http.md 8 and 9 (RFC 6455) over the real socket; the decoder's own tests are `halley-wire`'s.

use halley_wire::websocket::client as frames;

use crate::brain::{Brain, Edge, Seen};
use crate::client::{Client, header, stream};
use crate::process::signal;

pub const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
pub const PING: u8 = 0x89;
pub const KEY: [u8; 4] = [1, 2, 3, 4];

pub fn open(edge: &Edge, brain: &mut Brain, user: &str) -> (Client, u64) {
    let (client, conn, head) = stream(edge, brain, &format!("/v1/ws?user={user}"), UPGRADE);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    (client, conn)
}

/// The next frame that is no ping.
pub fn frame(client: &mut Client) -> (u8, Vec<u8>) {
    loop {
        let (first, payload) = any_frame(client);
        if first != PING {
            return (first, payload);
        }
    }
}

/// One frame: its first byte and its payload.
pub fn any_frame(client: &mut Client) -> (u8, Vec<u8>) {
    let head = client.bytes(2);
    let length = match head[1] {
        126 => {
            let length = client.bytes(2);
            usize::from(u16::from_be_bytes([length[0], length[1]]))
        }
        n => usize::from(n),
    };
    (head[0], client.bytes(length))
}

pub fn expect_text(client: &mut Client, text: &str) {
    let (first, payload) = frame(client);
    assert_eq!((first, String::from_utf8_lossy(&payload).as_ref()), (0x81, text));
}

pub fn expect_close(client: &mut Client, code: u16) -> String {
    let (first, payload) = frame(client);
    assert_eq!(first, 0x88, "{payload:?}");
    assert_eq!(payload[..2], code.to_be_bytes());
    client.expect_end();
    String::from_utf8(payload[2..].to_vec()).unwrap()
}

/// http.md 8.4 (RFC 6455 4.2.2): the accept of the RFC's own example.
#[test]
fn the_handshake() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.public();
    client.ask("GET", "/v1/ws?user=u", UPGRADE);
    let (conn, transport, _) = brain.open();
    assert_eq!(transport, 3);
    brain.opened(conn, 1);
    let head = client.head();
    assert_eq!(header(&head, "sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
}

/// http.md 5.4, 8.1, 8.2: "426 has `Upgrade` and `Sec-WebSocket-Version`".
#[test]
fn a_request_that_is_no_upgrade() {
    let (edge, _brain) = Edge::start(&[]);
    let mut client = edge.public();
    client.ask("GET", "/v1/ws?user=u", "");
    let response = client.response();
    assert_eq!(response.status, 426);
    assert_eq!(response.header("upgrade"), Some("websocket"));
    assert_eq!(response.header("sec-websocket-version"), Some("13"));
}

/// RFC 6455 10.2: a page of a foreign origin may not open a WebSocket; one of the same or of a
/// listed origin may.
#[test]
fn a_foreign_origin() {
    let (edge, mut brain) = Edge::start(&[("cors_origins", "https://app.example")]);
    let mut client = edge.public();
    client.ask("GET", "/v1/ws?user=u", &format!("{UPGRADE}Origin: https://evil.example\r\n"));
    let response = client.response();
    assert_eq!(response.status, 403);
    assert!(response.body.contains("origin_not_allowed"));
    for origin in ["https://app.example", "http://h"] {
        let lines = format!("{UPGRADE}Origin: {origin}\r\n");
        let (_, _, head) = stream(&edge, &mut brain, "/v1/ws?user=u", &lines);
        assert!(head.starts_with("HTTP/1.1 101 "), "{origin}");
        assert!(matches!(brain.next(), Seen::Close(_)));
    }
}

/// http.md 9.5: "A ping is answered by a pong with its bytes, a close by a close, after which
/// nothing more is read."
#[test]
fn ping_and_close() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = open(&edge, &mut brain, "u");
    let mut bytes = Vec::new();
    frames::ping(&mut bytes, b"abc", KEY);
    // In pieces, as a network may cut it.
    let (one, two) = bytes.split_at(3);
    client.socket.set_nodelay(true).unwrap();
    client.send(one);
    std::thread::sleep(std::time::Duration::from_millis(20));
    client.send(two);
    assert_eq!(frame(&mut client), (0x8a, b"abc".to_vec()));
    let mut bytes = Vec::new();
    frames::close(&mut bytes, 3_001, KEY);
    frames::ping(&mut bytes, b"late", KEY);
    client.send(&bytes);
    expect_close(&mut client, 3_001);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
}

/// http.md 9.1, 9.3, 9.4: 1002, 1007 and 1009, and nobody else is disturbed.
#[test]
fn frames_that_break_the_rules() {
    let (edge, mut brain) = Edge::start(&[("message_bytes_max", "100")]);
    let (mut other, other_conn) = open(&edge, &mut brain, "other");
    let mut too_long = Vec::new();
    frames::text(&mut too_long, &"x".repeat(101), KEY);
    let cases: [(&[u8], u16); 4] = [
        (&[0x81, 0x01, b'x'], 1_002),
        (&[0xc1, 0x81, 0, 0, 0, 0, b'x'], 1_002),
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff], 1_007),
        (&too_long, 1_009),
    ];
    for (bytes, code) in cases {
        let (mut client, conn) = open(&edge, &mut brain, "u");
        client.send(bytes);
        expect_close(&mut client, code);
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    }
    let event = brain.deliver("", "1", &[other_conn]);
    expect_text(&mut other, &event);
    brain.stat_becomes("websocket_errors_total", 4);
}

/// 5, `stream_heartbeat_ms`: who answers pings stays, who doesn't is closed.
#[test]
fn a_client_without_pong() {
    // A ping has a third of this for its answer.
    let (edge, mut brain) = Edge::start(&[("stream_heartbeat_ms", "9000")]);
    let (mut silent, conn) = open(&edge, &mut brain, "silent");
    let (mut client, _) = open(&edge, &mut brain, "lively");
    let lively = std::thread::spawn(move || {
        for _ in 0..2 {
            assert_eq!(any_frame(&mut client), (PING, Vec::new()));
            let mut bytes = Vec::new();
            frames::pong(&mut bytes, b"", KEY);
            client.send(&bytes);
        }
        client
    });
    assert_eq!(any_frame(&mut silent), (PING, Vec::new()));
    assert_eq!(expect_close(&mut silent, 1_001), "no pong");
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    drop(lively.join().unwrap());
}

/// What an edge is stopped for is no time of its clients: an answer may lie in the socket.
#[test]
fn a_pong_while_the_edge_is_stopped() {
    let (edge, mut brain) = Edge::start(&[("stream_heartbeat_ms", "6000")]);
    let (mut client, _) = open(&edge, &mut brain, "u");
    assert_eq!(any_frame(&mut client), (PING, Vec::new()));
    signal(&edge, "-STOP");
    let mut bytes = Vec::new();
    frames::pong(&mut bytes, b"", KEY);
    client.send(&bytes);
    // Longer than a walk of the sweep, after which it would be looked at.
    std::thread::sleep(std::time::Duration::from_millis(3_000));
    signal(&edge, "-CONT");
    assert_eq!(any_frame(&mut client), (PING, Vec::new()));
}

/// 6.6 on a WebSocket: a close with code 1001 and the reason.
#[test]
fn close_sessions() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = open(&edge, &mut brain, "u");
    brain.close_sessions("moved", &[conn]);
    assert_eq!(expect_close(&mut client, 1_001), "moved");
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
}
