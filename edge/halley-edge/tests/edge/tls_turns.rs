//! http.md 15.6: whose turn it is to go on with its handshake.

use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::crypto::{ActiveKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::version::TLS13;
use rustls::{Error, NamedGroup};

use crate::brain::{Brain, Edge};
use crate::certificates::{Certificates, VERSIONS, public, sealed};
use crate::client::{Client, sse_event};
use crate::tls::{open_sse, start};

/// 15.6: "connected clients are served meanwhile", and each handshake is finished, however its
/// bytes are cut.
#[test]
fn handshakes_in_small_pieces_and_large_numbers() {
    let certificates = Certificates::new();
    let (edge, mut brain) =
        start(&certificates, &["public"], &[("tls_handshake_ms_max", "600000")]);
    let config = Arc::new(certificates.client(&TLS13, None));
    let mut stream = public(&edge, &config);
    let conn = open_sse(&mut stream, &mut brain);
    let many: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = sealed(edge.public(), &config);
            let tls = client.tls.as_mut().unwrap();
            let mut hello = Vec::new();
            tls.write_tls(&mut hello).unwrap();
            client.socket.set_nodelay(true).unwrap();
            for part in hello.chunks(100) {
                client.send_plain(part);
            }
            client
        })
        .collect();
    let event = brain.deliver("c1", "1", &[conn]);
    stream.expect_chunk(&sse_event("c1", &event));
    for mut client in many {
        client.shake_hands().unwrap();
    }
    brain.stat_becomes("tls_handshakes_total", 201);
}

/// What this client wants to send.
fn said(client: &mut Client) -> Vec<u8> {
    let mut said = Vec::new();
    let tls = client.tls.as_mut().unwrap();
    while tls.wants_write() {
        tls.write_tls(&mut said).unwrap();
    }
    said
}

/// Clients that were accepted, have said nothing, and don't wait when they read.
fn crowd(edge: &Edge, brain: &mut Brain, count: u64, others: u64) -> Vec<Client> {
    let many: Vec<Client> = (0..count).map(|_| edge.public()).collect();
    brain.stat_becomes("connections", count + others);
    many.iter().for_each(|client| client.socket.set_nonblocking(true).unwrap());
    many
}

/// How many have an answer. The last come first, as meanwhile more get one.
fn answered(many: &[Client]) -> usize {
    many.iter().rev().filter(|client| client.socket.peek(&mut [0]).is_ok()).count()
}

/// 15.6: "They take turns, those that have begun first".
#[test]
fn a_handshake_that_has_begun_does_not_wait_for_those_that_begin() {
    // All of them together take longer than this test may be held up.
    let certificates = Certificates::dear();
    let (edge, mut brain) =
        start(&certificates, &["public"], &[("tls_handshake_ms_max", "600000")]);
    let config = Arc::new(certificates.client(&TLS13, None));
    let mut client = sealed(edge.public(), &config);
    let hello = said(&mut client);
    client.send_plain(&hello);
    let tls = client.tls.as_mut().unwrap();
    while tls.is_handshaking() {
        assert!(tls.read_tls(&mut client.socket).unwrap() > 0);
        tls.process_new_packets().unwrap();
    }
    let mut many = crowd(&edge, &mut brain, 3_000, 1);
    // The same hello serves them all: nobody of them goes on.
    many.iter_mut().for_each(|other| other.send_plain(&hello));
    let end = said(&mut client);
    client.send_plain(&end);
    // A ticket is the sign that it had its turn.
    assert_eq!(client.socket.peek(&mut [0]).unwrap(), 1);
    let before = answered(&many);
    assert!(before < many.len(), "all had their first turn before");
    open_sse(&mut client, &mut brain);
}

/// A client whose handshake had a turn that cost nothing, and the rest of what it says.
type Cheap = (Client, Vec<u8>);

/// Whole hellos come, then what is dear of the others: that has its turn behind them.
fn waits_with_those_that_begin(edge: &Edge, brain: &mut Brain, hello: &[u8], cheap: Vec<Cheap>) {
    let mut many = crowd(edge, brain, 1_000, cheap.len() as u64);
    many.iter_mut().for_each(|other| other.send_plain(hello));
    let mut clients: Vec<Client> = cheap
        .into_iter()
        .map(|(mut client, rest)| {
            client.send_plain(&rest);
            client
        })
        .collect();
    clients[0].socket.peek(&mut [0]).unwrap();
    let before = answered(&many);
    assert!(before > 900, "{before} of 1,000 that came first were answered first");
    clients.iter_mut().for_each(|client| client.shake_hands().unwrap());
}

/// 15.6: "has begun once its hello is answered": a first byte alone gives no better turn.
#[test]
fn a_hello_in_two_pieces_waits_as_a_whole_one() {
    let certificates = Certificates::new();
    for (version, _) in VERSIONS {
        let (edge, mut brain) =
            start(&certificates, &["public"], &[("tls_handshake_ms_max", "600000")]);
        let config = Arc::new(certificates.client(version, None));
        let mut hello = Vec::new();
        let split = |_| {
            let mut client = sealed(edge.public(), &config);
            hello = said(&mut client);
            client.send_plain(&hello[..1]);
            (client, hello[1..].to_vec())
        };
        let cheap: Vec<Cheap> = (0..100).map(split).collect();
        brain.stat_becomes("tls_connections", 100);
        waits_with_those_that_begin(&edge, &mut brain, &hello, cheap);
        brain.stat_becomes("tls_handshakes_total", 100);
    }
}

/// A group that only this client knows.
#[derive(Debug)]
struct Unknown;

impl SupportedKxGroup for Unknown {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(Unknown))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::Unknown(0xfe00)
    }
}

impl ActiveKeyExchange for Unknown {
    fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, Error> {
        Err(Error::General("nobody chooses it".into()))
    }

    fn pub_key(&self) -> &[u8] {
        b"key"
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::Unknown(0xfe00)
    }
}

/// 15.6: the same for a client that is asked for another hello (RFC 8446 section 4.1.4): answering
/// that one is the expensive step.
#[test]
fn a_second_hello_waits_as_a_first_one() {
    let certificates = Certificates::new();
    let (edge, mut brain) =
        start(&certificates, &["public"], &[("tls_handshake_ms_max", "600000")]);
    let config = Arc::new(certificates.client(&TLS13, None));
    let hello = said(&mut sealed(edge.public(), &config));
    let mut groups = vec![&Unknown as &dyn SupportedKxGroup];
    groups.extend(default_provider().kx_groups);
    let config = Arc::new(certificates.client_of(&TLS13, None, groups));
    let retried = |_| {
        let mut client = sealed(edge.public(), &config);
        let first = said(&mut client);
        client.send_plain(&first);
        let tls = client.tls.as_mut().unwrap();
        while !tls.wants_write() {
            assert!(tls.read_tls(&mut client.socket).unwrap() > 0);
            tls.process_new_packets().unwrap();
        }
        let second = said(&mut client);
        (client, second)
    };
    let cheap: Vec<Cheap> = (0..100).map(retried).collect();
    waits_with_those_that_begin(&edge, &mut brain, &hello, cheap);
    brain.stat_becomes("tls_handshakes_total", 100);
}
