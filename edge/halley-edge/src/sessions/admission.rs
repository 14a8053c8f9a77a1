//! Admission (`protocol/http.md` 13.1, 13.2, 13.7, 13.8): how many streams and polls a second
//! become sessions.
//!
//! After a fault everyone comes back at once. A stream that is admitted costs the brain a look-up
//! and perhaps a replay. So the worker admits streams at a pace, in their order. A client that
//! would wait too long gets a time to come again. Open sessions aren't concerned, nor is the sync
//! with a new brain.
//!
//! Bound: `admission_per_s_max * admission_wait_ms_max` streams wait, each in phase Waiting; the
//! queue holds their ids, and at most as many of streams that have left.

use std::collections::VecDeque;

use crate::conns::table::Phase;
use crate::conns::table::wheel::TICK_MS;
use crate::sessions::base::detail::Conns;
use crate::sessions::base::io::Io;
use crate::stats::Stat;

/// What may pass at once after a quiet time: as much as comes together between two looks of an idle
/// worker.
const BURST_MS: u64 = TICK_MS;
/// A token, in the unit in which they are counted.
const TOKEN: u64 = 1_000;

/// The worker's gate: a token bucket, and the streams that wait for a token.
#[derive(Default)]
pub struct Admission {
    tokens: u64,
    filled_ms: u64,
    /// Connection ids; one whose stream has left is skipped.
    waiting: VecDeque<u64>,
}

impl Admission {
    /// The stream waits, behind all others.
    pub fn wait(&mut self, conn: u64) {
        self.waiting.push_back(conn);
    }

    /// The one whose turn it is next.
    pub fn first(&self) -> Option<u64> {
        self.waiting.front().copied()
    }

    /// The first waits no longer.
    pub fn first_is_done(&mut self) {
        self.waiting.pop_front();
    }

    /// How many stand in the queue, with those that have left.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.waiting.shrink_to(2 * self.waiting.len());
    }

    /// Forgets those that wait no longer.
    pub fn forget_who_left(&mut self, conns: &mut Conns) {
        self.waiting.retain(|conn| {
            conns.find(*conn).is_some_and(|(_, slot)| slot.phase() == Phase::Waiting)
        });
    }

    /// May one more stream become a session now? Only to a brain that knows those that were there
    /// before (13.7), has few others to open (13.8), and is written to; then by the pace.
    pub fn has_turn(&mut self, io: &Io) -> bool {
        let (settings, stats) = (&io.conns.settings, &io.conns.stats);
        let in_flight = stats.get(Stat::Opening) + stats.get(Stat::Left);
        io.link.is_synced()
            && in_flight < settings.opens_in_flight_max
            && io.link_has_room()
            && self.take(io.conns.clock.now_ms, settings.admission_per_s_max)
    }

    /// Takes a token, if there is one by now.
    fn take(&mut self, now_ms: u64, per_s: u32) -> bool {
        let per_s = u64::from(per_s);
        // A rate of n a second is n thousandths of a token in a millisecond.
        let added = now_ms.saturating_sub(self.filled_ms).saturating_mul(per_s);
        self.filled_ms = now_ms;
        self.tokens = self.tokens.saturating_add(added).min(TOKEN + per_s * BURST_MS);
        let some = self.tokens >= TOKEN;
        if some {
            self.tokens -= TOKEN;
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(admission: &mut Admission, now_ms: u64, per_s: u32) -> u64 {
        (0..1_000_000).take_while(|_| admission.take(now_ms, per_s)).count() as u64
    }

    /// http.md 13.1: "A worker admits at most `admission_per_s_max` streams and polls in a second."
    #[test]
    fn the_rate_is_kept_however_often_it_is_asked() {
        for per_s in [1, 3, 100, 10_000] {
            for step_ms in [1, 7, 64, 500, 5_000] {
                let mut admission = Admission::default();
                let spans =
                    (1..=60_000 / step_ms).map(|n| taken(&mut admission, n * step_ms, per_s));
                let all: u64 = spans.sum();
                let most = 60 * u64::from(per_s) + u64::from(per_s) * BURST_MS / TOKEN + 1;
                assert!(all <= most, "{all} at {per_s}/s every {step_ms} ms");
                if step_ms <= BURST_MS {
                    assert!(all * 100 >= 60 * u64::from(per_s) * 98, "{all} at {per_s}/s");
                }
            }
        }
    }

    /// After any rest no more than a burst passes at once.
    #[test]
    fn a_rest_is_not_saved_up() {
        let mut admission = Admission::default();
        assert_eq!(taken(&mut admission, 3_600_000, 1_000), 65);
        assert_eq!(taken(&mut admission, 3_600_001, 1_000), 1);
        assert_eq!(taken(&mut Admission::default(), 3_600_000, 2), 1);
    }
}
