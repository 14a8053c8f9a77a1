//! Rates of requests, for all workers together, in a table that doesn't grow.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A): for each address or user we store the
//! time until which its quota is spent. A request that would bring it further ahead of the clock
//! than a burst is refused. Each address or user has two cells, by its hash, and the lesser counts:
//! so two that share one cell take nothing from each other, only two that share both do. Workers
//! that look at the same moment may each let one request pass where there is room for one.
//!
//! Invariants: refused requests consume no quota. A cell is never further ahead than a burst and
//! one request, so one that says more is old. The bound is that of [`Sketch`].

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::limits::sketch::{Key, Sketch};

/// The clock's unit. 32 bits of it are 19 hours.
const TICKS_PER_S: u64 = 62_500;

/// A rate, and how much of it may come at once.
#[derive(Clone, Copy)]
pub struct Rate {
    pub per_s: u32,
    pub burst_ms: u64,
}

impl Rate {
    /// What one request uses up.
    fn interval(self) -> u32 {
        (TICKS_PER_S / u64::from(self.per_s.max(1))).max(1) as u32
    }

    /// At least one request is a burst.
    fn burst(self) -> u32 {
        let ticks = self.burst_ms.saturating_mul(TICKS_PER_S) / 1_000;
        (ticks.min(u64::from(u32::MAX / 4)) as u32).max(self.interval())
    }
}

/// See the module.
pub struct Rates {
    cells: Sketch,
    started: Instant,
}

impl Rates {
    /// Nobody has asked yet.
    pub fn new() -> Rates {
        Rates { cells: Sketch::default(), started: Instant::now() }
    }

    /// Counts a request, or says in how many seconds the next one is welcome.
    ///
    /// # Errors
    /// Whole seconds, 1 at least.
    pub fn take(&self, key: Key, rate: Rate) -> Result<(), u32> {
        let us = self.started.elapsed().as_micros() as u64;
        self.take_at(key, rate, (us / (1_000_000 / TICKS_PER_S)) as u32)
    }

    fn take_at(&self, key: Key, rate: Rate, now: u32) -> Result<(), u32> {
        let (interval, burst) = (rate.interval(), rate.burst());
        let most = burst + interval;
        let both = self.cells.of(key);
        let used = both.map(|cell| ahead(cell.load(Ordering::Relaxed), now, most));
        let used = used[0].min(used[1]) + interval;
        if used > burst {
            return Err(u64::from(used - burst).div_ceil(TICKS_PER_S) as u32);
        }
        for cell in both {
            let raised = |was| {
                let next = (ahead(was, now, most) + interval).min(most);
                Some(now.wrapping_add(next).max(1))
            };
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised);
        }
        Ok(())
    }
}

/// How far a cell is ahead of the clock; 0 is one that nobody has used.
fn ahead(cell: u32, now: u32, most: u32) -> u32 {
    let ahead = cell.wrapping_sub(now);
    if cell == 0 || ahead > most { 0 } else { ahead }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::address::Hasher;

    const MS: u32 = (TICKS_PER_S / 1_000) as u32;

    fn key(of: &str) -> Key {
        Hasher::new().name(of.as_bytes())
    }

    /// How many pass when so many ask in each millisecond from `from` on.
    fn passed(rates: &Rates, key: Key, rate: Rate, from: u32, ms: u32, each: u32) -> u32 {
        let ask = |n: u32| rates.take_at(key, rate, from.wrapping_add(n * MS)).is_ok();
        (0..ms).map(|n| (0..each).filter(|_| ask(n)).count() as u32).sum()
    }

    /// http.md 16.3: "At most so many requests a second pass, and at once as many as
    /// `requests_burst_ms` allow".
    #[test]
    fn the_rate_and_the_burst_are_kept() {
        for (per_s, burst_ms) in [(1, 1_000), (10, 1_000), (100, 10_000), (1_000, 100), (5, 1)] {
            let (rates, key) = (Rates::new(), key("ann"));
            let rate = Rate { per_s, burst_ms };
            let burst = (u64::from(per_s) * burst_ms / 1_000).max(1) as u32;
            let at_once = passed(&rates, key, rate, 7, 1, 3 * burst);
            assert!(at_once.abs_diff(burst) <= 1, "{at_once} at once of {per_s}/s, {burst_ms} ms");
            let then = passed(&rates, key, rate, 7, 10_000, per_s.div_ceil(500));
            let most = 10 * per_s;
            assert!(then.abs_diff(most) <= most / 50 + 1, "{then} in 10 s of {per_s}/s");
        }
    }

    /// The clock of 32 bits goes round; nobody is refused for what was 19 hours ago.
    #[test]
    fn the_clock_goes_round() {
        let (rates, key) = (Rates::new(), key("ann"));
        let rate = Rate { per_s: 10, burst_ms: 1_000 };
        for from in [u32::MAX - 500 * MS, 0, u32::MAX / 2 - 200 * MS] {
            let all = passed(&rates, key, rate, from, 1_000, 1);
            assert!((18..=21).contains(&all), "{all} from {from}");
        }
    }

    /// 16.3: "`Retry-After` has the time until one more passes".
    #[test]
    fn the_time_to_wait_is_the_time() {
        let (rates, key) = (Rates::new(), key("ann"));
        let rate = Rate { per_s: 1, burst_ms: 5_000 };
        assert!((0..5).all(|_| rates.take_at(key, rate, 0).is_ok()));
        assert_eq!(rates.take_at(key, rate, 0), Err(1));
        assert!(rates.take_at(key, rate, TICKS_PER_S as u32).is_ok());
        // Another rate, as a new brain may bring: what was used counts by its length of time.
        let slower = Rate { per_s: 1, burst_ms: 1_000 };
        assert!(rates.take_at(key, slower, 2 * TICKS_PER_S as u32).is_ok());
    }

    /// Neighbours don't pay for each other.
    #[test]
    fn a_neighbour_of_one_cell_takes_nothing() {
        let rates = Rates::new();
        let rate = Rate { per_s: 10, burst_ms: 1_000 };
        let [one, same_row_0] = [Key(5 << Key::BITS | 3), Key(9 << Key::BITS | 3)];
        assert_eq!(one.places()[0], same_row_0.places()[0]);
        assert_eq!(passed(&rates, one, rate, 0, 1, 100), 10);
        assert_eq!(passed(&rates, same_row_0, rate, 0, 1, 100), 10);
        assert_eq!(passed(&rates, one, rate, 0, 1, 100), 0);
    }

    /// Workers ask at the same time; together they get the rate, not each of them.
    #[test]
    fn workers_share_a_rate() {
        let (rates, key) = (Rates::new(), key("ann"));
        let rate = Rate { per_s: 1, burst_ms: 400_000 };
        let taken = || (0..1_000).filter(|_| rates.take_at(key, rate, 0).is_ok()).count();
        let all: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(taken)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
        });
        // Those that look at the same moment may all pass.
        assert!((400..=403).contains(&all), "{all}");
    }
}
