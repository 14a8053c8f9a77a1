//! `halley-load auth-flood`: bad tokens, as many as the server refuses.
//!
//! Purpose: what does it cost the server to refuse? A few keep-alive connections show one bad token
//! after the other, all made before; the refusals are counted by their status and by their code.
//!
//! It is not a search for holes. `protocol/tokens.json` and the fuzz target `token` do that.

mod bad;
mod flood;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::error::{Failure, Result};
use crate::progress::Progress;
use crate::report::{self, LatencyMs, grouped};
use crate::target::Target;
use crate::token::Signer;
use bad::{Alg, Kind};
use flood::{Counts, Flood};

/// What to show.
#[derive(Args, Debug)]
pub struct Options {
    /// The server's public address
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// What is asked for
    #[arg(long, default_value = "/v1/stream")]
    path: String,
    /// The secret that good tokens are signed with
    #[arg(long)]
    token_secret_file: PathBuf,
    /// Tokens with another's signature alone, or half of them and half of all kinds of junk
    #[arg(long, value_enum, default_value = "signature")]
    kind: Kind,
    /// What the wrong signatures are of: the server needs a key for it
    #[arg(long, value_enum, default_value = "HS256")]
    alg: Alg,
    /// Keep-alive connections
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Requests that are sent together on one connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pipeline: u32,
    /// For how long
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Also write the figures to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Figures {
    seconds: f64,
    answers: u64,
    answers_per_s: f64,
    statuses: BTreeMap<u16, u64>,
    codes: BTreeMap<String, u64>,
    /// Connections that the server closed or that broke.
    closed: u64,
    latency_ms: LatencyMs,
    first_problem: Option<String>,
    cpu_s: f64,
}

/// Runs the subcommand.
///
/// # Errors
/// For options that can't be used, or if nothing was answered.
pub fn run(options: &Options) -> Result<()> {
    let target = options.url.parse::<Target>()?.plain()?;
    if !options.path.starts_with('/') || options.path.contains([' ', '\r', '\n']) {
        let what = format!("--path {}: expected one as /v1/stream", options.path);
        return Err(Failure::Message(what));
    }
    let seconds = options.seconds.clamp(0.01, 1e6);
    let signer = Signer::read(&options.token_secret_file)?;
    let requests = bad::tokens(&signer, options.kind, options.alg).into_iter().map(|token| {
        let (path, host) = (&options.path, &target.host);
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n")
    });
    let requests = requests.map(String::into_bytes).collect();
    let stop = crate::stop_on_signals()?;
    halley_sys::descriptors_max().map_err(Failure::io("can't read the limit of descriptors"))?;
    let progress = Progress::new("seconds", seconds.ceil() as u64);
    let flood = Flood::new(target, options.connections as usize, options.pipeline, requests);
    let counts = flood
        .and_then(|flood| flood.run(Duration::from_secs_f64(seconds), &progress, &stop))
        .map_err(Failure::io("the flood failed"))?;
    progress.finish();
    let figures = figures(counts);
    print(&figures);
    report::write_json(options.json.as_deref(), &figures)?;
    if figures.answers == 0 {
        let why = figures.first_problem.unwrap_or_else(|| "the server says nothing".to_owned());
        return Err(Failure::Message(format!("nothing was answered: {why}")));
    }
    Ok(())
}

fn figures(counts: Counts) -> Figures {
    let answers = counts.statuses.values().sum::<u64>();
    let seconds = counts.ns as f64 / 1e9;
    Figures {
        seconds,
        answers,
        answers_per_s: if seconds > 0.0 { answers as f64 / seconds } else { 0.0 },
        statuses: counts.statuses,
        codes: counts.codes,
        closed: counts.closed,
        latency_ms: counts.latency.summary(),
        first_problem: counts.first_problem,
        cpu_s: halley_sys::cpu_ns(std::process::id()).unwrap_or(0) as f64 / 1e9,
    }
}

fn print(figures: &Figures) {
    let statuses: Vec<String> =
        figures.statuses.iter().map(|(status, n)| format!("{} by {status}", grouped(*n))).collect();
    let codes: Vec<String> =
        figures.codes.iter().map(|(code, n)| format!("{} {code}", grouped(*n))).collect();
    report::print_table(&[
        ("answers/s", grouped(figures.answers_per_s as u64)),
        ("answers", statuses.join(", ")),
        ("codes", codes.join(", ")),
        ("connections closed", grouped(figures.closed)),
        ("request to answer", figures.latency_ms.line()),
        ("CPU of this program", format!("{:.2} s", figures.cpu_s)),
    ]);
    if let Some(problem) = &figures.first_problem {
        eprintln!("halley-load: the first problem was: {problem}");
    }
}
