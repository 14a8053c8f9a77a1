//! http.md 15: TLS on the listeners, spoken by rustls's client over real sockets.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use halley_link::{FLAG_END, Frame};
use rustls::version::TLS13;
use rustls::{AlertDescription, Error, HandshakeKind};

use crate::brain::{Brain, Edge, Seen, WINDOW};
use crate::certificates::{Certificates, VERSIONS, certificate, public, sealed};
use crate::client::{Client, SSE_WELCOME, sse_event};

/// An edge that speaks TLS on these listeners, with these settings.
pub fn start(
    certificates: &Certificates,
    listeners: &[&str],
    settings: &[(&str, &str)],
) -> (Edge, Brain) {
    let arguments: Vec<String> =
        listeners.iter().flat_map(|listener| certificates.arguments(listener)).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Edge::start_with(&arguments, settings, WINDOW)
}

pub fn open_sse(client: &mut Client, brain: &mut Brain) -> u64 {
    client.ask("GET", "/v1/stream?user=u", "");
    let (conn, ..) = brain.open();
    brain.opened(conn, 1_000);
    assert!(client.head().starts_with("HTTP/1.1 200"));
    client.expect_chunk(SSE_WELCOME);
    conn
}

/// What the handshake ended with.
fn refusal(client: &mut Client) -> Error {
    let error = client.shake_hands().and_then(|()| client.read_byte()).unwrap_err();
    *error.into_inner().unwrap().downcast().unwrap()
}

/// 15.1: "A listener with a certificate (`public.tls`, `api.tls`) speaks TLS 1.3 and 1.2". 15.2:
/// "The protocol inside is `http/1.1`."
#[test]
fn both_versions_on_both_listeners() {
    let certificates = Certificates::new();
    let (edge, mut brain) = start(&certificates, &["public", "api"], &[]);
    for (version, name) in VERSIONS {
        let mut config = certificates.client(version, None);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let mut client = public(&edge, &config);
        let tls = client.tls.as_ref().unwrap();
        assert_eq!(tls.protocol_version(), Some(name));
        assert_eq!(tls.alpn_protocol(), Some(b"http/1.1".as_slice()));
        let conn = open_sse(&mut client, &mut brain);
        let event = brain.deliver("c1", "1", &[conn]);
        client.expect_chunk(&sse_event("c1", &event));
        drop(client);
        assert!(matches!(brain.next(), Seen::Close(..)));
        let mut client = sealed(edge.api(), &config);
        client.send("POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
        let request = brain.request();
        assert_eq!((request.listener, request.body.as_slice()), (2, b"body".as_slice()));
        brain.respond(request.conn, 200, "ok");
        assert_eq!(client.response().body, "ok");
    }
    brain.stat_becomes("tls_handshakes_total", 4);
}

/// 15.1: each listener is what its own keys make it.
#[test]
fn one_of_the_listeners() {
    let certificates = Certificates::new();
    let (edge, mut brain) = start(&certificates, &["public"], &[]);
    let mut client = edge.api();
    client.ask("GET", "/v1/history", "");
    let request = brain.request();
    brain.respond(request.conn, 200, "plain");
    assert_eq!(client.response().body, "plain");
    let config = Arc::new(certificates.client(&TLS13, None));
    open_sse(&mut public(&edge, &config), &mut brain);
}

/// 15.2: "A client that offers protocols (ALPN) without it gets the alert
/// `no_application_protocol`; one that offers none is served" (as the tests around this one are).
#[test]
fn a_client_that_speaks_h2_alone() {
    let certificates = Certificates::new();
    let (edge, mut brain) = start(&certificates, &["public"], &[]);
    for (n, (version, _)) in (1..).zip(VERSIONS) {
        let mut config = certificates.client(version, None);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let mut client = sealed(edge.public(), &Arc::new(config));
        let alert = Error::AlertReceived(AlertDescription::NoApplicationProtocol);
        assert_eq!(refusal(&mut client), alert);
        brain.stat_becomes("tls_incompatible_total", n);
    }
}

/// 15.3: "A session is resumed by a ticket". 15.9: "until the certificate changes".
#[test]
fn tickets() {
    let certificates = Certificates::new();
    let (edge, mut brain) = start(&certificates, &["public"], &[]);
    for (n, (version, _)) in (1..).zip(VERSIONS) {
        let config = Arc::new(certificates.client(version, None));
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut client = public(&edge, &config);
            assert_eq!(client.tls.as_ref().unwrap().handshake_kind(), Some(kind));
            // TLS 1.3 sends its tickets after the handshake: they are read with the answer.
            open_sse(&mut client, &mut brain);
            drop(client);
            assert!(matches!(brain.next(), Seen::Close(..)));
        }
        brain.stat_becomes("tls_resumed_total", n);
    }
    let config = Arc::new(certificates.client(&TLS13, None));
    let mut before = public(&edge, &config);
    open_sse(&mut before, &mut brain);
    certificates.sign("server", "ca");
    brain.stat_becomes("certificates_read_total", 1);
    let client = public(&edge, &config);
    assert_eq!(client.tls.as_ref().unwrap().handshake_kind(), Some(HandshakeKind::Full));
}

