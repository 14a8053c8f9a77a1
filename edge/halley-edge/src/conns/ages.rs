//! How old events are when they are written: from the time that the brain gave them to the end of
//! the round in which they are given to the sockets.
//!
//! A round's deliveries are noted by the time of their events; the clock is read once, after the
//! round's writes. Bytes that a full socket leaves in its outbox count as written: their wait is
//! the client's doing, and the outbox shows it. Live events alone are noted: held, replayed and
//! polled ones are late by their nature.
//!
//! Both times are those of the machine's clock, cut to milliseconds: a difference of n stands for
//! less than n + 1 milliseconds.

use crate::clock;
use crate::stats::{Stat, Stats};

/// Below how many milliseconds, and what is counted then.
const STEPS: [(u64, Stat); 11] = [
    (1, Stat::WrittenIn1),
    (2, Stat::WrittenIn2),
    (3, Stat::WrittenIn3),
    (5, Stat::WrittenIn5),
    (10, Stat::WrittenIn10),
    (20, Stat::WrittenIn20),
    (50, Stat::WrittenIn50),
    (100, Stat::WrittenIn100),
    (200, Stat::WrittenIn200),
    (500, Stat::WrittenIn500),
    (1_000, Stat::WrittenIn1000),
];

/// See the module: the round's events, those of one time together where they follow one another.
#[derive(Default)]
pub struct Ages {
    noted: Vec<(u64, u64)>,
}

impl Ages {
    /// An event of this time goes to so many sessions in this round.
    pub fn note(&mut self, at_ms: u64, sessions: u64) {
        match self.noted.last_mut() {
            Some((last, n)) if *last == at_ms => *n += sessions,
            _ if sessions > 0 => self.noted.push((at_ms, sessions)),
            _ => {}
        }
    }

    /// The round's writes are done.
    pub fn written(&mut self, stats: &mut Stats) {
        if !self.noted.is_empty() {
            self.written_at(clock::wall().as_millis() as u64, stats);
        }
    }

    fn written_at(&mut self, now_ms: u64, stats: &mut Stats) {
        for (at_ms, sessions) in self.noted.drain(..) {
            stats.add(step(now_ms.saturating_sub(at_ms)), sessions);
        }
    }

    /// Gives back what a burst left.
    pub fn trim(&mut self) {
        self.noted.shrink_to(64);
    }
}

fn step(age_ms: u64) -> Stat {
    let found = STEPS.iter().find(|(below, _)| age_ms < *below);
    found.map_or(Stat::WrittenLater, |(_, stat)| *stat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_age_is_counted_where_it_belongs() {
        let mut stats = Stats::new();
        let mut ages = Ages::default();
        for (at, sessions) in [(1_000, 3), (1_000, 2), (999, 1), (990, 4), (0, 7), (1_005, 1)] {
            ages.note(at, sessions);
        }
        ages.note(1_005, 0);
        ages.note(7, 0);
        assert_eq!(ages.noted.len(), 5);
        ages.written_at(1_000, &mut stats);
        let counted = |stat| stats.get(stat);
        // A time ahead of the clock is none ago.
        assert_eq!(counted(Stat::WrittenIn1), 6);
        assert_eq!(counted(Stat::WrittenIn2), 1);
        assert_eq!(counted(Stat::WrittenIn20), 4);
        assert_eq!(counted(Stat::WrittenLater), 7);
        assert!(ages.noted.is_empty());
    }

    #[test]
    fn steps_end_where_their_names_say() {
        assert_eq!(step(0), Stat::WrittenIn1);
        assert_eq!(step(4), Stat::WrittenIn5);
        assert_eq!(step(5), Stat::WrittenIn10);
        assert_eq!(step(999), Stat::WrittenIn1000);
        assert_eq!(step(1_000), Stat::WrittenLater);
    }
}
