//! link.md 9.3: an edge that takes the place of another one, at the same addresses.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use halley_link::Frame;

use crate::brain::{Edge, WAIT};
use crate::client::sse;
use crate::edge::free_address;
use crate::process::one_line;

/// Whether a client that comes is answered; false where its connection was reset.
fn is_answered(address: SocketAddr) -> bool {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    let mut answer = String::new();
    let ask = b"OPTIONS /v1/stream HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
    let read = socket.write_all(ask).and_then(|()| socket.read_to_string(&mut answer));
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 204 "), "{answer}");
    assert!(read.map_or_else(|e| e.kind() != ErrorKind::WouldBlock, |_| true), "silence");
    !answer.is_empty()
}

/// 9.3: "no connection is refused on the way, except one": clients come all the time, and each is
/// answered, while the streams of the old edge go on.
#[test]
fn who_comes_meanwhile_is_answered() {
    let (public, api) = (free_address(), free_address());
    let addresses = [&*format!("{public}"), &*format!("{api}")];
    let arguments = ["--public", addresses[0], "--api", addresses[1]];
    let (mut old, mut old_brain) = Edge::start_with(&arguments, &[], 1 << 20);
    let (mut stays, _) = sse(&old, &mut old_brain, "u");
    let over = Arc::new(AtomicBool::new(false));
    let visitors: Vec<_> = (0..4)
        .map(|_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let (mut answered, mut reset) = (0, 0);
                while !over.load(Ordering::Relaxed) {
                    let counts = if is_answered(public) { &mut answered } else { &mut reset };
                    *counts += 1;
                }
                (answered, reset)
            })
        })
        .collect();
    let beside = [&arguments[..], &["--beside"]].concat();
    let (new, _new_brain) = Edge::start_with(&beside, &[], 1 << 20);
    assert_eq!((new.public, new.api), (public, api));
    old_brain.send(&Frame::Shutdown { drain_ms: 600 });
    assert!(stays.rest().ends_with(b"0\r\n\r\n"), "it was there until its turn came");
    drop(stays);
    assert_eq!(old.exit_code(), Some(0));
    over.store(true, Ordering::Relaxed);
    let visits = visitors.into_iter().map(|visitor| visitor.join().unwrap());
    let (answered, reset): (Vec<i32>, Vec<i32>) = visits.unzip();
    assert!(answered.iter().all(|count| *count > 0));
    // Whose handshake of TCP was under way when the old edge's socket closed.
    assert!(reset.iter().sum::<i32>() <= 1, "{reset:?} of {answered:?}");
}

/// 9.3: "a program that isn't an edge": the addresses must be shared from both sides.
#[test]
fn a_stranger_at_the_address_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, line) = one_line(&["--public", &address, "--beside"]);
    assert_eq!(code, Some(1));
    assert!(line.contains("public.listen") && line.contains(&address), "{line}");
    let address = free_address().to_string();
    let (code, line) = one_line(&["--public", &address, "--api", &address, "--beside"]);
    assert_eq!(code, Some(1));
    assert!(line.contains("api.listen"), "{line}");
}
