//! When requests are due: pure arithmetic over a clock that the caller reads.
//!
//! Open loop: request `k` is due at `start + k * interval`, whatever became of those before it. A
//! server that stalls doesn't slow the schedule down; what was due meanwhile is sent late with the
//! time at which it was due, and so counts as latency. (Measuring from the actual sending instead
//! would omit exactly the requests that would have waited: "coordinated omission".)
//!
//! Closed loop: a request is due as soon as there is a connection for it.

/// The schedule of one run.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    start_ns: u64,
    end_ns: u64,
    /// Between two requests; 0 is a closed loop.
    interval_ns: f64,
    taken: u64,
    /// Requests in all, whatever the time.
    requests_max: u64,
}

impl Schedule {
    /// From `start_ns`, for `length_ns`, `requests_per_s` or, without, a closed loop.
    #[must_use]
    pub fn new(start_ns: u64, length_ns: u64, requests_per_s: Option<f64>) -> Self {
        let interval_ns = requests_per_s.map_or(0.0, |rate| 1e9 / rate);
        let end_ns = start_ns + length_ns;
        Self { start_ns, end_ns, interval_ns, taken: 0, requests_max: u64::MAX }
    }

    /// The same, with an end after so many requests.
    #[must_use]
    pub fn with_requests_max(self, requests_max: u64) -> Self {
        Self { requests_max, ..self }
    }

    /// When the next request is due: `None` if that is after the end. A closed loop's is due `now`.
    #[must_use]
    pub fn next_due_ns(&self, now_ns: u64) -> Option<u64> {
        let due_ns = if self.interval_ns == 0.0 {
            now_ns.max(self.start_ns)
        } else {
            self.start_ns + (self.taken as f64 * self.interval_ns) as u64
        };
        (due_ns < self.end_ns && self.taken < self.requests_max).then_some(due_ns)
    }

    /// Takes the next request if it is due, and returns when it was.
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.next_due_ns(now_ns).filter(|&due_ns| due_ns <= now_ns)?;
        self.taken += 1;
        Some(due_ns)
    }

    /// How many requests are due before the end but weren't taken. A closed loop has some left only
    /// if it has to come to a number of requests.
    #[must_use]
    pub fn left(&self) -> u64 {
        if self.interval_ns == 0.0 {
            let bounded = self.requests_max < u64::MAX;
            return if bounded { self.requests_max - self.taken } else { 0 };
        }
        let length_ns = (self.end_ns - self.start_ns) as f64;
        let due = (length_ns / self.interval_ns).ceil() as u64;
        due.min(self.requests_max).saturating_sub(self.taken)
    }

    /// Whether there will be nothing more to take.
    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        let closed = self.interval_ns == 0.0;
        self.taken >= self.requests_max || now_ns >= self.end_ns && (closed || self.left() == 0)
    }

    /// The end.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_loop_keeps_its_times_however_late_they_are_taken() {
        let mut schedule = Schedule::new(1_000, 1_000_000_000, Some(10.0));
        assert_eq!(schedule.take(999), None);
        assert_eq!(schedule.take(1_000), Some(1_000));
        assert_eq!(schedule.take(1_001), None);
        assert_eq!(schedule.next_due_ns(1_001), Some(100_001_000));
        // A stall of a quarter of a second: two were due meanwhile.
        assert_eq!(schedule.take(250_000_000), Some(100_001_000));
        assert_eq!(schedule.take(250_000_000), Some(200_001_000));
        assert_eq!(schedule.take(250_000_000), None);
        assert_eq!(schedule.left(), 7);
        let late = std::iter::from_fn(|| schedule.take(5_000_000_000)).count();
        assert_eq!((late, schedule.left()), (7, 0));
    }

    #[test]
    fn a_closed_loop_is_always_due_until_its_end() {
        let mut schedule = Schedule::new(1_000, 500, None);
        assert_eq!(schedule.take(1_200), Some(1_200));
        assert_eq!(schedule.take(1_200), Some(1_200));
        assert!(!schedule.is_over(1_499) && schedule.is_over(1_500));
        assert_eq!(schedule.take(1_500), None);
        assert_eq!(schedule.left(), 0);
    }

    #[test]
    fn a_number_of_requests_is_an_end_too() {
        for per_s in [None, Some(1e9)] {
            let mut schedule = Schedule::new(1_000, 500, per_s).with_requests_max(2);
            assert_eq!((schedule.take(1_000), schedule.left()), (Some(1_000), 1));
            assert!(!schedule.is_over(1_100));
            assert!(schedule.take(1_100).is_some() && schedule.is_over(1_100));
            assert_eq!((schedule.take(1_200), schedule.left()), (None, 0));
        }
    }
}
