//! http.md 17: who the client is when it comes through a proxy.

use std::time::Duration;

use crate::brain::{Brain, Edge, Seen};
use crate::client::{Client, sse};
use crate::limits::{PREFLIGHT, asks_too_often, from, preflight, refusal};

const TRUSTED: &str = "127.0.0.7, 10.0.0.0/8";

fn start(more: &[(&str, &str)]) -> (Edge, Brain) {
    let mut settings = vec![
        ("proxy_trusted", TRUSTED),
        ("limits_exempt", "192.0.2.0/24"),
        ("requests_burst_ms", "1000"),
    ];
    settings.extend(more);
    Edge::start(&settings)
}

fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut out = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    out.extend([0x20 | command, family, 0, rest.len() as u8]);
    out.extend(rest);
    out
}

/// The header of a connection from 192.0.2.`n`.
fn of(n: u8) -> Vec<u8> {
    header(1, 0x11, &[192, 0, 2, n, 10, 0, 0, 1, 1, 1, 0, 80])
}

fn asks(client: &mut Client) -> u16 {
    preflight(client);
    client.response().status
}

/// Asks with each of these lines, in one write: the clock gives back one request in a second.
fn forward(client: &mut Client, all: &[&str]) -> Vec<u16> {
    let one = |lines: &&str| PREFLIGHT.replace("Host: h\r\n", &format!("Host: h\r\n{lines}"));
    client.send(all.iter().map(one).collect::<String>());
    all.iter().map(|_| client.response().status).collect()
}

