//! `halley-load publish`: events at a rate, or as fast as they are taken.
//!
//! Every event's data begins with `"t"`, the `CLOCK_MONOTONIC` nanosecond at which it was *due*
//! ([`schedule`] says why that and not the time of sending); `halley-load clients` on the same
//! machine measures from there.
//!
//! What it is not: a generator for many cores. One thread publishes more than a brain on two cores
//! takes, and costs less of them than two would.

mod message;
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
use crate::target::Target;
use message::Writer;
use publisher::{Counts, Publisher};
use schedule::Schedule;
use subjects::Subjects;

/// What to publish.
#[derive(Args, Debug)]
pub struct Options {
    /// The server's API address
    #[arg(long, default_value = "http://127.0.0.1:8081")]
    url: String,
    /// Events per second, on schedule whatever the server does
    #[arg(long, required_unless_present = "closed")]
    rate: Option<f64>,
    /// Instead: the next request as soon as a connection is free
    #[arg(long, conflicts_with = "rate")]
    closed: bool,
    /// For how long
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Keep-alive connections, one request at a time on each
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Events per request: more than one are sent as NDJSON
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    /// Size of each event's data as JSON
    #[arg(long, default_value_t = 79, value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    bytes: u32,
    /// uniform:LO-HI, zipf:LO-HI:EXPONENT, groups:COUNT, graph:USERS:DEGREE[:SEED] or file:FILE
    #[arg(long)]
    subjects: String,
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
    let target: Target = options.url.parse()?;
    let subjects = Subjects::parse(&options.subjects)?;
    let positive = |number: f64| number.is_finite() && number > 0.0 && number <= 1e9;
    if !positive(options.seconds) || options.rate.is_some_and(|rate| !positive(rate)) {
        let what = "--rate and --seconds: expected a number above 0";
        return Err(Failure::Message(what.to_owned()));
    }
    let stop = crate::stop_on_signals()?;
    halley_sys::descriptors_max().map_err(Failure::io("can't read the limit of descriptors"))?;
    if options.sched_batch {
        halley_sys::batch_scheduling().map_err(Failure::io("can't schedule as SCHED_BATCH"))?;
    }
    let (batch, bytes) = (options.batch as usize, options.bytes as usize);
    let writer = Writer::new(&target.host, subjects, batch, bytes, options.seed);
    // A moment to connect, so that the first requests aren't late for that.
    let start_ns = halley_sys::monotonic_ns() + 20_000_000;
    let requests_per_s = options.rate.map(|rate| rate / f64::from(options.batch));
    let schedule = Schedule::new(start_ns, (options.seconds * 1e9) as u64, requests_per_s);
    let progress = Progress::new("seconds", options.seconds.ceil() as u64);
    let counts =
        Publisher::new(target, options.connections as usize, writer, batch as u64, schedule)
            .and_then(|publisher| publisher.run(&progress, &stop))
            .map_err(Failure::io("publishing failed"))?;
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

fn figures(options: &Options, counts: Counts) -> Figures {
    let seconds = counts.last_answer_ns.saturating_sub(counts.first_due_ns) as f64 / 1e9;
    let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    Figures {
        rate: options.rate,
        seconds,
        requests: counts.statuses,
        requests_broken: counts.broken,
        requests_unsent: counts.unsent,
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
    report::print_table(&[
        ("events accepted", grouped(figures.accepted)),
        ("events refused", grouped(figures.refused)),
        ("events/s", grouped(figures.events_per_s as u64)),
        ("sessions", grouped(figures.sessions)),
        ("sessions/s", grouped(figures.sessions_per_s as u64)),
        ("requests answered", statuses.join(", ")),
        ("broken, unsent", format!("{broken}, {unsent}")),
        ("due to answer", figures.latency_ms.line()),
        ("CPU of the publisher", format!("{:.2} s", figures.cpu_s)),
    ]);
    if let Some(problem) = &figures.first_problem {
        eprintln!("halley-load: the first problem was: {problem}");
    }
}
