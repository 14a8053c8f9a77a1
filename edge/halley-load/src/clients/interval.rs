//! Events since the last look: for figures over time while a window goes on.
//!
//! A look takes nothing from the window. Counts are differences of sums, and so are the buckets of
//! the latencies, so an interval has percentiles of its own. A mark in between begins the interval.

use serde::Serialize;

use super::window::{Window, Windows};
use crate::error::Result;
use crate::report::{Latency, LatencyMs};

/// An interval as others see it.
#[derive(Debug, Serialize)]
pub struct Interval {
    /// Its begin: the last look, or the mark if that was later.
    pub from_ns: u64,
    /// This look.
    pub to_ns: u64,
    /// Events received in it.
    pub events: u64,
    /// Bytes received, framing included.
    pub bytes: u64,
    /// From the stamped time to the receipt.
    pub latency_ms: LatencyMs,
    /// Streams that are open now.
    pub connected: u64,
    /// Streams that ended after their welcome.
    pub lost: u64,
    /// Connections that failed before it.
    pub failed: u64,
    /// Why the first one of the window was lost or failed.
    pub first_problem: Option<String>,
}

/// Sums over all threads.
#[derive(Debug)]
struct Sums {
    at_ns: u64,
    events: u64,
    bytes: u64,
    lost: u64,
    failed: u64,
    latency: Latency,
}

impl Sums {
    fn new() -> Result<Self> {
        let latency = Latency::new()?;
        Ok(Self { at_ns: 0, events: 0, bytes: 0, lost: 0, failed: 0, latency })
    }

    fn clear(&mut self) {
        (self.events, self.bytes, self.lost, self.failed) = (0, 0, 0, 0);
        self.latency.clear();
    }

    fn add(&mut self, window: &Window) {
        self.events += window.counts.events;
        self.bytes += window.counts.bytes;
        self.lost += window.counts.lost;
        self.failed += window.counts.failed;
        self.latency.merge(window.latency());
    }
}

/// Remembers the last look.
#[derive(Debug)]
pub struct Intervals {
    last: Sums,
    now: Sums,
}

impl Intervals {
    /// The first interval begins with the window.
    ///
    /// # Errors
    /// Those of [`Latency::new`].
    pub fn new() -> Result<Self> {
        Ok(Self { last: Sums::new()?, now: Sums::new()? })
    }

    /// What came since the last look.
    #[must_use]
    pub fn look(&mut self, windows: &Windows) -> Interval {
        let Self { last, now } = self;
        if windows.marked_ns() > last.at_ns {
            last.clear();
            last.at_ns = windows.marked_ns();
        }
        now.clear();
        let (mut connected, mut first_problem) = (0, None);
        windows.each(|window| {
            now.add(window);
            connected += window.connected;
            if first_problem.is_none() {
                first_problem.clone_from(&window.counts.first_problem);
            }
        });
        now.at_ns = halley_sys::monotonic_ns();
        last.latency.turn_into_difference(&now.latency);
        let interval = Interval {
            from_ns: last.at_ns,
            to_ns: now.at_ns,
            events: now.events - last.events,
            bytes: now.bytes - last.bytes,
            latency_ms: last.latency.summary(),
            connected,
            lost: now.lost - last.lost,
            failed: now.failed - last.failed,
            first_problem,
        };
        std::mem::swap(last, now);
        interval
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::clients::window::lock;

    fn count(windows: &Windows, thread: usize, latencies_ms: &[u64]) {
        let window = windows.of(thread);
        let mut window = lock(&window);
        for ms in latencies_ms {
            window.event(Some(1_000_000_000), 1_000_000_000 + ms * 1_000_000);
        }
    }

    #[test]
    fn an_interval_has_what_came_since_the_last_one_and_the_window_goes_on() {
        let mut windows = Windows::new(2).unwrap();
        let mut intervals = Intervals::new().unwrap();
        count(&windows, 0, &[10, 10]);
        count(&windows, 1, &[10]);
        let first = intervals.look(&windows);
        assert_eq!((first.events, first.latency_ms.count), (3, 3));
        assert!((first.latency_ms.max - 10.0).abs() < 0.1);

        count(&windows, 1, &[500, 500]);
        let second = intervals.look(&windows);
        assert_eq!((second.events, second.from_ns), (2, first.to_ns));
        assert!((second.latency_ms.p50 - 500.0).abs() < 1.0);
        assert_eq!(windows.report().events, 5);

        let nothing = intervals.look(&windows);
        assert_eq!((nothing.events, nothing.latency_ms.count), (0, 0));
    }

    #[test]
    fn a_mark_begins_an_interval() {
        let mut windows = Windows::new(1).unwrap();
        let mut intervals = Intervals::new().unwrap();
        count(&windows, 0, &[1, 2, 3]);
        let _ = intervals.look(&windows);
        windows.mark("next");
        count(&windows, 0, &[700]);
        let interval = intervals.look(&windows);
        assert_eq!((interval.events, interval.latency_ms.count), (1, 1));
        assert_eq!(interval.from_ns, windows.marked_ns());
    }
}
