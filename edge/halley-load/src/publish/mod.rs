//! `halley-load publish`: events at a rate, or as fast as they are taken.
//!
//! Every event's data begins with `"t"`, the `CLOCK_MONOTONIC` nanosecond at which it was *due*
//! ([`schedule`] says why that and not the time of sending); `halley-load clients` on the same
//! machine measures from there.
//!
//! With `--numbers` the events of each subject are numbered, have ids that this program chose, and
//! are sent again until the server has taken them ([`numbers`]): whatever dies in between, a client
//! knows which events it must have got.
//!
//! With `--speak` the same events go to another server ([`crate::speak`]): everything but a
//! [`protocol`] is the same code. Such a server gets the data alone.
//!
//! It is not a generator for many cores. One thread publishes more than a brain on two cores takes,
//! and costs less of them than two would.

mod connection;
mod counts;
mod events;
mod halley;
pub mod http;
mod nats;
mod numbers;
mod post;
mod protocol;
mod publisher;
mod schedule;
mod subjects;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::error::{Failure, Result};
use crate::progress::Progress;
use crate::report::{self, LatencyMs, grouped};
use crate::speak::Speak;
use crate::target::Target;
use counts::Counts;
use events::{Ack, Events, Form};
use numbers::Numbers;
use publisher::Publisher;
use schedule::Schedule;
use subjects::Subjects;

/// What to publish.
#[derive(Args, Debug)]
pub struct Options {
    /// The server's API address
    #[arg(long, default_value = "http://127.0.0.1:8081")]
    url: String,
    /// What the server speaks
    #[arg(long, value_enum, default_value = "halley")]
    speak: Speak,
    /// Where another server takes a message by POST, as /pub/{channel}
    #[arg(long)]
    path: Option<String>,
    /// Events per second, on schedule whatever the server does
    #[arg(long, required_unless_present_any = ["closed", "publishers"])]
    rate: Option<f64>,
    /// Instead: the next request as soon as a connection is free
    #[arg(long, conflicts_with = "rate")]
    closed: bool,
    /// Instead: so many publishers, each with one event after the other (--closed on as many
    /// connections)
    #[arg(long, conflicts_with_all = ["rate", "closed", "connections", "batch"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    publishers: Option<u32>,
    /// For how long
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// End after so many events, if that is before the time
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    events: Option<u64>,
    /// Keep-alive connections, one request at a time on each; by default 32, for NATS 4
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Option<u32>,
    /// Events per request: more than one are sent to Halley as NDJSON
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    /// Size of each event's data as JSON
    #[arg(long, default_value_t = 79, value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    bytes: u32,
    /// Fill the data with words, as people write them, instead of one letter: for who compresses
    #[arg(long)]
    words: bool,
    /// uniform:LO-HI, zipf:LO-HI:EXPONENT, groups:COUNT, graph:USERS:DEGREE[:SEED] or file:FILE
    #[arg(long)]
    subjects: String,
    /// To so many users alone: for g0 the users 1 to N, for g1 the N behind them, and so on, which
    /// is who follows them in `halley-load graph --groups`; with --subjects groups:COUNT
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    to: Option<u64>,
    /// Take the subjects in turn instead of drawing them
    #[arg(long)]
    in_turn: bool,
    /// What the server shall have done before it answers; by default it decides
    #[arg(long, value_enum)]
    ack: Option<Ack>,
    /// Choose the events' ids
    #[arg(long)]
    ids: bool,
    /// Number the events of each subject, going on from this file if it is there, choose their ids,
    /// send them again until they are taken, and write the last numbers to the file
    #[arg(long)]
    numbers: Option<PathBuf>,
    /// The same seed draws the same subjects
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Schedule the thread as SCHED_BATCH
    #[arg(long)]
    sched_batch: bool,
    /// Also write the figures to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Figures {
    /// Events per second asked for; none in a closed loop.
    rate: Option<f64>,
    seconds: f64,
    requests: BTreeMap<u16, u64>,
    requests_broken: u64,
    requests_unsent: u64,
    requests_resent: u64,
    accepted: u64,
    refused: u64,
    /// Events accepted between the first due time and the last answer.
    events_per_s: f64,
    sessions: u64,
    sessions_per_s: f64,
    latency_ms: LatencyMs,
    first_due_ns: u64,
    last_answer_ns: u64,
    first_problem: Option<String>,
    cpu_s: f64,
}

