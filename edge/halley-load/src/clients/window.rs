//! The counts of one thread of clients since the last `mark`, and those of all together.
//!
//! Each thread owns one [`Window`] with a mutex that it takes once per round of its epoll loop, so
//! it is free almost always. A mark takes the mutexes of all threads before it resets any: no
//! thread counts into the new window while another still counts into the old one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::track::{Found, Standing};
use crate::error::Result;
use crate::report::{Latency, LatencyMs};

/// One thread's window.
#[derive(Debug)]
pub struct Window {
    /// What a mark sets to zero.
    pub counts: Counts,
    /// From the time that events are stamped with to their receipt.
    latency: Latency,
    /// From connect to welcome.
    welcome: Latency,
    /// Streams that are welcomed and open: not reset by a mark.
    pub connected: u64,
    /// Connections that failed for good: not reset either.
    pub given_up: u64,
    /// Orders that the thread has obeyed: not reset either.
    pub obeyed: u64,
    /// How the clients stand by cursors and numbers: not reset either.
    pub standing: Standing,
}

/// Counters. Times are `CLOCK_MONOTONIC` nanoseconds; 0 means never.
#[derive(Debug, Default)]
pub struct Counts {
    /// Events received.
    pub events: u64,
    /// Of these, how many carried no time stamp and are missing in the latencies.
    pub events_unstamped: u64,
    /// Bytes received, framing included.
    pub bytes: u64,
    /// Receipt of the first event.
    pub first_event_ns: u64,
    /// Receipt of the last event.
    pub last_event_ns: u64,
    /// The first connect.
    pub first_connect_ns: u64,
    /// The last welcome.
    pub last_welcome_ns: u64,
    /// Streams that ended after their welcome.
    pub lost: u64,
    /// Connections that failed before it.
    pub failed: u64,
    /// Of these, refused with an HTTP status.
    pub refused: BTreeMap<u16, u64>,
    /// Told to come back later by a stream that ended at once.
    pub busy: u64,
    /// What was wrong with cursors and numbers.
    pub found: Found,
    /// Why the first one was lost or failed.
    pub first_problem: Option<String>,
}

impl Window {
    fn new() -> Result<Self> {
        Ok(Self {
            counts: Counts::default(),
            latency: Latency::new()?,
            welcome: Latency::new()?,
            connected: 0,
            given_up: 0,
            obeyed: 0,
            standing: Standing::default(),
        })
    }

    /// Counts one event received at `now_ns`.
    pub fn event(&mut self, stamp_ns: Option<u64>, now_ns: u64) {
        self.counts.events += 1;
        if self.counts.first_event_ns == 0 {
            self.counts.first_event_ns = now_ns;
        }
        self.counts.last_event_ns = now_ns;
        match stamp_ns {
            Some(stamp_ns) => self.latency.record(now_ns.saturating_sub(stamp_ns)),
            None => self.counts.events_unstamped += 1,
        }
    }

    /// Counts the welcome of a stream whose connect began at `opened_ns`.
    pub fn welcomed(&mut self, opened_ns: u64, now_ns: u64) {
        self.connected += 1;
        self.counts.last_welcome_ns = now_ns;
        self.welcome.record(now_ns.saturating_sub(opened_ns));
    }

    /// How long the events of this window took.
    #[must_use]
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    fn reset(&mut self) {
        self.counts = Counts::default();
        self.latency.clear();
        self.welcome.clear();
    }

    fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.latency.merge(&other.latency);
        self.welcome.merge(&other.welcome);
        self.connected += other.connected;
        self.given_up += other.given_up;
        self.standing.merge(&other.standing);
    }
}

impl Counts {
    /// Remembers the first problem's reason.
    pub fn problem(&mut self, reason: impl FnOnce() -> String) {
        if self.first_problem.is_none() {
            self.first_problem = Some(reason());
        }
    }

