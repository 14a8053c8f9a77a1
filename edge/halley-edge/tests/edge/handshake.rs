//! Clauses 1 to 3: dialling, hellos, settings.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use halley_link::Frame;

use crate::brain::{Edge, Seen, WAIT, WINDOW};
use crate::edge::free_address;

fn goodbye(seen: Seen) -> (u8, String) {
    match seen {
        Seen::Goodbye(code, reason) => (code, reason),
        other => panic!("not GOODBYE: {other:?}"),
    }
}

/// The worker has no sessions and takes the next brain.
pub fn handshakes_again(edge: &Edge) {
    let mut brain = edge.dial();
    brain.hello(&[], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    assert_eq!([brain.next(), brain.next()], [Seen::SyncBegin(0), Seen::SyncEnd]);
}

/// A worker's socket for the brain is there a moment before its listener for clients.
fn connect_once_it_listens(address: SocketAddr) -> TcpStream {
    let end = Instant::now() + WAIT;
    loop {
        match TcpStream::connect(address) {
            Ok(socket) => return socket,
            Err(e) => assert!(Instant::now() < end, "{e}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// 3.6: "A worker accepts no client before its first handshake."
#[test]
fn no_client_is_accepted_before_the_handshake() {
    let address = free_address();
    let edge = Edge::alone(&["--public", &address.to_string()]);
    let mut brain = edge.dial();
    let mut early = connect_once_it_listens(address);
    early.write_all(b"GET /v1/stream?user=early HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    brain.expect_silence(200);
    brain.hello(&[], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    assert_eq!([brain.next(), brain.next()], [Seen::SyncBegin(0), Seen::SyncEnd]);
    assert_eq!(brain.open().2, "early");
}

/// 3.1: "Any other first frame breaks this clause". 1.3: "answered with GOODBYE, which names the
/// clause, and the link is closed".
#[test]
fn the_first_frame_is_the_hello() {
    let edge = Edge::alone(&[]);
    let mut brain = edge.dial();
    brain.send(&Frame::Ping { nonce: 1 });
    let (code, reason) = goodbye(brain.next());
    assert_eq!(code, 3);
    assert!(reason.contains("3.1"), "{reason}");
    assert_eq!(brain.next(), Seen::End);
}

/// 3.1: "so does a second hello".
#[test]
fn there_is_one_hello() {
    let (_edge, mut brain) = Edge::start(&[]);
    brain.hello(&[], WINDOW);
    let (code, reason) = goodbye(brain.next());
    assert_eq!(code, 3);
    assert!(reason.contains("3.1"), "{reason}");
}

/// 3.2: "If there is none, the side that sees it sends GOODBYE 2 with both in the reason."
#[test]
fn another_version_is_refused_with_both() {
    let edge = Edge::alone(&[]);
    let mut brain = edge.dial();
    let mut hello = Vec::new();
    let settings = halley_link::List::from_items(0, &[]);
    Frame::HelloBrain { version: 777, window: WINDOW, node: b"n", settings }.encode(&mut hello);
    brain.send_bytes(&hello).unwrap();
    let (code, reason) = goodbye(brain.next());
    assert_eq!(code, 2);
    assert!(
        reason.contains("777") && reason.contains(&format!("to {} ", halley_link::VERSION)),
        "{reason}"
    );
}

/// 3.2: a brain says its lowest version, and its highest in `link_version_max`; one of before the
/// clause says one.
#[test]
fn the_highest_version_in_common_is_taken() {
    let edge = Edge::alone(&[]);
    for (lowest, highest, taken) in [
        (4, None, None),
        (4, Some("5"), None),
        (4, Some("6"), Some(6)),
        (4, Some("9"), Some(6)),
        (6, None, Some(6)),
        (6, Some("6"), Some(6)),
        (6, Some("7"), Some(6)),
        (7, Some("8"), None),
    ] {
        let mut brain = edge.dial();
        let settings: Vec<_> = highest.map(|max| ("link_version_max", max)).into_iter().collect();
        brain.hello_of(lowest, &settings, WINDOW);
        match brain.next() {
            Seen::HelloEdge { .. } => {
                assert_eq!(Some(brain.version), taken, "{lowest} {highest:?}")
            }
            other => assert_eq!((goodbye(other).0, taken), (2, None), "{lowest} {highest:?}"),
        }
    }
    for bad in ["3", "many", "", "65536"] {
        let mut brain = edge.dial();
        brain.hello_of(4, &[("link_version_max", bad)], WINDOW);
        let (code, reason) = goodbye(brain.next());
        assert!(code == 3 && reason.contains("link_version_max"), "{bad}: {reason}");
    }
}

/// 3.3: "A name that the edge does not know is ignored; a value that it cannot use is GOODBYE 3
/// with the name."
#[test]
fn settings_are_checked() {
    let bad = [
        ("outbox_bytes_max", "many"),
        ("request_ms_max", "0"),
        ("header_bytes_max", "100000"),
        ("headers_max", "101"),
        ("stream_heartbeat_ms", "1"),
        ("auth_mode", "magic"),
        ("cors_origins", "not an origin"),
    ];
    let edge = Edge::alone(&[]);
    for (name, value) in bad {
        let mut brain = edge.dial();
        brain.hello(&[(name, value)], WINDOW);
        let (code, reason) = goodbye(brain.next());
        assert_eq!(code, 3, "{name}");
        assert!(reason.contains(name), "{reason}");
        assert_eq!(brain.next(), Seen::End);
    }
    let mut brain = edge.dial();
    brain.hello(&[("colour", "blue"), ("auth_mode", "none")], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
}

/// 4.1: "Each hello grants the other side `window` bytes (at least 524,288)."
#[test]
fn a_window_that_is_too_small() {
    let edge = Edge::alone(&[]);
    let mut brain = edge.dial();
    brain.hello(&[], 524_287);
    let (code, reason) = goodbye(brain.next());
    assert_eq!(code, 3);
    assert!(reason.contains("4.1"), "{reason}");
}

/// 3.5: "The handshake takes 5 seconds at most".
#[test]
fn a_brain_that_says_nothing() {
    let edge = Edge::alone(&[]);
    // Before the edge's own time begins.
    let started = std::time::Instant::now();
    let mut brain = edge.dial();
    let (code, reason) = goodbye(brain.next());
    assert_eq!(code, 3);
    assert!(reason.contains("3.5"), "{reason}");
    assert!(started.elapsed() > Duration::from_millis(4_900));
}

/// 1.2: "When the brain dials again, the edge accepts the new connection and drops the old one".
#[test]
fn a_newer_link_replaces_the_old_one() {
    let (edge, mut old) = Edge::start(&[]);
    let new = edge.dial();
    assert_eq!(goodbye(old.next()).0, 7);
    assert_eq!(old.next(), Seen::End);
    drop(new);
    handshakes_again(&edge);
}

/// 2.3: "A frame that is too short, too long or of an unknown type breaks this clause." The
/// streams stay.
#[test]
fn garbage_ends_the_link_and_no_client() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, conn) = crate::client::sse(&edge, &mut brain, "u");
    let garbage: [(&[u8], &str); 5] = [
        (&[0, 0, 0, 0], "2.1"),
        (&[0, 4, 0, 1], "2.1"),
        (&[0, 0, 0, 1, 0xff], "2.3"),
        (&[0, 0, 0, 2, 0x01, 0], "2.3"),
        (&[0, 0, 0, 1, 0x42], "13.2"),
    ];
    for (bytes, clause) in garbage {
        brain.send_bytes(bytes).unwrap();
        let (code, reason) = goodbye(brain.next());
        assert_eq!(code, 1, "{clause}");
        assert!(reason.contains(clause), "{reason}");
        assert_eq!(brain.next(), Seen::End);
        brain = edge.dial();
        brain.hello(&[], WINDOW);
        assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
        assert_eq!(brain.next(), Seen::SyncBegin(1));
        assert_eq!(brain.open().0, conn);
        assert_eq!(brain.next(), Seen::SyncEnd);
    }
    brain.opened(conn, 1);
    let event = brain.deliver("c", "1", &[conn]);
    client.expect_chunk(&crate::client::sse_event("c", &event));
}
