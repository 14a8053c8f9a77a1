//! `halley-load floor`: what the machine could do if a server had nothing else to do.
//!
//! Purpose: the denominator of the benchmark's ratios. T threads run a bare `send` loop over N
//! loopback sockets, T threads a bare reader (epoll and `read`), nothing is framed, parsed or
//! measured per message.
//!
//! It is honest, since:
//! - The sockets are walked in a random permutation, drawn anew for each round. Events meet
//!   connections in no order; in the order of opening the kernel's memory would be walked in a
//!   line, and the figure would be a sixth better than any server can have.
//! - A sender stays at most a round ahead of its reader. Without that it would fill the sockets,
//!   and the reader would have many messages per `read`, which no client has that keeps up.
//!
//! Senders and readers are in pairs, each thread with its own descriptor table, as many pairs as
//! the descriptors need.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use mio::{Events, Interest, Poll, Token};
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Failure, Result};
use crate::local::{self, SOURCE_CONNECTIONS_MAX};
use crate::progress::Progress;
use crate::report::{self, grouped};
use crate::rng::Rng;

/// Sockets per pair where the limit of descriptors allows as many.
const PAIR_SOCKETS_MAX: u64 = 18_000;
/// Descriptors of a thread that aren't sockets of the walk.
const TABLE_RESERVE: u64 = 200;
/// Sends between two looks at the clock and at the reader.
const SENDS_PER_LOOK: usize = 256;
/// Sends of one burst at a rate: half of sixteen followers, as two workers share them.
const BURST: usize = 8;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Of these, how many are used.
const CONNECTS_AHEAD_MAX: u64 = 256;
/// For connecting the next socket of a pair, and for the first send to be received.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// The reader's buffer.
const READ_BYTES: usize = 64 * 1024;
/// How often the watching thread looks.
const WATCH_EVERY: Duration = Duration::from_millis(50);

/// What to send.
#[derive(Args, Debug)]
pub struct Options {
    /// Sockets
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=16_000_000))]
    connections: u64,
    /// Sending threads, and as many reading ones; by default one per core
    #[arg(long)]
    threads: Option<u64>,
    /// Bytes per send
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    bytes: u32,
    /// For how long
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Sends per second of all threads, in bursts as an event's followers make them; by default
    /// as many as go
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rate: Option<u64>,
    /// Schedule the threads as SCHED_BATCH
    #[arg(long)]
    sched_batch: bool,
    /// Also write the figures to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Figures {
    connections: u64,
    pairs: u64,
    bytes: u32,
    seconds: f64,
    /// Sends that a reader has received.
    sends: u64,
    sends_per_s: f64,
    cpu_s: f64,
    cpu_s_per_million: f64,
    /// The senders' part of it: what a server that does nothing else would cost.
    sender_cpu_s_per_million: f64,
    /// Reads with data, to see how many sends a read found.
    reads: u64,
}

/// What the threads share.
#[derive(Debug)]
struct Shared {
    bytes: usize,
    /// Time between two bursts of one sender; none for as many as go.
    pause: Option<Duration>,
    batch: bool,
    go: AtomicBool,
    stop: AtomicBool,
    pairs: Vec<Pair>,
}

impl Shared {
    /// Processor time of all senders since they began to send.
    fn sender_cpu_ns(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.sender_cpu_ns.load(Ordering::Relaxed)).sum()
    }
}

/// How far the two threads of a pair are.
#[derive(Debug, Default)]
struct Pair {
    /// Sockets that the sender has.
    accepted: AtomicU64,
    /// Bytes that the reader has read.
    bytes: AtomicU64,
    /// Reads that it took.
    reads: AtomicU64,
    /// Nanoseconds of processor time of the sender since it began to send.
    sender_cpu_ns: AtomicU64,
}

