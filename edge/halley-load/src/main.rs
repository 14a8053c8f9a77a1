//! Load tools for Halley: a graph, clients, publishers, and the physical limit to compare with.
//!
//! One binary, because they are used together: `graph` makes the follows, `clients` connects their
//! users, `publish` publishes about their subjects, `auth-flood` shows bad tokens, `slowloris`
//! holds slow connections, `floor` measures the machine's limit.
//! All share one clock (`CLOCK_MONOTONIC`), so `clients` measures from the moment at which
//! `publish` meant to send.
//!
//! It is not a general load generator. It speaks what Halley speaks and, to compare, what some
//! rivals do ([`speak`]), and spends as little of the machine as it can, which it usually shares
//! with the server under test.

#![forbid(unsafe_code)]

mod auth_flood;
mod clients;
mod error;
mod floor;
mod graph;
mod local;
mod nats;
mod path;
mod progress;
mod publish;
mod report;
mod rng;
mod slowloris;
mod speak;
mod target;
mod token;
mod wire;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Parser, Subcommand};

/// Load tools for Halley.
#[derive(Parser)]
#[command(name = "halley-load", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate an edge list: a scale-free graph, or groups
    Graph(graph::Options),
    /// Open many streams and measure what they receive
    Clients(clients::Options),
    /// Publish events at a rate and measure the answers
    Publish(publish::Options),
    /// Show bad tokens and count the refusals
    AuthFlood(auth_flood::Options),
    /// Hold connections that send a byte now and then
    Slowloris(slowloris::Options),
    /// Measure the machine's limit: a bare loop of sends and a bare reader
    Floor(floor::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Graph(options) => graph::run(&options),
        Command::Clients(options) => clients::run(&options),
        Command::Publish(options) => publish::run(&options),
        Command::AuthFlood(options) => auth_flood::run(&options),
        Command::Slowloris(options) => slowloris::run(&options),
        Command::Floor(options) => floor::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("halley-load: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// How many threads run at once on this machine.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A flag that SIGINT and SIGTERM set, so that what was measured is still reported.
fn stop_on_signals() -> error::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(error::Failure::io("can't watch for signals"))?;
    }
    Ok(stop)
}
