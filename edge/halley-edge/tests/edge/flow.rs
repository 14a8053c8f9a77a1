//! Clause 4: credit and heartbeats of the link.

use std::time::{Duration, Instant};

use halley_link::Frame;

use crate::brain::{Edge, Seen, WAIT};

/// 4.2: "A side sends a costly frame only while its credit is above zero"; 4.4: "free frames
/// overtake whatever waits for credit".
#[test]
fn no_more_than_the_window_without_credit() {
    const WINDOW: usize = 524_288;
    let limits = [("request_window_bytes", "200000"), ("link_queue_bytes_max", "300000")];
    let (edge, mut brain) = Edge::start_with(&[], &limits, WINDOW as u32);
    (brain.generous, brain.costly) = (false, 0);
    let mut clients = Vec::new();
    for _ in 0..6 {
        let mut client = edge.api();
        client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 180000\r\n\r\n");
        brain.request();
        client.socket.set_nonblocking(true).unwrap();
        clients.push(client);
    }
    // All write what they can; the worker reads until its queue is full (4.6). When the window is
    // used up it has its time to go on for all that.
    let mut left = [180_000; 6];
    let (mut bodies, mut looks) = (0, 0);
    let end = Instant::now() + WAIT;
    while looks < 30 {
        assert!(Instant::now() < end, "{} bytes", brain.costly);
        std::thread::sleep(Duration::from_millis(10));
        looks += usize::from(brain.costly >= WINDOW);
        for (client, left) in clients.iter_mut().zip(&mut left) {
            use std::io::Write;
            *left -= client.socket.write(&vec![b'x'; *left]).unwrap_or(0);
        }
        brain.send(&Frame::Ping { nonce: 9 });
        loop {
            match brain.next() {
                Seen::Pong(9) => break,
                Seen::Body(..) => bodies += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    const FRAME: usize = 262_144 + 4;
    assert!(brain.costly >= WINDOW && brain.costly < WINDOW + FRAME, "{}", brain.costly);
    assert!(bodies > 0);
    let costly = brain.costly as u32;
    brain.send(&Frame::Credit { bytes: costly / 2 });
    brain.send(&Frame::Credit { bytes: costly - costly / 2 });
    brain.generous = true;
    while brain.costly < costly as usize + WINDOW / 2 {
        match brain.next() {
            Seen::Body(..) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// 4.6: "beyond it, it stops reading client requests and answers new streams with 503".
#[test]
fn a_full_queue_refuses_streams() {
    let limits = [("link_queue_bytes_max", "1000"), ("requests_in_flight_max", "100000")];
    let (edge, mut brain) = Edge::start_with(&[], &limits, 524_288);
    brain.generous = false;
    let mut uploads = Vec::new();
    let mut sent = 0;
    while sent < 700_000 {
        let mut client = edge.api();
        let head = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n";
        client.send(format!("{head}{}", "x".repeat(60_000)));
        uploads.push(client);
        sent += 60_000;
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=u", "");
    let response = client.response();
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    assert!(response.body.contains("brain_busy"), "{}", response.body);
}

/// 4.3: "Credit above the window breaks this clause."
#[test]
fn too_much_credit() {
    let (_edge, mut brain) = Edge::start(&[]);
    brain.send(&Frame::Credit { bytes: 1 << 20 });
    match brain.next() {
        Seen::Goodbye(5, reason) => assert!(reason.contains("4.3"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

/// 4.4: what is free is bounded as well: a brain that only asks is let go.
#[test]
fn pings_whose_answers_nobody_reads() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut ping = Vec::new();
    (0..1_000).for_each(|nonce| Frame::Ping { nonce }.encode(&mut ping));
    let ended = (0..10_000).any(|_| brain.send_bytes(&ping).is_err());
    assert!(ended, "130 MB of pings were taken");
    crate::handshake::handshakes_again(&edge);
}

/// 4.5: "answers PING with PONG of the same nonce".
#[test]
fn ping_is_answered() {
    let (_edge, mut brain) = Edge::start(&[]);
    for nonce in [0, 7, u64::MAX] {
        brain.send(&Frame::Ping { nonce });
        assert_eq!(brain.next(), Seen::Pong(nonce));
    }
}