/// Runs the subcommand.
///
/// # Errors
/// If sockets or threads can't be made.
pub fn run(options: &Options) -> Result<()> {
    let descriptors = halley_sys::descriptors_max()
        .map_err(Failure::io("can't read the limit of descriptors"))?;
    let per_pair = descriptors.saturating_sub(TABLE_RESERVE).clamp(1, PAIR_SOCKETS_MAX);
    let asked = options.threads.unwrap_or(crate::cores() as u64).max(1);
    let pairs = asked.max(options.connections.div_ceil(per_pair)).min(options.connections);
    let stop = crate::stop_on_signals()?;
    let shared = Arc::new(Shared {
        bytes: options.bytes as usize,
        pause: options
            .rate
            .map(|rate| Duration::from_secs_f64(BURST as f64 * pairs as f64 / rate as f64)),
        batch: options.sched_batch,
        go: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        pairs: (0..pairs).map(|_| Pair::default()).collect(),
    });
    let (ready, is_ready) = mpsc::channel();
    let threads: Vec<_> = (0..pairs)
        .flat_map(|pair| {
            let own = (options.connections - pair).div_ceil(pairs) as usize;
            start_pair(pair as usize, own, &shared, &ready)
        })
        .collect();
    drop(ready);
    let progress = Progress::new("sockets", options.connections);
    let mut sockets = 0;
    // Every sender says how many sockets it has, or drops its end when it fails.
    for own in is_ready {
        sockets += own;
        progress.set(sockets);
    }
    progress.finish();

    let measured =
        if sockets == options.connections { Some(measure(options, &shared, &stop)) } else { None };
    shared.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        let result = thread.map_err(Failure::io("can't start a thread"))?.join();
        let result = result.unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        result.map_err(Failure::io("a thread of the floor failed"))?;
    }
    let Some((seconds, sends, reads, cpu_s)) = measured else {
        return Err(Failure::Message(format!("only {sockets} sockets could be made")));
    };
    let figures = Figures {
        connections: options.connections,
        pairs,
        bytes: options.bytes,
        seconds,
        sends,
        sends_per_s: sends as f64 / seconds,
        cpu_s,
        cpu_s_per_million: cpu_s * 1e6 / sends as f64,
        sender_cpu_s_per_million: shared.sender_cpu_ns() as f64 / 1e3 / sends as f64,
        reads,
    };
    print(&figures);
    report::write_json(options.json.as_deref(), &figures)
}

/// Lets the senders go; returns seconds, sends received, reads, and CPU seconds.
fn measure(options: &Options, shared: &Shared, stop: &AtomicBool) -> (f64, u64, u64, f64) {
    let cpu = || halley_sys::cpu_ns(std::process::id()).unwrap_or(0);
    let sum = || {
        shared.pairs.iter().fold((0, 0), |(bytes, reads), pair| {
            let (more, took) = (pair.bytes.load(Ordering::Relaxed), &pair.reads);
            (bytes + more, reads + took.load(Ordering::Relaxed))
        })
    };
    let length = Duration::from_secs_f64(options.seconds.clamp(0.01, 1e6));
    let progress = Progress::new("seconds", length.as_secs());
    let (cpu_before, started) = (cpu(), Instant::now());
    shared.go.store(true, Ordering::Release);
    // The threads may be late themselves: a figure needs something that was received.
    let none = || sum().0 < shared.bytes as u64 && started.elapsed() < CONNECT_MAX;
    while (started.elapsed() < length || none()) && !stop.load(Ordering::Relaxed) {
        thread::sleep(WATCH_EVERY.min(length));
        progress.set(started.elapsed().as_secs());
    }
    let (bytes, reads) = sum();
    let seconds = started.elapsed().as_secs_f64();
    let cpu_s = (cpu() - cpu_before) as f64 / 1e9;
    progress.finish();
    (seconds, bytes / shared.bytes as u64, reads, cpu_s)
}

type Started = io::Result<thread::JoinHandle<io::Result<()>>>;

/// Starts a sender and a reader. They meet at a listener that the sender opens.
fn start_pair(
    number: usize,
    sockets: usize,
    shared: &Arc<Shared>,
    ready: &mpsc::Sender<u64>,
) -> [Started; 2] {
    let (address_in, address) = mpsc::sync_channel(1);
    let (for_sender, for_reader) = (Arc::clone(shared), Arc::clone(shared));
    let ready = ready.clone();
    let sender = thread::Builder::new().name(format!("send-{number}")).spawn(move || {
        prepare(&for_sender)?;
        let listener = listen(local::loopback(number as u32))?;
        let _ = address_in.send(listener.local_addr()?);
        let pair = &for_sender.pairs[number];
        let sockets = accept(&listener, sockets, &pair.accepted)?;
        let _ = ready.send(sockets.len() as u64);
        drop(ready);
        send(&sockets, Rng::new(number as u64), pair, &for_sender)
    });
    let reader = thread::Builder::new().name(format!("read-{number}")).spawn(move || {
        prepare(&for_reader)?;
        let address = address.recv().map_err(io::Error::other)?;
        let pair = &for_reader.pairs[number];
        read(connect(address, sockets, &pair.accepted)?, pair, &for_reader.stop)
    });
    [sender, reader]
}

