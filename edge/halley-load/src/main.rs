//! Load tools for Halley: a graph, clients, publishers, and the physical limit to compare with.
//!
//! One binary, because they are used together: `graph` makes the follows, `clients` connects their
//! users, `publish` publishes about their subjects, `floor` says what the machine could do at best.
//! All share one clock (`CLOCK_MONOTONIC`), so `clients` measures from the moment at which `publish`
//! meant to send.
//!
//! What it is not: a general HTTP load generator. It speaks what Halley speaks, and spends as little
//! of the machine as it can, which it usually shares with the server under test.

#![forbid(unsafe_code)]

mod error;
mod graph;
mod progress;
mod report;
mod rng;

use std::process::ExitCode;

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
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Graph(options) => graph::run(&options),
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
