//! `halley-load clients`: many streaming connections, and what they receive.
//!
//! Purpose: opens N streams, counts events and measures how long each took from the time its
//! publisher meant to send it (the stamp that `halley-load publish` puts into the data) to its
//! receipt. It shares the machine with the server, so it does as little as a bare reader can.
//!
//! Shape: this thread watches, reports and obeys ([`control`]); epoll threads ([`worker`]) do the
//! rest, each with its own descriptor table, so there are as many of them as the connections need.
//!
//! With `--cursors` each client remembers its cursor and comes back with it; with `--follows` it
//! checks the numbers that `halley-load publish --numbers` gives to the events of each subject.
//!
//! With `--speak` the same clients are those of another server ([`crate::speak`]): all but what a
//! [`protocol`] says is the same code.
//!
//! It is not a client to build on. It doesn't remove duplicates: an event that the server sends
//! twice is counted twice.

mod chunked;
mod connection;
mod control;
pub mod event;
pub mod follows;
pub mod framing;
mod halley;
mod interval;
mod nats;
mod nchan;
mod order;
mod plan;
mod protocol;
mod reason;
mod socketio;
mod stream;
#[cfg(test)]
mod stream_tests;
mod track;
pub mod users;
mod window;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::error::{Failure, Result};
use crate::local::SOURCE_CONNECTIONS_MAX;
use crate::progress::Progress;
use crate::report::{self, grouped};
use crate::speak::Speak;
use crate::target::Target;
use crate::token::{Signer, Tokens};
use crate::wire::Tls;
use follows::Follows;
use halley::Transport;
use order::Orders;
use plan::Plan;
use protocol::Protocol;
use track::Found;
use users::Users;
use window::{Report, Windows};
use worker::Worker;

/// Connections per thread where the limit of descriptors allows as many.
const TABLE_CONNECTIONS_MAX: u64 = 18_000;
/// Descriptors of a thread that aren't connections: what it inherits, epoll, room to breathe.
const TABLE_RESERVE: u64 = 200;
/// For how long a client's token is good.
const TOKEN_LIFE: Duration = Duration::from_secs(86_400);
/// How often the watching thread looks.
const WATCH_EVERY: Duration = Duration::from_millis(50);

/// What to connect.
#[derive(Args, Debug)]
pub struct Options {
    /// The server's public address
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// What the server speaks
    #[arg(long, value_enum, default_value = "halley")]
    speak: Speak,
    /// How Halley shall frame events; by default sse
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// Where another server's streams are, as /sub/{channel} or /test/{user}
    #[arg(long)]
    path: Option<String>,
    /// Subscribe each session to so many subjects: its group's, g0, g1, …, and others like it
    #[arg(long, default_value_t = 0)]
    subscribe: u32,
    /// Another server's users are in the channels g0, g1, … of so many each
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    group_size: u64,
    /// How many connections to open
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=16_000_000))]
    connections: u64,
    /// Which users: first-last or first:count; by default 1 to the number of connections
    #[arg(long, conflicts_with = "users_file")]
    users: Option<String>,
    /// Which users: a file with one id per line
    #[arg(long)]
    users_file: Option<PathBuf>,
    /// Show tokens that are signed by the secret in this file (HS256), good for a day
    #[arg(long)]
    token_secret_file: Option<PathBuf>,
    /// Connections per second at most; 0 is as many as the server takes
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// Connections between connect and welcome, over all threads
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
    opening: u64,
    /// Threads at least; more are started where the limit of descriptors needs them. By default
    /// one per core
    #[arg(long)]
    threads: Option<u64>,
    /// Stay for so many seconds after the last welcome; by default until SIGINT or SIGTERM
    #[arg(long)]
    hold: Option<f64>,
    /// Local addresses 127.0.0.x to connect from; by default as many as the ports need
    #[arg(long)]
    sources: Option<u32>,
    /// Open lost connections again, after as long as the server said
    #[arg(long)]
    reconnect: bool,
    /// Remember each client's cursor and come back with it
    #[arg(long)]
    cursors: bool,
    /// Check the numbers of what the users follow: lines of USER SUBJECT in this file
    #[arg(long, requires = "cursors")]
    follows: Option<PathBuf>,
    /// For https and wss: the file of the CA that has signed the server's certificate
    #[arg(long)]
    ca: Option<PathBuf>,
    /// Speak TLS 1.2, not 1.3
    #[arg(long, requires = "ca")]
    tls12: bool,
    /// Resume TLS sessions by tickets; otherwise each handshake is a full one
    #[arg(long, requires = "ca")]
    resume: bool,
    /// Schedule the threads as SCHED_BATCH
    #[arg(long)]
    sched_batch: bool,
    /// Wait so many milliseconds before the next look at the sockets: many threads that wake for
    /// each message are a load of their own. Latencies are up to that longer
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    pause_ms: u64,
    /// Obey lines on stdin (mark NAME, report, interval, ready, drop, return cursors|strangers
    /// [PER_S], expect FILE, flow [SINCE_NS], quit), answer each by a JSON line on stdout
    #[arg(long, conflicts_with = "hold")]
    control: bool,
    /// Also write the figures to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// For options that can't be used, or if a thread can't be set up. Connections that fail are