fn prepare(shared: &Shared) -> io::Result<()> {
    halley_sys::own_fd_table()?;
    if shared.batch { halley_sys::batch_scheduling() } else { Ok(()) }
}

/// The standard library's backlog of 128 overflows here, and every overflow costs a second.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), Some(Protocol::TCP))?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn accept(listener: &TcpListener, sockets: usize, count: &AtomicU64) -> io::Result<Vec<TcpStream>> {
    listener.set_nonblocking(true)?;
    let mut deadline = Instant::now() + CONNECT_MAX;
    let mut accepted = Vec::with_capacity(sockets);
    while accepted.len() < sockets {
        match listener.accept() {
            Ok((socket, _)) => {
                deadline = Instant::now() + CONNECT_MAX;
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
                accepted.push(socket);
                count.store(accepted.len() as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() > deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                thread::sleep(Duration::from_micros(200));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(accepted)
}

/// Connects all, but stays near what the other side has accepted: a backlog that overflows costs a
/// second.
fn connect(
    address: SocketAddr,
    sockets: usize,
    accepted: &AtomicU64,
) -> io::Result<Vec<TcpStream>> {
    let sources = (sockets as u64).div_ceil(SOURCE_CONNECTIONS_MAX);
    let mut connected = Vec::with_capacity(sockets);
    for index in 0..sockets as u64 {
        let deadline = Instant::now() + CONNECT_MAX;
        let source = local::loopback((index % sources) as u32);
        connected.push(local::connect(address, Some(source))?.into());
        while index > accepted.load(Ordering::Relaxed) + CONNECTS_AHEAD_MAX {
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(Duration::from_micros(200));
        }
    }
    Ok(connected)
}

/// The bare loop of sends.
fn send(sockets: &[TcpStream], mut rng: Rng, pair: &Pair, shared: &Shared) -> io::Result<()> {
    let message = vec![b'x'; shared.bytes];
    let mut order: Vec<u32> = (0..sockets.len() as u32).collect();
    let mut sent = 0;
    while !shared.go.load(Ordering::Acquire) {
        if shared.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    let cpu_before = halley_sys::thread_cpu_ns();
    let at_once = if shared.pause.is_some() { BURST } else { SENDS_PER_LOOK };
    let mut due = Instant::now();
    loop {
        rng.shuffle(&mut order);
        for walk in order.chunks(at_once) {
            for &socket in walk {
                match (&sockets[socket as usize]).write(&message) {
                    Ok(size) => sent += size as u64,
                    // Full: its turn comes again.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // The reader has gone: the run is over.
                    Err(_) if shared.stop.load(Ordering::Relaxed) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            let cpu = halley_sys::thread_cpu_ns() - cpu_before;
            pair.sender_cpu_ns.store(cpu, Ordering::Relaxed);
            if let Some(pause) = shared.pause {
                due += pause;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            let ahead_max = (sockets.len() * shared.bytes) as u64;
            while sent - pair.bytes.load(Ordering::Relaxed) > ahead_max {
                if shared.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                thread::yield_now();
            }
            if shared.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }
}

/// The bare reader.
fn read(sockets: Vec<TcpStream>, pair: &Pair, stop: &AtomicBool) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut sockets: Vec<_> = sockets.into_iter().map(mio::net::TcpStream::from_std).collect();
    for (token, socket) in sockets.iter_mut().enumerate() {
        poll.registry().register(socket, Token(token), Interest::READABLE)?;
    }
    let (mut events, mut buffer) = (Events::with_capacity(1024), vec![0; READ_BYTES]);
    while !stop.load(Ordering::Relaxed) {
        match poll.poll(&mut events, Some(WATCH_EVERY)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            let Token(token) = event.token();
            // The sender has gone: the run is over.
            let size = match sockets[token].read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(size) => size,
                Err(_) => 0,
            };
            pair.bytes.fetch_add(size as u64, Ordering::Relaxed);
            pair.reads.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn print(figures: &Figures) {
    let per_read = figures.sends as f64 / (figures.reads as f64).max(1.0);
    report::print_table(&[
        ("sockets", grouped(figures.connections)),
        ("pairs of threads", grouped(figures.pairs)),
        ("sends received", grouped(figures.sends)),
        ("sends/s", grouped(figures.sends_per_s as u64)),
        ("CPU per million", format!("{:.2} s", figures.cpu_s_per_million)),
        ("of that, senders", format!("{:.2} s", figures.sender_cpu_s_per_million)),
        ("sends per read", format!("{per_read:.2}")),
    ]);
}