/// 15.4: "With `api.tls.client_ca` a client of the API listener must show a certificate that this
/// CA has signed, else it is refused with an alert." 15.3: such a one gets no ticket.
#[test]
fn clients_with_certificates() {
    let certificates = Certificates::new();
    certificates.authority("others");
    certificates.sign("ours", "ca");
    certificates.sign("theirs", "others");
    let ca = certificates.file("ca.pem");
    let mut arguments: Vec<String> = certificates.arguments("api").into();
    arguments.extend(["--api-client-ca".to_owned(), ca]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (edge, mut brain) = Edge::start_with(&arguments, &[], WINDOW);
    for (n, (version, _)) in (1..).zip(VERSIONS) {
        for (of, own) in [None, Some("theirs")].into_iter().enumerate() {
            let config = Arc::new(certificates.client(version, own));
            let mut client = sealed(edge.api(), &config);
            assert!(matches!(refusal(&mut client), Error::AlertReceived(_)), "{own:?}");
            let refused = 2 * (n - 1) + of as u64 + 1;
            brain.stat_becomes("tls_clients_refused_total", refused);
        }
        let config = Arc::new(certificates.client(version, Some("ours")));
        for _ in 0..2 {
            let mut client = sealed(edge.api(), &config);
            client.ask("GET", "/v1/history", "");
            let request = brain.request();
            brain.respond(request.conn, 200, "ours");
            assert_eq!(client.response().body, "ours");
            let kind = client.tls.as_ref().unwrap().handshake_kind();
            assert_eq!(kind, Some(HandshakeKind::Full));
        }
    }
}

/// 15.4: "of version 3 of X.509": who shows an older one is refused, and the operator is told why.
#[test]
fn a_client_certificate_of_version_1() {
    let certificates = Certificates::new();
    certificates.sign_version_1("old");
    let ca = certificates.file("ca.pem");
    let mut arguments: Vec<String> = certificates.arguments("api").into();
    arguments.extend(["--api-client-ca".to_owned(), ca]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (edge, mut brain) = Edge::start_with(&arguments, &[], WINDOW);
    certificates.connect_with("old", &edge.api.to_string());
    brain.stat_becomes("tls_clients_version_1_total", 1);
    assert_eq!(brain.stat("tls_clients_refused_total"), 1);
}

/// 15.5: "A handshake takes `tls_handshake_ms_max` and 32,768 bytes at most; beyond them the
/// connection is closed."
#[test]
fn handshakes_that_take_too_much() {
    let certificates = Certificates::new();
    let settings = [("tls_handshake_ms_max", "300")];
    let (late, mut brain) = start(&certificates, &["public"], &settings);
    // A record that never ends, and one that never begins.
    let mut slow = late.public();
    slow.send([22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc]);
    let mut silent = late.public();
    silent.expect_end();
    slow.expect_end();
    brain.stat_becomes("tls_handshakes_late_total", 2);
    let (edge, mut brain) = start(&certificates, &["public"], &[]);
    // A hello that says it has 65,000 bytes, in records of 16,000.
    let mut long = edge.public();
    let mut hello = vec![1, 0, 0xfd, 0xe8];
    hello.resize(65_000, 0);
    let mut records = Vec::new();
    for part in hello.chunks(16_000) {
        records.extend([22, 3, 1, (part.len() >> 8) as u8, part.len() as u8]);
        records.extend(part);
    }
    let _ = long.socket.write_all(&records);
    long.rest();
    brain.stat_becomes("tls_broken_total", 1);
    let mut garbage = edge.public();
    garbage.send([0x80, 0x2e, 1, 0, 2]);
    garbage.expect_end();
    brain.stat_becomes("tls_broken_total", 2);
}

/// 15.7: "Plain HTTP at a listener of TLS is answered by a plain 400 `https_expected`. TLS at a
/// plain listener is a bad request line (1.4), and is counted besides."
#[test]
fn the_wrong_door() {
    let certificates = Certificates::new();
    let (edge, mut brain) = start(&certificates, &["public"], &[]);
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u", "");
    let response = client.response();
    assert_eq!(response.status, 400);
    assert!(response.body.contains(r#""code":"https_expected""#), "{}", response.body);
    client.expect_end();
    brain.stat_becomes("https_expected_total", 1);
    let config = Arc::new(certificates.client(&TLS13, None));
    let mut client = sealed(edge.api(), &config);
    assert!(matches!(refusal(&mut client), Error::InvalidMessage(_)));
    brain.stat_becomes("tls_unexpected_total", 1);
}

/// 15.8: "A connection that the edge ends is ended by `close_notify`." A client that reads an end
/// without one panics (`Client::more`).
#[test]
fn the_edge_says_that_it_ends() {
    let certificates = Certificates::new();
    let settings = [("request_ms_max", "4000")];
    let (edge, mut brain) = start(&certificates, &["public"], &settings);
    let mut idle = Vec::new();
    for (version, _) in VERSIONS {
        let config = Arc::new(certificates.client(version, None));
        idle.push(public(&edge, &config));
        let mut stream = public(&edge, &config);
        let conn = open_sse(&mut stream, &mut brain);
        brain.close_sessions("over", &[conn]);
        stream.expect("0\r\n\r\n");
        stream.expect_end();
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
        let mut bad = public(&edge, &config);
        bad.send("GET  / HTTP/1.1\r\n\r\n");
        assert_eq!(bad.response().status, 400);
        bad.expect_end();
    }
    idle.iter_mut().for_each(Client::expect_end);
}

/// 15.8: "A client's `close_notify` is the end of its bytes, and so is an end without one: a body
/// that isn't whole then is treated as in plain HTTP."
#[test]
fn a_client_that_ends() {
    let certificates = Certificates::new();
    let (edge, mut brain) = start(&certificates, &["public", "api"], &[]);
    let config = Arc::new(certificates.client(&TLS13, None));
    for says_so in [true, false] {
        let mut client = sealed(edge.api(), &config);
        client.send("POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nbody");
        let request = brain.request();
        assert_eq!(request.flags, 0, "the body isn't whole");
        assert!(matches!(brain.next(), Seen::Body(..)));
        if says_so {
            client.say_goodbye();
        }
        client.socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(brain.next(), Seen::Gone(request.conn));
        let mut stream = public(&edge, &config);
        let conn = open_sse(&mut stream, &mut brain);
        if says_so {
            stream.say_goodbye();
        } else {
            stream.reset();
        }
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    }
}

/// 15.9: "New connections get the new ones, those that are open stay. Files that can't be used, or
/// don't go together, change nothing."
#[test]
fn certificates_that_change() {
    let certificates = Certificates::new();
    let (edge, mut brain) = start(&certificates, &["public"], &[]);
    let config = Arc::new(certificates.client(&TLS13, None));
    let shown = |client: &Client| {
        client.tls.as_ref().unwrap().peer_certificates().unwrap()[0].clone().into_owned()
    };
    let of_file = || certificate(certificates.file("server.pem").as_ref());
    let first = of_file();
    let mut stream = public(&edge, &config);
    let conn = open_sse(&mut stream, &mut brain);
    certificates.sign("server", "ca");
    assert_ne!(of_file(), first);
    brain.stat_becomes("certificates_read_total", 1);
    // A look may have come between the new key and its certificate.
    let unusable = brain.stat("certificates_unusable_total");
    let second = of_file();
    assert_eq!(shown(&public(&edge, &config)), second);
    // All of another file at once, as a look may come at any time.
    let key_becomes = |name: &str| {
        std::fs::rename(certificates.file(name), certificates.file("server.key")).unwrap();
    };
    std::fs::write(certificates.file("none.key"), "not a key").unwrap();
    key_becomes("none.key");
    brain.stat_becomes("certificates_unusable_total", unusable + 1);
    assert_eq!(shown(&public(&edge, &config)), second);
    certificates.sign("other", "ca");
    key_becomes("other.key");
    brain.stat_becomes("certificates_unusable_total", unusable + 2);
    assert_eq!(shown(&public(&edge, &config)), second);
    let event = brain.deliver("c1", "1", &[conn]);
    stream.expect_chunk(&sse_event("c1", &event));
    assert_eq!(shown(&stream), first);
}

/// 15.10: "Sealed bytes that the socket hasn't taken are one record of 16,384 bytes at most." A
/// client that reads late reads all, in order, and may send much meanwhile.
#[test]
fn much_of_everything() {
    let certificates = Certificates::new();
    let (edge, mut brain) = start(&certificates, &["public", "api"], &[]);
    for (version, _) in VERSIONS {
        let config = Arc::new(certificates.client(version, None));
        let mut stream = public(&edge, &config);
        let conn = open_sse(&mut stream, &mut brain);
        let data = format!("\"{}\"", "x".repeat(9_000));
        let events: Vec<String> =
            (0..90).map(|n| brain.deliver(&format!("c{n}"), &data, &[conn])).collect();
        std::thread::sleep(Duration::from_millis(100));
        for (n, event) in events.iter().enumerate() {
            stream.expect_chunk(&sse_event(&format!("c{n}"), event));
        }
        drop(stream);
        assert!(matches!(brain.next(), Seen::Close(..)));
        let mut client = sealed(edge.api(), &config);
        let body: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let length = body.len();
        client.send(format!("POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n"));
        client.send(&body);
        let request = brain.request();
        let mut got = request.body.clone();
        while got.len() < length {
            let Seen::Body(_, _, part) = brain.next() else { panic!("not a body") };
            got.extend(part);
        }
        assert_eq!(got, body);
        let answer = "y".repeat(150_000);
        let (first, second) = answer.split_at(100_000);
        brain.response(request.conn, 200, 0, answer.len() as u64, &[], first.as_bytes());
        let (conn, body) = (request.conn, second.as_bytes());
        brain.send(&Frame::ResponseBody { conn, flags: FLAG_END, body });
        assert_eq!(client.response().body, answer);
    }
    brain.stat_becomes("outbox_bytes", 0);
}

/// contract: what can't be used is told in one line that names the key, and the edge doesn't start.
#[test]
fn files_that_cannot_be_used() {
    let certificates = Certificates::new();
    certificates.sign("other", "ca");
    let (server, other) = (certificates.file("server.pem"), certificates.file("other.key"));
    let missing = certificates.file("missing.pem");
    for (certificate, key, what) in [
        (&server, &other, "public.tls.key: "),
        (&missing, &other, "public.tls.certificate: "),
        (&other, &other, "public.tls.certificate: "),
        (&server, &server, "public.tls.key: "),
    ] {
        let arguments = ["--public-certificate", certificate, "--public-key", key];
        let (code, line) = crate::process::one_line(&arguments);
        assert_eq!(code, Some(1));
        assert!(line.contains(what), "{line}");
    }
}
