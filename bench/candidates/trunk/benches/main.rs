//! A trunk per edge against a link per worker: the edge's side, and its clients
//! (docs/internals/trunk.md). `run.escript` starts both and says what it measures. No part of the
//! product: there is no HTTP, no login, no sync, and whatever is unexpected ends the program.
//!
//! ```text
//! trunk edge links|thread|worker WORKERS STREAMS PUBLISHERS DIRECTORY
//! trunk clients STREAMS PUBLISHERS PORT...
//! ```
//!
//! `STREAMS` are those of each worker, `PUBLISHERS` all. The edge prints its ports.
#![forbid(unsafe_code)]

mod clients;
mod frames;
mod reader;
mod ring;
mod worker;

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use mio::{Poll, Waker};

use crate::reader::Reader;
use crate::ring::Shared;
use crate::worker::{Feed, WAKE, Worker};

/// What a client reads for each event.
pub const PIECE_BYTES: usize = 240;
/// A publisher's request: a letter, when it was due (nanoseconds, 19 digits), a newline. The answer
/// is as long.
pub const LINE_BYTES: usize = 21;

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["edge", mode, workers, streams, publishers, dir] => {
            edge(mode, number(workers), number(streams), number(publishers), Path::new(dir));
        }
        ["clients", streams, publishers, ref ports @ ..] => {
            let ports = ports.iter().map(|port| number(port) as u16).collect();
            clients::run(number(streams), number(publishers), ports);
        }
        _ => panic!("see the header of main.rs"),
    }
}

/// Descriptors by which threads are woken are made before the first thread has a table of its own.
fn edge(mode: &str, workers: usize, streams: usize, publishers: usize, dir: &Path) {
    let mut polls: Vec<Poll> = (0..=workers).map(|_| Poll::new().unwrap()).collect();
    let wakers = polls.iter().map(|poll| Waker::new(poll.registry(), WAKE).unwrap()).collect();
    let owner = if mode == "thread" { workers } else { 0 };
    let shared = Arc::new(Shared::new(wakers, owner));
    let listeners: Vec<TcpListener> =
        (0..workers).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<String> =
        listeners.iter().map(|l| l.local_addr().unwrap().port().to_string()).collect();
    let last = polls.pop().unwrap();
    let mut threads = Vec::new();
    for (index, (listener, poll)) in listeners.into_iter().zip(polls).enumerate() {
        let feed = match mode {
            "links" => Feed::link(&dir.join(format!("{index}.sock"))),
            "worker" if index == 0 => {
                Feed::Reader(Reader::new(&dir.join("trunk.sock"), Arc::clone(&shared), workers))
            }
            _ => Feed::Ring,
        };
        let shared = Arc::clone(&shared);
        let mine = publishers / workers + usize::from(index < publishers % workers);
        threads.push(thread::spawn(move || {
            halley_sys::own_fd_table().unwrap();
            Worker::new(index, poll, feed, shared).run(&listener, streams, mine);
        }));
    }
    if mode == "thread" {
        let reader = Reader::new(&dir.join("trunk.sock"), Arc::clone(&shared), workers);
        threads.push(thread::spawn(move || {
            halley_sys::own_fd_table().unwrap();
            reader.run(last);
        }));
    }
    println!("ports {}", ports.join(" "));
    std::io::stdout().flush().unwrap();
    // Whoever started this has gone when there is no more to read.
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|n| n > 0) {
        println!("wakes {}", shared.wakes());
        std::io::stdout().flush().unwrap();
    }
    std::process::exit(0);
}
