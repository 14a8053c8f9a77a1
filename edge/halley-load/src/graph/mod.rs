//! `halley-load graph`: who follows whom, as an edge list.
//!
//! One line per follow, `U S`: user U follows subject S. Two shapes: a Barabási–Albert graph
//! ([`barabasi`]), or groups, in which subject `g<i>` has `size` followers and every user follows
//! one subject.

pub mod barabasi;
pub mod stream;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::error::{Failure, Result};
use crate::progress::Progress;
use crate::report;
use barabasi::Graph;
use stream::{in_order, push_decimal};

/// Users whose lines make one block: some 200 KB of text at 15 follows each.
const BLOCK_USERS: u64 = 1024;

/// What to generate.
#[derive(Args, Debug)]
pub struct Options {
    /// Users, with ids from 1
    #[arg(long, required_unless_present = "groups")]
    users: Option<u32>,
    /// Subjects that each user follows
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    degree: u32,
    /// The same seed gives the same graph
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Instead: groups g0, g1, …; user u follows g((u-1)/size)
    #[arg(long, requires = "size")]
    groups: Option<u32>,
    /// Followers of each group's subject
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    size: Option<u32>,
    /// Where to write: a file, or - for stdout
    #[arg(long, default_value = "-")]
    out: PathBuf,
    /// Threads; by default one per core
    #[arg(long)]
    threads: Option<usize>,
    /// Also write the figures to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Figures {
    users: u64,
    follows: u64,
    seconds: f64,
    follows_per_s: f64,
}

/// Either shape, ready to write any user's lines.
#[derive(Clone, Copy)]
enum Shape {
    Grown(Graph),
    Groups { users: u64, size: u64 },
}

impl Shape {
    fn new(options: &Options) -> Self {
        match (options.groups, options.size) {
            (Some(groups), Some(size)) => {
                let all = u64::from(groups) * u64::from(size);
                let users = options.users.map_or(all, |users| all.min(users.into()));
                Self::Groups { users, size: size.into() }
            }
            _ => Self::Grown(Graph::new(options.users.unwrap_or(0), options.degree, options.seed)),
        }
    }

    fn users(self) -> u64 {
        match self {
            Self::Grown(graph) => graph.users(),
            Self::Groups { users, .. } => users,
        }
    }

    fn follows(self) -> u64 {
        match self {
            Self::Grown(graph) => graph.follows(),
            Self::Groups { users, .. } => users,
        }
    }

    /// Appends the lines of one block of users.
    fn fill(self, block: u64, buffer: &mut Vec<u8>) {
        let users = block * BLOCK_USERS..((block + 1) * BLOCK_USERS).min(self.users());
        let mut subjects = Vec::new();
        for user in users {
            match self {
                Self::Grown(graph) => {
                    graph.following(user, &mut subjects);
                    for &subject in &subjects {
                        push_decimal(buffer, user + 1);
                        buffer.push(b' ');
                        push_decimal(buffer, subject + 1);
                        buffer.push(b'\n');
                    }
                }
                Self::Groups { size, .. } => {
                    push_decimal(buffer, user + 1);
                    buffer.extend_from_slice(b" g");
                    push_decimal(buffer, user / size);
                    buffer.push(b'\n');
                }
            }
        }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// If the output can't be written.
pub fn run(options: &Options) -> Result<()> {
    let shape = Shape::new(options);
    let threads = options.threads.unwrap_or_else(crate::cores).max(1);
    let started = Instant::now();
    let to_stdout = options.out == Path::new("-");
    let mut out: Box<dyn Write> = if to_stdout {
        Box::new(io::stdout())
    } else {
        let file = File::create(&options.out)
            .map_err(Failure::io(format!("can't create {}", options.out.display())))?;
        Box::new(file)
    };
    let progress = Progress::new("users", shape.users());
    let blocks = shape.users().div_ceil(BLOCK_USERS);
    let written = |block| progress.set((block + 1) * BLOCK_USERS);
    in_order(blocks, threads, |block, buffer| shape.fill(block, buffer), &mut out, written)
        .map_err(Failure::io(format!("can't write to {}", options.out.display())))?;
    progress.finish();

    let seconds = started.elapsed().as_secs_f64();
    let figures = Figures {
        users: shape.users(),
        follows: shape.follows(),
        seconds,
        follows_per_s: shape.follows() as f64 / seconds,
    };
    if !to_stdout {
        report::print_table(&[
            ("users", report::grouped(figures.users)),
            ("follows", report::grouped(figures.follows)),
            ("seconds", format!("{:.2}", figures.seconds)),
        ]);
    }
    report::write_json(options.json.as_deref(), &figures)
}
