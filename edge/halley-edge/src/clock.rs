//! The time: since the worker's start, for deadlines; on the wall, for `Date` and tokens.
//!
//! The wall's clock is read once a second, and may be set, by any time forwards or backwards; the
//! other one only goes on, and stands still while the machine sleeps. So times of the wall (a
//! token's end) are judged anew at each look, and no deadline is trusted with it.
//! docs/internals/clocks.md says which clock decides what. This is the one module of the edge that
//! reads the wall's (the rule `clocks` of tools/tidy).

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use halley_wire::http1::date::HttpDate;

/// Since 1970, by the machine's clock as it is set now; none if that is before.
pub fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// See the module.
pub struct Clock {
    started: Instant,
    /// What time it is in this round, in milliseconds since the start.
    pub now_ms: u64,
    /// For the `Date` header.
    pub date: HttpDate,
    /// When the next second begins, by the worker's time.
    next_ms: u64,
    /// When the last poll began, by the worker's time.
    pub polled_ms: u64,
    /// Lateness is judged by this: what came until then has been read, so no client pays for a
    /// worker that was held up.
    pub heard_ms: u64,
    /// When the first of the full polls in a row began.
    full_since_ms: u64,
    /// How many more of them there are before all that had come until then was given.
    full_left: usize,
    /// What the wall's clock said when the worker's said 0, as it goes now.
    unix_zero_ms: u64,
    /// What was said last of when something came.
    stamped_ms: u64,
}

impl Clock {
    /// A clock that starts now; it says nothing useful before the first look.
    pub fn new() -> Clock {
        let date = HttpDate::from_unix_s(0);
        Clock {
            started: Instant::now(),
            now_ms: 0,
            date,
            next_ms: 0,
            polled_ms: 0,
            heard_ms: 0,
            full_since_ms: 0,
            full_left: 0,
            unix_zero_ms: 0,
            stamped_ms: 0,
        }
    }

    fn elapsed_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// A poll begins that waits for so long at most.
    pub fn poll_for(&mut self, ms: u64) -> Duration {
        self.polled_ms = self.elapsed_ms();
        Duration::from_millis(ms)
    }

    /// What the poll gave is going to be read. One that was `full` may have left out some of what
    /// had come. The kernel gives first what came first, so `polls_max` of them in a row have given
    /// all that had come when the first began: then time goes on, though there are always more.
    pub fn heard(&mut self, full: bool, polls_max: usize) {
        if !full {
            self.full_left = 0;
            self.heard_ms = self.polled_ms;
            return;
        }
        if self.full_left == 0 {
            (self.full_since_ms, self.full_left) = (self.polled_ms, polls_max);
        }
        self.full_left = self.full_left.saturating_sub(1);
        if self.full_left == 0 {
            self.heard_ms = self.full_since_ms;
        }
    }

    /// Looks what time it is; true if another second has begun on the wall.
    pub fn look(&mut self) -> bool {
        let now_ms = self.elapsed_ms();
        self.now_ms = now_ms;
        let new_second = now_ms >= self.next_ms;
        if new_second {
            let unix = wall();
            self.date = HttpDate::from_unix_s(unix.as_secs());
            self.next_ms = now_ms + 1_000 - u64::from(unix.subsec_millis());
            self.unix_zero_ms = (unix.as_millis() as u64).saturating_sub(now_ms);
        }
        new_second
    }

    /// Milliseconds since 1970 in this round.
    pub fn unix_ms(&self) -> u64 {
        self.unix_zero_ms + self.now_ms
    }

    /// The same, but later than whatever it gave before: what came last stays the last when the
    /// clock is set back.
    pub fn stamp_ms(&mut self) -> u64 {
        self.stamped_ms = self.unix_ms().max(self.stamped_ms + 1);
        self.stamped_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the wall's clock does, what comes later has a later stamp.
    #[test]
    fn stamps_go_on_when_the_clock_is_set_back() {
        let mut clock = Clock::new();
        (clock.unix_zero_ms, clock.now_ms) = (1_000_000, 500);
        assert_eq!(
            [clock.unix_ms(), clock.stamp_ms(), clock.stamp_ms()],
            [1_000_500, 1_000_500, 1_000_501]
        );
        clock.unix_zero_ms = 3_600;
        assert_eq!([clock.unix_ms(), clock.stamp_ms()], [4_100, 1_000_502]);
        clock.unix_zero_ms = 2_000_000;
        assert_eq!(clock.stamp_ms(), 2_000_500);
    }

    /// Full polls are in doubt, until there were enough of them, or one that isn't full.
    #[test]
    fn what_is_left_out_is_not_heard() {
        let mut clock = Clock::new();
        let mut heard = |ms: u64, full: bool| {
            clock.polled_ms = ms;
            clock.heard(full, 3);
            clock.heard_ms
        };
        assert_eq!([heard(10, false), heard(20, true), heard(30, true)], [10, 10, 10]);
        assert_eq!(heard(40, false), 40);
        assert_eq!([heard(50, true), heard(60, true), heard(70, true)], [40, 40, 50]);
        assert_eq!([heard(80, true), heard(90, true), heard(100, true)], [50, 50, 80]);
        assert_eq!(heard(110, false), 110);
    }
}
