//! Clause 9 and the command line: how the process begins and ends.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::brain::{Edge, command};
use crate::client::sse;
use crate::edge::free_address;

pub fn signal(edge: &Edge, name: &str) {
    let pid = edge.child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// contract: "`SIGTERM` to either: a clean stop." http.md 7.6: streams are ended by the last chunk.
/// What is said before that is in `drain.rs`.
#[test]
fn sigterm() {
    let (mut edge, mut brain) = Edge::start(&[]);
    let (mut client, _) = sse(&edge, &mut brain, "u");
    let (mut websocket, _) = crate::websocket::open(&edge, &mut brain, "w");
    signal(&edge, "-TERM");
    assert!(String::from_utf8(client.rest()).unwrap().ends_with("\r\n0\r\n\r\n"));
    let (first, payload) = crate::websocket::frame(&mut websocket);
    assert_eq!((first, &payload[..2]), (0x88, &[0x03, 0xe9][..]), "RFC 6455 7.4.1: going away");
    drop(websocket);
    assert_eq!(edge.exit_code(), Some(0));
}

/// contract: the edge outlives the brain's terminal.
#[test]
fn sighup_is_nothing() {
    let (mut edge, mut brain) = Edge::start(&[]);
    signal(&edge, "-HUP");
    std::thread::sleep(Duration::from_millis(150));
    sse(&edge, &mut brain, "u");
    assert_eq!(edge.child.try_wait().unwrap(), None);
}

pub fn one_line(arguments: &[&str]) -> (Option<i32>, String) {
    let (mut command, dir) = command(arguments);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let _ = std::fs::remove_dir_all(dir);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    (output.status.code(), text)
}

/// contract: "a port in use: one clear line on stderr that names the key, and exit 1".
#[test]
fn a_port_in_use() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (option, key) in [("--public", "public.listen"), ("--api", "api.listen")] {
        let (code, line) = one_line(&[option, &address]);
        assert_eq!(code, Some(1));
        assert!(line.contains(key) && line.contains(&address), "{line}");
    }
}

/// contract: the two listeners must not share a port, by which the kernel would mix their clients.
#[test]
fn one_port_for_both() {
    let address = free_address().to_string();
    let (code, line) = one_line(&["--public", &address, "--api", &address]);
    assert_eq!(code, Some(1));
    assert!(line.contains("api.listen"), "{line}");
}

/// contract: an address of another machine.
#[test]
fn an_address_that_is_not_ours() {
    let (code, line) = one_line(&["--public", "192.0.2.1:0"]);
    assert_eq!(code, Some(1));
    assert!(line.contains("public.listen"), "{line}");
}
