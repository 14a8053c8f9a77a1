//! Draws the report of a long benchmark: one HTML file with a table and plots.
//!
//! It reads the files that `bench/million/` wrote into a directory: `result.json` (the results) and
//! `samples.jsonl` (two samples a second), and writes `report.html` there. In `bench/results/` both
//! are compressed; its index says how to draw a report from them. The report needs no other file:
//! plots are SVG in it, in colours that follow the reader's light or dark scheme.
//!
//! It is not a judge. It draws the figures of the files and computes none of its own.

#![forbid(unsafe_code)]

mod chart;
mod error;
mod page;
mod paint;
mod plots;
mod record;
mod scale;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::error::{Failure, Result};
use crate::record::Record;

/// Draws the report of a directory that a long benchmark wrote.
#[derive(Parser)]
#[command(name = "halley-report", version)]
struct Arguments {
    /// The directory with result.json and samples.jsonl; report.html is written into it
    directory: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("halley-report: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<PathBuf> {
    let record = Record::read(&arguments.directory)?;
    let page = page::render(&record, &plots::draw_all(&record)?);
    let path = arguments.directory.join("report.html");
    fs::write(&path, page).map_err(|error| Failure::File(path.clone(), error.to_string()))?;
    Ok(path)
}