    fn merge(&mut self, other: &Self) {
        let earliest = |a: u64, b: u64| if a == 0 || b == 0 { a.max(b) } else { a.min(b) };
        self.events += other.events;
        self.events_unstamped += other.events_unstamped;
        self.bytes += other.bytes;
        self.first_event_ns = earliest(self.first_event_ns, other.first_event_ns);
        self.last_event_ns = self.last_event_ns.max(other.last_event_ns);
        self.first_connect_ns = earliest(self.first_connect_ns, other.first_connect_ns);
        self.last_welcome_ns = self.last_welcome_ns.max(other.last_welcome_ns);
        self.lost += other.lost;
        self.failed += other.failed;
        for (status, count) in &other.refused {
            *self.refused.entry(*status).or_default() += count;
        }
        self.busy += other.busy;
        self.found.merge(&other.found);
        if self.first_problem.is_none() {
            self.first_problem.clone_from(&other.first_problem);
        }
    }
}

/// A window as others see it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The mark that began it.
    pub name: String,
    /// When that was.
    pub marked_ns: u64,
    /// When this report was made.
    pub reported_ns: u64,
    /// Events received.
    pub events: u64,
    /// Those without a time stamp.
    pub events_unstamped: u64,
    /// Between the first and the last event; 0 for fewer than two.
    pub events_per_s: f64,
    /// Bytes received, framing included.
    pub bytes: u64,
    /// From the stamped time to the receipt.
    pub latency_ms: LatencyMs,
    /// Receipt of the first event, 0 if none.
    pub first_event_ns: u64,
    /// Receipt of the last event, 0 if none.
    pub last_event_ns: u64,
    /// Streams that are open now.
    pub connected: u64,
    /// Streams that ended after their welcome.
    pub lost: u64,
    /// Connections that failed before it.
    pub failed: u64,
    /// Of these, refused with an HTTP status.
    pub refused: BTreeMap<u16, u64>,
    /// Of these, told to come back later by a stream that ended at once.
    pub busy: u64,
    /// What was wrong with cursors and numbers.
    pub found: Found,
    /// How the clients stand by cursors and numbers.
    pub standing: Standing,
    /// Why the first one was lost or failed.
    pub first_problem: Option<String>,
    /// The last welcome, 0 if none.
    pub last_welcome_ns: u64,
    /// Welcomes between the first connect and the last welcome of this window.
    pub connects_per_s: f64,
    /// From connect to welcome.
    pub welcome_ms: LatencyMs,
    /// CPU time of this process since the mark.
    pub cpu_s: f64,
}

/// The windows of all threads.
#[derive(Debug)]
pub struct Windows {
    threads: Vec<Arc<Mutex<Window>>>,
    /// Where reports add up.
    sum: Window,
    name: String,
    marked_ns: u64,
    marked_cpu_ns: u64,
}

/// Locks a window. A thread that panicked has left it with counts that are still true.
pub fn lock(window: &Mutex<Window>) -> MutexGuard<'_, Window> {
    window.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own_cpu_ns() -> u64 {
    halley_sys::cpu_ns(std::process::id()).unwrap_or(0)
}

impl Windows {
    /// Windows for `threads` threads, the first named `start`.
    ///
    /// # Errors
    /// Those of [`Latency::new`].
    pub fn new(threads: usize) -> Result<Self> {
        let window = |_| Window::new().map(|window| Arc::new(Mutex::new(window)));
        Ok(Self {
            threads: (0..threads).map(window).collect::<Result<_>>()?,
            sum: Window::new()?,
            name: "start".to_owned(),
            marked_ns: halley_sys::monotonic_ns(),
            marked_cpu_ns: own_cpu_ns(),
        })
    }

    /// The window of one thread.
    #[must_use]
    pub fn of(&self, thread: usize) -> Arc<Mutex<Window>> {
        Arc::clone(&self.threads[thread])
    }

    /// How many streams are welcomed and open, and how many connections failed for good.
    #[must_use]
    pub fn settled(&self) -> (u64, u64) {
        self.threads.iter().fold((0, 0), |(connected, given_up), window| {
            let window = lock(window);
            (connected + window.connected, given_up + window.given_up)
        })
    }

    /// How many orders every thread has obeyed.
    #[must_use]
    pub fn obeyed(&self) -> u64 {
        self.threads.iter().map(|window| lock(window).obeyed).min().unwrap_or(0)
    }

