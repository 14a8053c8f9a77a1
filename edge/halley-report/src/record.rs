//! The two files of a benchmark, as types.
//!
//! A benchmark that was killed may have left half a line at the end of its samples; that one line
//! is left out. Any other line that can't be read is an error: a report that silently shows less
//! than was measured is worse than none.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::error::{Failure, Result};

/// The directory's contents.
#[derive(Debug)]
pub struct Record {
    /// What was found.
    pub found: Found,
    /// What was seen, in the order of time.
    pub samples: Vec<Sample>,
    /// What happened when.
    pub marks: Vec<Mark>,
}

/// `result.json`, as far as the report shows it.
#[derive(Debug, Deserialize)]
pub struct Found {
    /// The heading.
    pub title: String,
    /// Machine, commit, command: a paragraph each.
    pub about: Vec<String>,
    /// The table: what, reached, asked.
    pub rows: Vec<[String; 3]>,
    /// Where the run ended before its time.
    pub stopped: Option<Stopped>,
    /// Curves of others, to be drawn beside the server's memory.
    #[serde(default)]
    pub references: Vec<Reference>,
}

/// Where a run ended before its time, and why.
#[derive(Debug, Deserialize)]
pub struct Stopped {
    /// The part of the run.
    pub phase: String,
    /// Sentences for a person.
    pub why: String,
}

/// Somebody else's memory over time.
#[derive(Debug, Deserialize)]
pub struct Reference {
    /// What it is, for the legend.
    pub label: String,
    /// Seconds and bytes.
    pub points: Vec<(f64, f64)>,
}

/// One look at everything.
#[derive(Debug, Deserialize)]
pub struct Sample {
    /// Seconds since the begin of the run.
    pub t_s: f64,
    /// Open client connections.
    pub connected: Option<f64>,
    /// Events received in the interval, per second.
    pub deliveries_per_s: Option<f64>,
    /// How long they took.
    pub latency_ms: Option<Latency>,
    /// Bytes by part.
    #[serde(default)]
    pub memory_bytes: BTreeMap<String, f64>,
    /// Processors' worth of time by part.
    #[serde(default)]
    pub cpu: BTreeMap<String, f64>,
}

/// Percentiles of one interval, in milliseconds.
#[derive(Debug, Deserialize)]
pub struct Latency {
    /// How many events; percentiles of none say nothing.
    pub count: u64,
    /// Half took no longer.
    pub p50: f64,
    /// 99 of a hundred took no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// Something happened.
#[derive(Debug, Deserialize)]
pub struct Mark {
    /// Seconds since the begin of the run.
    pub t_s: f64,
    /// What.
    pub mark: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Mark(Mark),
    Sample(Sample),
}

impl Record {
    /// Reads both files.
    ///
    /// # Errors
    /// Which file or line can't be used, and why.
    pub fn read(directory: &Path) -> Result<Self> {
        let text = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).map_err(|error| Failure::File(path, error.to_string()))
        };
        let found = serde_json::from_str(&text("result.json")?)
            .map_err(|error| Failure::File(directory.join("result.json"), error.to_string()))?;
        let (samples, marks) = parse_samples(&text("samples.jsonl")?)?;
        Ok(Self { found, samples, marks })
    }
}

fn parse_samples(text: &str) -> Result<(Vec<Sample>, Vec<Mark>)> {
    let (mut samples, mut marks) = (Vec::new(), Vec::new());
    for (index, line) in text.split_inclusive('\n').enumerate() {
        match serde_json::from_str(line) {
            Ok(Line::Sample(sample)) => samples.push(sample),
            Ok(Line::Mark(mark)) => marks.push(mark),
            Err(_) if !line.ends_with('\n') => {}
            Err(error) => return Err(Failure::Line(index + 1, error.to_string())),
        }
    }
    Ok((samples, marks))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn samples_and_marks_are_told_apart() {
        let text = "{\"t_s\":0.5,\"connected\":3,\"memory_bytes\":{\"brain\":7}}\n\
                    {\"t_s\":1,\"mark\":\"kill -9 of the brain\"}\n";
        let (samples, marks) = parse_samples(text).unwrap();
        assert_eq!((samples.len(), marks.len()), (1, 1));
        assert_eq!(samples[0].memory_bytes["brain"], 7.0);
        assert_eq!(marks[0].mark, "kill -9 of the brain");
    }

    #[test]
    fn half_a_line_is_left_out_at_the_end_alone() {
        let (samples, _) = parse_samples("{\"t_s\":0.5}\n{\"t_s\":1,\"conn").unwrap();
        assert_eq!(samples.len(), 1);
        let error = parse_samples("{\"t_s\":0.5}\n{\"t_s\":1,\"conn\n{\"t_s\":2}\n").unwrap_err();
        assert!(matches!(error, Failure::Line(2, _)), "{error}");
    }
}