/// figures, not errors.
pub fn run(options: &Options) -> Result<()> {
    let plan = Arc::new(plan(options)?);
    let stop = crate::stop_on_signals()?;
    let mut windows = Windows::new(plan.threads)?;
    let mut orders = Orders::new(plan.follows.clone());
    let threads = start(&plan, options.connections, &windows, &mut orders)?;
    if options.control {
        control::obey(&mut windows, &mut orders, options.connections, &stop)?;
    } else {
        watch(&mut windows, options, &stop);
    }
    let report = windows.report();
    plan.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        match thread.join() {
            Ok(result) => result.map_err(Failure::io("a thread of clients failed"))?,
            Err(_) => return Err(Failure::Message("a thread of clients panicked".to_owned())),
        }
    }
    if !options.control {
        print(&report);
    }
    report::write_json(options.json.as_deref(), &report)
}

fn plan(options: &Options) -> Result<Plan> {
    let descriptors = halley_sys::descriptors_max()
        .map_err(Failure::io("can't read the limit of descriptors"))?;
    let per_thread = descriptors.saturating_sub(TABLE_RESERVE).clamp(1, TABLE_CONNECTIONS_MAX);
    let target: Target = options.url.parse()?;
    let users = match (&options.users, &options.users_file) {
        (Some(text), _) => Users::parse(text)?,
        (None, Some(path)) => Users::read(path)?,
        (None, None) => Users::Range { first: 1, count: options.connections },
    };
    let read = |path| Follows::read(path, &users, options.connections);
    let follows = options.follows.as_deref().map(read).transpose()?.map(Arc::new);
    let signer = options.token_secret_file.as_deref().map(Signer::read).transpose()?;
    let tokens = signer.map(|signer| Tokens::new(&signer, &users, options.connections, TOKEN_LIFE));
    let needed = options.connections.div_ceil(SOURCE_CONNECTIONS_MAX);
    let loopback = target.address.is_ipv4() && target.address.ip().is_loopback();
    let sources = match options.sources {
        Some(sources) if sources > 1 && !loopback => {
            let what = format!("--sources needs a server on IPv4 loopback, not {}", target.host);
            return Err(Failure::Message(what));
        }
        Some(sources) => sources.max(1),
        None if loopback => needed as u32,
        None => 1,
    };
    let asked = options.threads.unwrap_or(crate::cores() as u64).max(1);
    let threads =
        asked.max(options.connections.div_ceil(per_thread)).min(options.connections) as usize;
    let tls = match (target.tls, &options.ca) {
        (true, Some(ca)) => Some(Tls::new(&target.host, ca, options.tls12, options.resume)?),
        (false, None) => None,
        _ => return Err(Failure::Message("--ca: expected it with https or wss".to_owned())),
    };
    Ok(Plan {
        target,
        tls,
        protocol: spoken(options)?,
        users,
        tokens,
        group_size: options.group_size,
        sources,
        threads,
        opens_per_s: options.rate.max(0.0) / threads as f64,
        opening_max: (options.opening as usize).div_ceil(threads),
        reconnect: options.reconnect,
        cursors: options.cursors,
        follows,
        batch: options.sched_batch,
        pause: Duration::from_millis(options.pause_ms),
        stop: AtomicBool::new(false),
    })
}

