//! Figures, for people and for programs.
//!
//! Latencies are recorded in nanoseconds and reported in milliseconds; units are in the names.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::error::{Failure, Result};

/// The smallest latency told apart, in nanoseconds.
const LATENCY_NS_MIN: u64 = 1_000;
/// The largest; what is longer counts as this.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// A histogram of latencies in nanoseconds: 1 µs to 10 minutes at three significant digits.
#[derive(Debug, Clone)]
pub struct Latency(Histogram<u64>);

impl Latency {
    /// An empty one.
    ///
    /// # Errors
    /// If HdrHistogram won't have these bounds.
    pub fn new() -> Result<Self> {
        let histogram = Histogram::new_with_bounds(LATENCY_NS_MIN, LATENCY_NS_MAX, 3);
        let why = |error| Failure::Message(format!("can't make a histogram: {error}"));
        histogram.map(Self).map_err(why)
    }

    /// Counts one latency.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        // Fails only for values out of bounds, and both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// Leaves what `later`, which has counted on from here, has more than this.
    pub fn turn_into_difference(&mut self, later: &Self) {
        let mut difference = later.0.clone();
        // Fails only if something counted here isn't there: then all of `later` is news.
        let _ = difference.subtract(&self.0);
        self.0 = difference;
    }

    /// The percentiles that every report shows.
    #[must_use]
    pub fn summary(&self) -> LatencyMs {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e6;
        LatencyMs {
            count: self.0.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            // That of an empty histogram is the end of its first bucket.
            max: if self.0.is_empty() { 0.0 } else { self.0.max() as f64 / 1e6 },
        }
    }
}

/// Percentiles in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencyMs {
    /// How many were measured.
    pub count: u64,
    /// Half were no longer than this.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// 999 of a thousand.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
}

impl LatencyMs {
    /// One line for a table.
    #[must_use]
    pub fn line(&self) -> String {
        if self.count == 0 {
            return "none measured".to_owned();
        }
        format!(
            "p50 {:.3}  p90 {:.3}  p99 {:.3}  p99.9 {:.3}  max {:.3} ms",
            self.p50, self.p90, self.p99, self.p99_9, self.max
        )
    }
}

/// `1234567` as `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Prints a table of names and values, the values in one column. A reader who has gone (`| head`)
/// is no error.
pub fn print_table(rows: &[(&str, String)]) {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut stdout = std::io::stdout().lock();
    for (name, value) in rows {
        let _ = writeln!(stdout, "{name:width$}  {value}");
    }
}

/// Writes `figures` as JSON to `path`, if there is one.
///
/// # Errors
/// If the file can't be written.
pub fn write_json(path: Option<&Path>, figures: &impl Serialize) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let failure = || Failure::io(format!("can't write {}", path.display()));
    let mut file = File::create(path).map_err(failure())?;
    serde_json::to_writer_pretty(&mut file, figures).map_err(|e| failure()(e.into()))?;
    file.write_all(b"\n").map_err(failure())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn thousands_are_grouped() {
        let grouped: Vec<String> = [0, 999, 1000, 1_234_567].map(super::grouped).into();
        assert_eq!(grouped, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn percentiles_are_in_milliseconds_and_merge() {
        let (mut odd, mut even) = (Latency::new().unwrap(), Latency::new().unwrap());
        for ms in 1..=1000u64 {
            let half = if ms % 2 == 1 { &mut odd } else { &mut even };
            half.record(ms * 1_000_000);
        }
        odd.merge(&even);
        let summary = odd.summary();
        assert_eq!(summary.count, 1000);
        for (got, expected) in [(summary.p50, 500.0), (summary.p99, 990.0), (summary.max, 1000.0)] {
            assert!((got / expected - 1.0).abs() < 0.002, "{got} for {expected}");
        }
    }

    #[test]
    fn nothing_measured_is_zero_everywhere() {
        let zero = LatencyMs { count: 0, p50: 0.0, p90: 0.0, p99: 0.0, p99_9: 0.0, max: 0.0 };
        assert_eq!(Latency::new().unwrap().summary(), zero);
    }

    #[test]
    fn the_longest_latencies_count_as_ten_minutes() {
        let mut latency = Latency::new().unwrap();
        latency.record(u64::MAX);
        assert!((599_000.0..602_000.0).contains(&latency.summary().max));
    }
}
