//! link.md 9.3: an edge that takes the place of another one, at the same addresses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use halley_link::Frame;

use crate::brain::Edge;
use crate::client::{Client, sse};
use crate::edge::free_address;
use crate::process::one_line;

/// 9.3: "no connection is refused on the way": clients come all the time, and each is answered,
/// while the streams of the old edge go on.
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
                let mut answered = 0;
                while !over.load(Ordering::Relaxed) {
                    let mut client = Client::to(public);
                    client.ask("OPTIONS", "/v1/stream", "");
                    assert_eq!(client.response().status, 204);
                    answered += 1;
                }
                answered
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
    for visitor in visitors {
        assert!(visitor.join().unwrap() > 0);
    }
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
