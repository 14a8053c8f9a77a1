//! What time it is: since the worker's start, for deadlines; on the wall, for `Date` and tokens.
//!
//! The wall's clock is asked once a second, and may be set; the other one only goes on.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use halley_wire::http1::date::HttpDate;

/// See the module.
pub struct Clock {
    started: Instant,
    /// What time it is in this round, in milliseconds since the start.
    pub now_ms: u64,
    /// For the `Date` header.
    pub date: HttpDate,
    /// When the next second begins, by the worker's time.
    next_ms: u64,
    /// When the last poll began, by the worker's time. Lateness is judged by this: what came until
    /// then has been read, so no client pays for a worker that was held up.
    pub heard_ms: u64,
    /// What the wall's clock said when the worker's said 0, as it goes now.
    unix_zero_ms: u64,
}

impl Clock {
    /// A clock that starts now; it says nothing useful before the first look.
    pub fn new() -> Clock {
        let date = HttpDate::from_unix_s(0);
        Clock { started: Instant::now(), now_ms: 0, date, next_ms: 0, heard_ms: 0, unix_zero_ms: 0 }
    }

    fn elapsed_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// A poll begins that waits for so long at most.
    pub fn poll_for(&mut self, ms: u64) -> Duration {
        self.heard_ms = self.elapsed_ms();
        Duration::from_millis(ms)
    }

    /// Looks what time it is; true if another second has begun on the wall.
    pub fn look(&mut self) -> bool {
        let now_ms = self.elapsed_ms();
        self.now_ms = now_ms;
        let new_second = now_ms >= self.next_ms;
        if new_second {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
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
}
