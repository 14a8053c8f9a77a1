//! http.md 15.6: whose turn it is to go on with its handshake.

use std::io::{ErrorKind, Write};
use std::sync::Arc;

use rustls::version::TLS13;

use crate::certificates::{Certificates, public, sealed};
use crate::client::{Client, sse_event};
use crate::tls::{open_sse, start};

/// 15.6: "who is connected is served meanwhile", and each handshake is finished, however its bytes
/// are cut.
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

/// 15.6: "They take turns, those that have begun first".
#[test]
fn a_handshake_that_has_begun_does_not_wait_for_a_thousand_that_begin() {
    let certificates = Certificates::new();
    let (edge, mut brain) =
        start(&certificates, &["public"], &[("tls_handshake_ms_max", "600000")]);
    let config = Arc::new(certificates.client(&TLS13, None));
    let mut client = sealed(edge.public(), &config);
    let tls = client.tls.as_mut().unwrap();
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).unwrap();
    client.socket.write_all(&hello).unwrap();
    while tls.is_handshaking() {
        assert!(tls.read_tls(&mut client.socket).unwrap() > 0);
        tls.process_new_packets().unwrap();
    }
    // The same hello serves them all: nobody of them goes on.
    let many: Vec<Client> = (0..1_000)
        .map(|_| {
            let mut other = edge.public();
            other.send_plain(&hello);
            other
        })
        .collect();
    // By then all of them were accepted, and wait.
    assert_eq!(many[100].socket.peek(&mut [0]).unwrap(), 1);
    open_sse(&mut client, &mut brain);
    let last = &many.last().unwrap().socket;
    last.set_nonblocking(true).unwrap();
    let nothing = last.peek(&mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock, "the last has had no turn yet");
}