/// Runs the subcommand.
///
/// # Errors
/// For options that can't be used, or if not one event was accepted.
pub fn run(options: &Options) -> Result<()> {
    let target = options.url.parse::<Target>()?.plain()?;
    let subjects = Subjects::parse(&options.subjects)?;
    let positive = |number: f64| number.is_finite() && number > 0.0 && number <= 1e9;
    if !positive(options.seconds) || options.rate.is_some_and(|rate| !positive(rate)) {
        let what = "--rate and --seconds: expected a number above 0";
        return Err(Failure::Message(what.to_owned()));
    }
    check(options)?;
    let path = options.path.as_deref();
    let protocol = protocol::new(options.speak, &target.host, options.batch as usize, path)?;
    let stop = crate::stop_on_signals()?;
    halley_sys::descriptors_max().map_err(Failure::io("can't read the limit of descriptors"))?;
    if options.sched_batch {
        halley_sys::batch_scheduling().map_err(Failure::io("can't schedule as SCHED_BATCH"))?;
    }
    let usual = if options.speak == Speak::Nats { 4 } else { 32 };
    let connections = options.publishers.or(options.connections).unwrap_or(usual);
    let numbers = |path| Numbers::read(path, &subjects, u64::from(connections * options.batch));
    let numbers = options.numbers.as_deref().map(numbers).transpose()?;
    let events = Events::new(subjects, form(options), numbers);
    // A moment to connect, so that the first requests aren't late for that.
    let start_ns = halley_sys::monotonic_ns() + 20_000_000;
    let requests_per_s = options.rate.map(|rate| rate / f64::from(options.batch));
    let requests_max = options.events.map(|events| events.div_ceil(u64::from(options.batch)));
    let schedule = Schedule::new(start_ns, (options.seconds * 1e9) as u64, requests_per_s)
        .with_requests_max(requests_max.unwrap_or(u64::MAX));
    let progress = Progress::new("seconds", options.seconds.ceil() as u64);
    let (counts, events) = Publisher::new(target, connections as usize, protocol, events, schedule)
        .and_then(|publisher| publisher.run(&progress, &stop))
        .map_err(Failure::io("publishing failed"))?;
    if let (Some(path), Some((numbers, subjects))) = (&options.numbers, events.into_numbers()) {
        numbers.write(path, &subjects)?;
    }
    progress.finish();
    let figures = figures(options, counts);
    print(&figures);
    report::write_json(options.json.as_deref(), &figures)?;
    if figures.accepted == 0 {
        let why = figures.first_problem.unwrap_or_else(|| "see the statuses above".to_owned());
        return Err(Failure::Message(format!("no event was accepted: {why}")));
    }
    Ok(())
}

/// Whether the options go together.
fn check(options: &Options) -> Result<()> {
    let halley = options.speak == Speak::Halley;
    let posts = !halley && options.speak != Speak::Nats;
    let chosen = options.ack.is_some() || options.ids || options.numbers.is_some();
    let wrong = match options {
        _ if chosen && !halley => {
            "--ack, --ids, --numbers: expected them with --speak halley alone"
        }
        _ if options.to.is_some() && !(halley && options.subjects.starts_with("groups:")) => {
            "--to: expected it with --speak halley and --subjects groups:COUNT"
        }
        _ if options.batch > 1 && posts => "--batch: expected it with --speak halley or nats alone",
        _ if options.path.is_some() && !posts => "--path: expected another --speak",
        _ => return Ok(()),
    };
    Err(Failure::Message(wrong.to_owned()))
}

fn form(options: &Options) -> Form {
    // No other run on this machine begins at the same nanosecond.
    let run = format!("{:x}-", halley_sys::monotonic_ns());
    Form {
        batch: options.batch as usize,
        data_bytes: options.bytes as usize,
        words: options.words,
        ack: options.ack,
        ids: (options.ids || options.numbers.is_some()).then_some(run),
        in_turn: options.in_turn,
        seed: options.seed,
        to: options.to,
    }
}

fn figures(options: &Options, counts: Counts) -> Figures {
    let seconds = counts.last_answer_ns.saturating_sub(counts.first_due_ns) as f64 / 1e9;
    let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    Figures {
        rate: options.rate,
        seconds,
        requests: counts.statuses,
        requests_broken: counts.broken,
        requests_unsent: counts.unsent,
        requests_resent: counts.resent,
        accepted: counts.accepted,
        refused: counts.refused,
        events_per_s: per_s(counts.accepted),
        sessions: counts.sessions,
        sessions_per_s: per_s(counts.sessions),
        latency_ms: counts.latency.summary(),
        first_due_ns: counts.first_due_ns,
        last_answer_ns: counts.last_answer_ns,
        first_problem: counts.first_problem,
        cpu_s: halley_sys::cpu_ns(std::process::id()).unwrap_or(0) as f64 / 1e9,
    }
}

fn print(figures: &Figures) {
    let statuses: Vec<String> =
        figures.requests.iter().map(|(status, n)| format!("{} by {status}", grouped(*n))).collect();
    let (broken, unsent) = (figures.requests_broken, figures.requests_unsent);
    let resent = figures.requests_resent;
    report::print_table(&[
        ("events accepted", grouped(figures.accepted)),
        ("events refused", grouped(figures.refused)),
        ("events/s", grouped(figures.events_per_s as u64)),
        ("sessions", grouped(figures.sessions)),
        ("sessions/s", grouped(figures.sessions_per_s as u64)),
        ("requests answered", statuses.join(", ")),
        ("broken, unsent, resent", format!("{broken}, {unsent}, {resent}")),
        ("due to answer", figures.latency_ms.line()),
        ("CPU of the publisher", format!("{:.2} s", figures.cpu_s)),
    ]);
    if let Some(problem) = &figures.first_problem {
        eprintln!("halley-load: the first problem was: {problem}");
    }
}