/// What the server speaks, if the options go together.
fn spoken(options: &Options) -> Result<Box<dyn Protocol>> {
    let transport = options.transport.unwrap_or(Transport::Sse);
    let wrong = match options.speak {
        Speak::Halley if options.cursors && transport == Transport::Test => {
            "--cursors: /test/<user> has none; expected another --transport"
        }
        Speak::Halley if options.token_secret_file.is_some() && transport == Transport::Test => {
            "--token-secret-file: /test/<user> takes none; expected another --transport"
        }
        Speak::Halley if options.subscribe > 0 && transport == Transport::Test => {
            "--subscribe: /test/<user> subscribes to nothing; expected another --transport"
        }
        Speak::Halley if options.path.is_some() => {
            "--path: Halley's are given by --transport; expected another --speak"
        }
        Speak::Halley => "",
        _ if options.transport.is_some() => "--transport: expected it with --speak halley alone",
        _ if options.token_secret_file.is_some() => {
            "--token-secret-file: expected it with --speak halley alone"
        }
        _ if options.cursors => "--cursors: expected it with --speak halley alone",
        _ if options.subscribe > 0 => "--subscribe: expected it with --speak halley alone",
        _ => "",
    };
    if !wrong.is_empty() {
        return Err(Failure::Message(wrong.to_owned()));
    }
    let subscribe = options.subscribe;
    protocol::new(options.speak, transport, options.cursors, subscribe, options.path.as_deref())
}

type Handle = thread::JoinHandle<std::io::Result<()>>;

fn start(
    plan: &Arc<Plan>,
    connections: u64,
    windows: &Windows,
    orders: &mut Orders,
) -> Result<Vec<Handle>> {
    let all = plan.threads as u64;
    let spawn = |thread: usize| {
        let (plan, window, mailbox) = (Arc::clone(plan), windows.of(thread), orders.mailbox());
        let own = (connections - thread as u64).div_ceil(all) as usize;
        thread::Builder::new()
            .name(format!("clients-{thread}"))
            .spawn(move || Worker::new(plan, thread, own, window, mailbox)?.run())
            .map_err(Failure::io("can't start a thread"))
    };
    (0..plan.threads).map(spawn).collect()
}

/// Shows how the connections come in, then waits for the end of the hold or for a signal.
fn watch(windows: &mut Windows, options: &Options, stop: &AtomicBool) {
    let progress = Progress::new("connections", options.connections);
    let settled = || {
        let (connected, given_up) = windows.settled();
        progress.set(connected);
        connected + given_up >= options.connections
    };
    while !settled() && !stop.load(Ordering::Relaxed) {
        thread::sleep(WATCH_EVERY);
    }
    progress.finish();
    if let Some(problem) = windows.report().first_problem {
        eprintln!("halley-load: the first problem was: {problem}");
    }
    let hold = options.hold.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1e8)));
    let progress = hold.map(|hold| Progress::new("seconds held", hold.as_secs()));
    let started = Instant::now();
    while !stop.load(Ordering::Relaxed) && hold.is_none_or(|hold| started.elapsed() < hold) {
        if let Some(progress) = &progress {
            progress.set(started.elapsed().as_secs());
        }
        thread::sleep(WATCH_EVERY);
    }
    if let Some(progress) = &progress {
        progress.finish();
    }
}

fn print(report: &Report) {
    let refused: Vec<String> =
        report.refused.iter().map(|(status, count)| format!("{count} by {status}")).collect();
    let Found { duplicates, order_breaks, gaps, .. } = report.found;
    let per_s = |rate: f64| grouped(rate as u64);
    report::print_table(&[
        ("connected", grouped(report.connected)),
        ("connects/s", per_s(report.connects_per_s)),
        ("connect to welcome", report.welcome_ms.line()),
        ("failed, lost", format!("{}, {} {}", report.failed, report.lost, refused.join(" "))),
        ("busy, gaps told", format!("{}, {}", report.busy, report.found.gaps_told)),
        ("numbers twice, late, left out", format!("{duplicates}, {order_breaks}, {gaps}")),
        ("events", grouped(report.events)),
        ("events/s", per_s(report.events_per_s)),
        ("bytes", grouped(report.bytes)),
        ("latency", report.latency_ms.line()),
        ("CPU of the clients", format!("{:.2} s", report.cpu_s)),
    ]);
}
