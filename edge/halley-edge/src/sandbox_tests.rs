//! The sandbox from inside: a process of its own applies it and tries what an intruder would.
//!
//! The sandbox can't be left again, so each of these tests runs once more as a process of its own,
//! which has [`DIR`] in its environment and plays the part inside; the test outside judges how that
//! process ended.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;

use super::*;

/// Where the process inside works; set for it alone.
const DIR: &str = "HALLEY_SANDBOX_DIR";
const PLAYED: &str = "all was tried inside of the sandbox";

/// Is this the process inside?
fn is_inside() -> bool {
    std::env::var_os(DIR).is_some()
}

/// Runs a test of this file in a process of its own.
fn alone(test: &str) -> (Output, PathBuf) {
    let dir = std::env::temp_dir().join(format!("halley-sandbox-{}-{test}", std::process::id()));
    fs::create_dir_all(dir.join("certificates")).unwrap();
    fs::write(dir.join("certificates/pem"), "a certificate").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("sandbox::tests::{test}"), "--nocapture"])
        .env(DIR, &dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output, dir)
}

fn dir() -> PathBuf {
    std::env::var(DIR).unwrap().into()
}

/// As `main` does it; with `port` to listen at.
fn enter(port: u16) {
    let reads = vec![dir().join("certificates/pem")];
    files_and_ports(&Needs { socket_dir: dir(), reads, ports: vec![port] }).unwrap();
}

fn is_refused<T>(tried: std::io::Result<T>) -> bool {
    matches!(tried.map_err(|e| e.raw_os_error()), Err(Some(libc::ENOSYS | libc::EACCES)))
}

#[test]
fn what_an_intruder_tries_is_refused_and_what_the_edge_needs_is_not() {
    if is_inside() {
        return tries();
    }
    let (output, dir) = alone("what_an_intruder_tries_is_refused_and_what_the_edge_needs_is_not");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // Not only that nothing failed: the part inside was played to its end.
    assert!(String::from_utf8_lossy(&output.stdout).contains(PLAYED));
    assert!(!dir.join("written").exists());
    fs::remove_dir_all(dir).unwrap();
}

fn tries() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (socket, certificate) = (dir().join("socket"), dir().join("certificates/pem"));
    enter(address.port());
    // Landlock alone, before anything listens: its own socket and ports, nobody else's files.
    let unix = UnixListener::bind(&socket).unwrap();
    unix.set_nonblocking(true).unwrap();
    assert!(is_refused(File::open("/etc/passwd")));
    assert!(is_refused(File::create(dir().join("written"))));
    assert!(is_refused(TcpListener::bind("127.0.0.1:0")));
    assert!(is_refused(TcpStream::connect(address)));
    // A thread that was there already, and one that comes later.
    let (go, gone) = mpsc::channel::<()>();
    let before = std::thread::spawn(move || {
        gone.recv().unwrap();
        is_refused(File::open("/etc/passwd")) && is_refused(UnixStream::connect("/nobody"))
    });
    calls(true);
    go.send(()).unwrap();
    assert!(before.join().unwrap());
    let after = std::thread::spawn(|| is_refused(File::open("/etc/passwd")));
    assert!(after.join().unwrap());
    assert!(is_refused(File::create(dir().join("written"))));
    assert!(is_refused(File::options().append(true).open(&certificate)));
    assert!(is_refused(fs::write(&certificate, "another")));
    assert!(is_refused(fs::rename(&certificate, dir().join("written"))));
    assert!(is_refused(fs::create_dir(dir().join("written"))));
    assert!(is_refused(fs::read_dir(dir())));
    assert!(is_refused(UnixStream::connect(&socket)));
    assert!(is_refused(UnixListener::bind(dir().join("written"))));
    assert!(is_refused(TcpStream::connect(address)));
    assert!(is_refused(TcpListener::bind(address)));
    assert!(is_refused(Command::new("/bin/true").spawn()), "no process is forked");
    assert!(is_refused(fs::remove_file(socket)), "it may be another edge's by then");
    // What is needed later.
    let mut text = String::new();
    File::open(&certificate).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "a certificate");
    assert_eq!(unix.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    let block = std::hint::black_box(vec![1_u8; 32 << 20]);
    drop(block);
    println!("{PLAYED}");
}

/// No other program ever runs in the edge's place.
#[test]
fn execve_kills() {
    if is_inside() {
        return executes();
    }
    let (output, dir) = alone("execve_kills");
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{output:?}");
    fs::remove_dir_all(dir).unwrap();
}

fn executes() {
    enter(1);
    calls(false);
    let error = Command::new("/bin/true").exec();
    panic!("{error}");
}

/// The end of a panic is no other's: SIGABRT, as without a sandbox.
#[test]
fn a_panic_ends_as_ever() {
    if is_inside() {
        aborts();
    }
    let (output, dir) = alone("a_panic_ends_as_ever");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    fs::remove_dir_all(dir).unwrap();
}

fn aborts() -> ! {
    enter(1);
    calls(false);
    std::process::abort()
}

#[test]
fn directories_are_those_of_the_link_and_of_its_file() {
    let dir = std::env::temp_dir().join(format!("halley-links-{}", std::process::id()));
    let (live, archive) = (dir.join("live"), dir.join("archive"));
    let _ = [&live, &archive].map(|dir| fs::create_dir_all(dir).unwrap());
    fs::write(archive.join("one.pem"), "").unwrap();
    std::os::unix::fs::symlink("../archive/one.pem", live.join("pem")).unwrap();
    let found = directories(&live.join("pem"));
    assert_eq!(found, [live, archive.canonicalize().unwrap()]);
    assert_eq!(directories(Path::new("Cargo.toml"))[0], Path::new("."));
    fs::remove_dir_all(dir).unwrap();
}