    /// When the window began.
    #[must_use]
    pub fn marked_ns(&self) -> u64 {
        self.marked_ns
    }

    /// Shows the windows one after the other, each locked meanwhile.
    pub fn each(&self, mut look: impl FnMut(&Window)) {
        self.threads.iter().for_each(|window| look(&lock(window)));
    }

    /// Begins a new window in all threads at once.
    pub fn mark(&mut self, name: &str) {
        let mut all: Vec<_> = self.threads.iter().map(|window| lock(window)).collect();
        for window in &mut all {
            window.reset();
        }
        name.clone_into(&mut self.name);
        self.marked_ns = halley_sys::monotonic_ns();
        self.marked_cpu_ns = own_cpu_ns();
    }

    /// All that was counted since the mark.
    #[must_use]
    pub fn report(&mut self) -> Report {
        let sum = &mut self.sum;
        sum.reset();
        (sum.connected, sum.given_up, sum.standing) = (0, 0, Standing::default());
        for window in &self.threads {
            sum.merge(&lock(window));
        }
        let counts = std::mem::take(&mut sum.counts);
        let rate = |count: u64, from_ns: u64, to_ns: u64| {
            let seconds = to_ns.saturating_sub(from_ns) as f64 / 1e9;
            if seconds > 0.0 && from_ns > 0 { count as f64 / seconds } else { 0.0 }
        };
        let welcome_ms = sum.welcome.summary();
        Report {
            name: self.name.clone(),
            marked_ns: self.marked_ns,
            reported_ns: halley_sys::monotonic_ns(),
            events: counts.events,
            events_unstamped: counts.events_unstamped,
            events_per_s: rate(counts.events, counts.first_event_ns, counts.last_event_ns),
            bytes: counts.bytes,
            latency_ms: sum.latency.summary(),
            first_event_ns: counts.first_event_ns,
            last_event_ns: counts.last_event_ns,
            connected: sum.connected,
            lost: counts.lost,
            failed: counts.failed,
            refused: counts.refused,
            busy: counts.busy,
            found: counts.found,
            standing: sum.standing,
            last_welcome_ns: counts.last_welcome_ns,
            first_problem: counts.first_problem,
            connects_per_s: rate(welcome_ms.count, counts.first_connect_ns, counts.last_welcome_ns),
            welcome_ms,
            cpu_s: own_cpu_ns().saturating_sub(self.marked_cpu_ns) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_report_sums_threads_and_a_mark_forgets_all_but_the_gauges() {
        let mut windows = Windows::new(2).unwrap();
        {
            let first = windows.of(0);
            let mut first = lock(&first);
            first.counts.first_connect_ns = 1_000_000_000;
            first.welcomed(1_000_000_000, 1_500_000_000);
            first.event(Some(2_000_000_000), 2_010_000_000);
            first.counts.refused.insert(503, 2);
            let second = windows.of(1);
            let mut second = lock(&second);
            second.counts.first_connect_ns = 1_100_000_000;
            second.welcomed(1_100_000_000, 2_000_000_000);
            second.event(None, 3_010_000_000);
            second.counts.refused.insert(503, 1);
            second.counts.problem(|| "first".to_owned());
            second.counts.problem(|| "second".to_owned());
        }
        let report = windows.report();
        assert_eq!((report.events, report.events_unstamped, report.connected), (2, 1, 2));
        assert_eq!(report.latency_ms.count, 1);
        assert!((report.latency_ms.max - 10.0).abs() < 0.1);
        assert!((report.events_per_s - 2.0).abs() < 1e-9);
        assert!((report.connects_per_s - 2.0).abs() < 1e-9);
        assert_eq!(report.refused.get(&503), Some(&3));
        assert_eq!(report.first_problem.as_deref(), Some("first"));

        windows.mark("next");
        let report = windows.report();
        assert_eq!((report.name.as_str(), report.events, report.connected), ("next", 0, 2));
        assert_eq!((report.latency_ms.count, report.first_event_ns), (0, 0));
        assert!(report.refused.is_empty() && report.first_problem.is_none());
    }
}
