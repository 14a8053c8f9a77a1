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
use crate::random::Random;
use crate::sessions::base::detail::{Conns, Detail};
use crate::sessions::base::io::Io;
use crate::stats::Stat;

/// What may pass at once after a quiet time: as much as comes together between two looks of an idle
/// worker.
const BURST_MS: u64 = TICK_MS;
/// A token, in the unit in which they are counted.
const TOKEN: u64 = 1_000;
/// The shortest time after which a client is told to come back.
const RETRY_MS_MIN: u64 = 1_000;

/// When a stream or a poll gets its session.
pub enum Turn {
    /// Now.
    Now,
    /// Behind others, or behind the sync with a brain.
    Later,
    /// Its client is to come back, within so many milliseconds more or less.
    Never(u64),
}

/// What becomes of one that has waited for long.
pub enum Late {
    /// It waits for so many milliseconds more.
    Waits(u64),
    /// The brain doesn't open it.
    Unopened,
    /// Too many were before it.
    Busy,
    /// The brain is away.
    Brainless,
}

/// The worker's gate: a token bucket, and the streams that wait for a token.
pub struct Admission {
    tokens: u64,
    filled_ms: u64,
    /// Connection ids; one whose stream has left is skipped.
    waiting: VecDeque<u64>,
    /// Spreads clients that come back over time.
    random: Random,
    /// The edge stops: all are sent away.
    stopping: bool,
}

impl Admission {
    /// With nobody before it.
    pub fn new() -> Admission {
        let (random, waiting) = (Random::new(), VecDeque::new());
        Admission { tokens: 0, filled_ms: 0, waiting, random, stopping: false }
    }

    /// From now on all are sent away.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// When a stream or a poll in phase Waiting has its turn; one that has it later stands in the
    /// queue then.
    pub fn turn(&mut self, io: &mut Io, index: u32) -> Turn {
        if self.stopping {
            return Turn::Never(io.conns.settings.stream_retry_ms.into());
        }
        let per_s = io.conns.settings.admission_per_s_max;
        // Streams that wait already come first; the gauge counts this one, too.
        let waiting = io.conns.stats.get(Stat::Waiting) - 1;
        if waiting == 0 && self.has_turn(io) {
            return Turn::Now;
        }
        let wait_ms = io.conns.settings.admission_wait_ms_max;
        let most = u64::from(per_s).saturating_mul(wait_ms) / 1_000;
        if waiting >= most {
            // 13.2: they come back when those that wait now have been admitted.
            return Turn::Never(waiting.saturating_mul(1_000) / u64::from(per_s));
        }
        if self.waiting.len() as u64 >= 2 * most {
            self.forget_who_left(&mut io.conns);
        }
        let conn = io.conns.table.conn(index);
        self.waiting.push_back(conn);
        io.conns.stats.add(Stat::BrainWaits, u64::from(!io.link.is_synced()));
        Turn::Later
    }

    /// The next one whose turn has come; it doesn't wait any more.
    pub fn next(&mut self, io: &mut Io) -> Option<u32> {
        while let Some(conn) = self.waiting.front() {
            let found = io.conns.find(*conn);
            let found = found.filter(|(_, slot)| slot.phase() == Phase::Waiting);
            let next = found.map(|(index, _)| index);
            if next.is_some() && !self.has_turn(io) {
                return None;
            }
            self.waiting.pop_front();
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// In how many milliseconds one is to come back that is sent away, at random within
    /// `spread_ms`: so those that are sent away at once don't come back at once.
    pub fn retry_ms(&mut self, spread_ms: u64) -> u64 {
        RETRY_MS_MIN + self.random.up_to(spread_ms)
    }

    /// A time up to this, at random, by which the ends of streams are spread.
    pub fn spread_ms(&mut self, up_to_ms: u64) -> u64 {
        self.random.up_to(up_to_ms)
    }

    /// `Retry-After` of what is refused while all come at once: at random, as of streams.
    pub fn retry_after_s(&mut self, io: &Io) -> u32 {
        let retry_ms = self.retry_ms(io.conns.settings.admission_wait_ms_max);
        u32::try_from(retry_ms.div_ceil(1_000)).unwrap_or(u32::MAX)
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.waiting.shrink_to(2 * self.waiting.len());
    }

    /// Forgets those that wait no longer.
    fn forget_who_left(&mut self, conns: &mut Conns) {
        self.waiting.retain(|conn| {
            conns.find(*conn).is_some_and(|(_, slot)| slot.phase() == Phase::Waiting)
        });
    }

    /// May one more stream become a session now? Only to a brain that knows those that were there
    /// before (13.7), has few others to open (13.8), and is written to; then by the pace.
    fn has_turn(&mut self, io: &Io) -> bool {
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

/// The deadline of a stream that waits, or of one that the brain opens, has come.
pub fn late(io: &mut Io, index: u32) -> Late {
    let is_synced = io.link.is_synced();
    let waits = io.conns.is_in(index, Phase::Waiting);
    let since_ms = match io.conns.table.detail(index) {
        Some(Detail::Opening(opening)) => opening.since_ms,
        _ => 0,
    };
    let waited_ms = io.conns.clock.now_ms.saturating_sub(since_ms);
    if !is_synced {
        return Late::Brainless;
    }
    if !waits {
        return Late::Unopened;
    }
    // 13.7: the brain is back, or there are many before this one, whose turn comes.
    let settings = &io.conns.settings;
    let most_ms = settings.brain_away_ms_max + settings.admission_wait_ms_max;
    if waited_ms < most_ms { Late::Waits(most_ms - waited_ms) } else { Late::Busy }
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
                let mut admission = Admission::new();
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
        let mut admission = Admission::new();
        assert_eq!(taken(&mut admission, 3_600_000, 1_000), 65);
        assert_eq!(taken(&mut admission, 3_600_001, 1_000), 1);
        assert_eq!(taken(&mut Admission::new(), 3_600_000, 2), 1);
    }
}