/// 17.1: "begins with a header of the PROXY protocol [...] It comes before TLS and HTTP." 17.5:
/// "The client's address is what 16.1 and 16.3 count. A proxy counts as none itself. An address
/// that a proxy named is never exempt."
#[test]
fn the_client_behind_a_proxy() {
    let (edge, mut brain) = start(&[
        ("public_proxy_protocol", "on"),
        ("connections_per_address_max", "2"),
        ("requests_per_address_per_s_max", "2"),
    ]);
    let through = |header: &[u8]| {
        let mut client = from(&edge, "127.0.0.7");
        client.send(header);
        client
    };
    let mut ours: Vec<Client> = (0..2).map(|_| through(&of(1))).collect();
    assert!(ours.iter_mut().all(|client| asks(client) == 204));
    asks_too_often(&mut ours[0]);
    let mut third = through(&of(1));
    refusal(&mut third, 429, "too_many_connections");
    third.expect_end();
    // Others through the same proxy, and the proxy itself, have nothing to do with it.
    assert_eq!(asks(&mut through(&of(2))), 204);
    let mut checks: Vec<Client> = (0..4).map(|_| through(&header(0, 0, b""))).collect();
    assert!(checks.iter_mut().all(|check| asks(check) == 204));
    drop(checks);
    // In pieces, in one with the request, and with more in it than the address.
    let mut slow = through(b"");
    for byte in header(1, 0x11, &[&of(3)[16..], &[4, 0, 2, 7, 7]].concat()) {
        slow.send([byte]);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(asks(&mut slow), 204);
    let ask = "GET /v1/stream?user=ann HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut stream = through(&[&of(4)[..], ask.as_bytes()].concat());
    let (conn, ..) = brain.open();
    brain.opened(conn, 1);
    assert!(stream.head().starts_with("HTTP/1.1 200 "));
    brain.stat_becomes("proxy_errors_total", 0);
    // 16.1: "A close subtracts what the opening added."
    drop(ours);
    brain.stat_becomes("connections", 2);
    std::thread::sleep(Duration::from_millis(1_000));
    assert_eq!(asks(&mut through(&of(1))), 204);
}

/// 17.2: "A connection without such a header, with one that is longer than
/// `proxy_header_bytes_max`, takes longer than `proxy_header_ms_max`, or is version 1, is closed
/// without a word, and counted."
#[test]
fn bad_headers() {
    let (edge, mut brain) = start(&[
        ("public_proxy_protocol", "on"),
        ("proxy_header_ms_max", "400"),
        ("proxy_header_bytes_max", "100"),
    ]);
    let request =
        b"OPTIONS /v1/stream HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: GET\r\n\r\n";
    let bad: [&[u8]; 8] = [
        request,
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        &header(2, 0x11, &[0; 12]),
        &header(1, 0x12, &[0; 12]),
        &header(1, 0x11, &[0; 11]),
        &header(1, 0x11, &[0; 85]),
        // Late, and nothing at all.
        &of(1)[..27],
        b"",
    ];
    for (n, bytes) in bad.iter().enumerate() {
        let mut client = from(&edge, "127.0.0.7");
        client.send(bytes);
        client.expect_end();
        brain.stat_becomes("proxy_errors_total", n as u64 + 1);
    }
    // One that leaves in the middle is one more.
    let mut client = from(&edge, "127.0.0.7");
    client.send(&of(1)[..20]);
    drop(client);
    brain.stat_becomes("proxy_errors_total", 9);
    brain.stat_becomes("connections", 0);
    // 17.3: "A connection from any other address is the client's own."
    let mut other = from(&edge, "127.0.0.8");
    other.send(of(1));
    assert_eq!(other.response().status, 400);
    assert_eq!(asks(&mut from(&edge, "127.0.0.8")), 204);
    // The API's listener has a switch of its own.
    let mut api = edge.api();
    api.ask("OPTIONS", "/v1/events", "Access-Control-Request-Method: GET\r\n");
    assert_eq!(api.response().status, 204);
}

/// 17.4: "a request from `proxy.trusted` to the public listener comes from the rightmost address in
/// `X-Forwarded-For`, all its lines together, that isn't trusted".
#[test]
fn forwarded_requests() {
    let (edge, _brain) =
        start(&[("proxy_forwarded_for", "on"), ("requests_per_address_per_s_max", "1")]);
    let mut proxy = from(&edge, "127.0.0.7");
    assert_eq!(
        forward(
            &mut proxy,
            &[
                "X-Forwarded-For: 192.0.2.1\r\n",
                "X-Forwarded-For: 198.51.100.9, 192.0.2.1, 10.0.0.9\r\n",
                "X-Forwarded-For: 192.0.2.3\r\nX-Forwarded-For: 192.0.2.2\r\n",
                // What was left of it meant nothing.
                "X-Forwarded-For: 192.0.2.3\r\n",
                "X-Forwarded-For: 192.0.2.2\r\n",
            ]
        ),
        [204, 429, 204, 204, 429]
    );
    // The proxy itself.
    assert_eq!(forward(&mut proxy, &["", "X-Forwarded-For: 10.0.0.1\r\n"].repeat(5)), [204; 10]);
    // Who isn't trusted says nothing by it.
    let mut client = from(&edge, "127.0.0.8");
    let lines = ["X-Forwarded-For: 192.0.2.77\r\n", "X-Forwarded-For: 192.0.2.78\r\n"];
    assert_eq!(forward(&mut client, &lines), [204, 429]);
}

/// 17.4: "A stream or poll counts as a connection of that address as long as it lasts, and as none
/// of the proxy's."
#[test]
fn forwarded_streams() {
    let (edge, mut brain) =
        start(&[("proxy_forwarded_for", "on"), ("connections_per_address_max", "1")]);
    let ask = |n: u8, target: &str| {
        let mut client = from(&edge, "127.0.0.7");
        client.ask("GET", target, &format!("X-Forwarded-For: 192.0.2.{n}\r\n"));
        client
    };
    let opened = |brain: &mut Brain| {
        let (conn, ..) = brain.open();
        brain.opened(conn, 1);
        conn
    };
    let mut ann = ask(1, "/v1/stream?user=ann");
    opened(&mut brain);
    assert!(ann.head().starts_with("HTTP/1.1 200 "));
    let mut second = ask(1, "/v1/stream?user=ann");
    refusal(&mut second, 429, "too_many_connections");
    // The proxy's connection stays, for others.
    second.ask("GET", "/v1/poll?user=bob&timeout=0", "X-Forwarded-For: 192.0.2.2\r\n");
    opened(&mut brain);
    assert_eq!(second.response().status, 200);
    assert!(matches!(brain.next(), Seen::Close(_)));
    // The poll is over: it is bob's no longer.
    let mut bob = ask(2, "/v1/stream?user=bob");
    opened(&mut brain);
    assert!(bob.head().starts_with("HTTP/1.1 200 "));
    drop(ann);
    assert!(matches!(brain.next(), Seen::Close(_)));
    let mut again = ask(1, "/v1/stream?user=ann");
    opened(&mut brain);
    assert!(again.head().starts_with("HTTP/1.1 200 "));
}

/// Both at once: a proxy of connections before proxies of requests.
#[test]
fn a_proxy_behind_a_proxy() {
    let (edge, mut brain) = start(&[
        ("public_proxy_protocol", "on"),
        ("proxy_forwarded_for", "on"),
        ("requests_per_address_per_s_max", "1"),
    ]);
    let mut client = from(&edge, "127.0.0.7");
    client.send(header(1, 0x11, &[10, 9, 9, 9, 10, 0, 0, 1, 1, 1, 0, 80]));
    assert_eq!(forward(&mut client, &["X-Forwarded-For: 192.0.2.1\r\n"; 2]), [204, 429]);
    assert_eq!(asks(&mut client), 204, "the inner proxy itself");
    drop(client);
    sse(&edge, &mut brain, "ann");
}
