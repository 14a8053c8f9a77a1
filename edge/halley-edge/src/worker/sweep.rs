//! The sweep that keeps silent streams open. It knows ticks and slots by their number; what is done
//! with a slot is `time.rs`'s.
//!
//! The sweep walks over the table once in a third of a heartbeat, a few slots a tick, so no timer
//! belongs to a stream and a million of them are not woken at once. A stream is silent for two
//! thirds at most, and the bytes that are written then are acknowledged in another third
//! (`listen.rs`) or the client is gone. A WebSocket gets a ping in every second walk and is looked
//! at in the next.
//!
//! A million streams' heartbeats are tens of thousands of writes a second, and they can wait. While
//! any worker of the edge writes a group's event the walk pauses, until it is a tenth of a
//! heartbeat behind the clock. Then it goes on at its pace: a faster one would leave a WebSocket's
//! client less time for its answer. A session that is about to get such an event needs no
//! heartbeat.
//!
//! If the edge was held up (a machine that slept, a debugger), a client's answer may lie in the
//! socket, unread. So the walk goes on where it was, and the poll is read again before anything
//! counts as late.

use std::ops::Range;

/// Of a walk the part that one round may make up for.
const CATCHES_UP: u64 = 4;

/// The tick up to which the walk goes now, when it went up to `swept` and so many ticks have passed
/// since it was last asked; it may `rest` for so many behind the present one.
fn upto(tick: u64, passed: u64, swept: u64, rest: Option<u64>) -> u64 {
    match rest {
        Some(ticks) => tick.saturating_sub(ticks),
        None => tick.min(swept + passed),
    }
}

/// Of the ticks since the last round, those that the walk leaves out: the worker was held up.
fn held_up(passed: u64, ticks_of_a_sweep: u64) -> u64 {
    passed.saturating_sub((ticks_of_a_sweep / CATCHES_UP).max(1))
}

/// How many of so many slots are the share of this tick, where a walk takes so many `ticks`.
/// Rounded each by itself, the shares would make a walk over a small table last as many ticks as it
/// has slots, however long the heartbeat.
pub fn share(slots: u64, ticks: u64, tick: u64) -> u64 {
    tick * slots / ticks - tick.saturating_sub(1) * slots / ticks
}

/// The walk over the table: where it is, and what it asks. It knows ticks and slots by their
/// number, no connection.
pub struct Sweep {
    /// The next slot.
    next: u32,
    /// Ticks that were walked.
    swept: u64,
    /// The tick at which the walk was last thought of.
    ticked: u64,
    /// Does this walk send pings?
    asks: bool,
    /// The link's cursor at the beginning of the last walk that sent pings.
    asked_cursor: Vec<u8>,
    /// Did it move until this walk?
    cursor_moved: bool,
}

impl Sweep {
    /// One that has walked nowhere.
    pub fn new() -> Sweep {
        Sweep {
            next: 0,
            swept: 0,
            ticked: 0,
            asks: true,
            asked_cursor: Vec::new(),
            cursor_moved: false,
        }
    }

    /// The ticks whose shares are due at this one, where a walk over the table takes so many, and
    /// may `rest` for so many behind the present one.
    pub fn due(&mut self, tick: u64, ticks_of_a_sweep: u64, rest: Option<u64>) -> Range<u64> {
        let passed = tick.saturating_sub(std::mem::replace(&mut self.ticked, tick));
        let held_up = held_up(passed, ticks_of_a_sweep);
        self.swept += held_up;
        let upto = upto(tick, passed - held_up, self.swept, rest);
        let first = self.swept + 1;
        self.swept = upto.max(self.swept);
        first..self.swept + 1
    }

    /// The next slot of so many; `None` at the end of a walk: then [`Sweep::begin`].
    pub fn slot(&mut self, slots: u32) -> Option<u32> {
        let slot = Some(self.next).filter(|slot| *slot < slots)?;
        self.next += 1;
        Some(slot)
    }

    /// Does this walk send pings?
    pub fn asks(&self) -> bool {
        self.asks
    }

    /// Has the link's cursor moved from the last walk that sent pings to this one?
    pub fn cursor_moved(&self) -> bool {
        self.cursor_moved
    }

    /// A walk begins, of which every second asks; the link is at this cursor.
    pub fn begin(&mut self, cursor: &[u8]) {
        self.next = 0;
        self.asks = !self.asks;
        if self.asks {
            // http.md 9.6, for all WebSockets at once: to remember it for each would cost memory.
            self.cursor_moved = self.asked_cursor != cursor;
            self.asked_cursor.clear();
            self.asked_cursor.extend_from_slice(cursor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each slot once in a walk, and every second walk asks.
    #[test]
    fn a_walk_is_over_all_slots() {
        let mut sweep = Sweep::new();
        assert_eq!(sweep.slot(0), None);
        for walk in 0..4 {
            assert_eq!(sweep.asks, walk % 2 == 0);
            assert_eq!(
                (0..9).map_while(|_| sweep.slot(7)).collect::<Vec<_>>(),
                [0, 1, 2, 3, 4, 5, 6]
            );
            sweep.begin(b"c");
        }
        assert_eq!(sweep.slot(7), Some(0));
        assert_eq!(sweep.slot(7), Some(1), "a table that grows is walked on");
    }

    /// http.md 9.6: a cursor is told that has moved since the last pings.
    #[test]
    fn a_cursor_is_compared_with_that_of_the_last_pings() {
        let mut sweep = Sweep::new();
        let mut moved = Vec::new();
        for cursor in ["", "a", "b", "b", "c", "b"] {
            sweep.begin(cursor.as_bytes());
            moved.push((sweep.asks, sweep.cursor_moved));
        }
        let asked: Vec<bool> = moved.iter().filter(|walk| walk.0).map(|walk| walk.1).collect();
        assert_eq!(asked, [true, true, false]);
    }

    /// What is due is due once, however often it is asked.
    #[test]
    fn each_tick_is_due_once() {
        let mut sweep = Sweep::new();
        let due: Vec<_> = [1, 1, 3, 3, 10, 200].map(|tick| sweep.due(tick, 40, None)).into();
        assert_eq!(due, [1..2, 2..2, 2..4, 4..4, 4..11, 191..201]);
        assert_eq!(sweep.due(220, 40, Some(50)), 211..211);
        assert_eq!(sweep.due(230, 40, None), 211..221);
    }

    #[test]
    fn a_walk_rests_and_goes_on_at_its_pace() {
        const REST: u64 = 46;
        let (mut swept, mut most) = (0, 0);
        for tick in 1..=300 {
            let resting = (100..200).contains(&tick);
            let before = swept;
            swept = swept.max(upto(tick, 1, swept, resting.then_some(REST)));
            assert!(swept <= tick && swept - before <= 1, "no burst at {tick}");
            assert_eq!(upto(tick, 0, swept, None), swept, "nor in the rounds of one tick");
            most = most.max(tick - swept);
            let behind = match tick {
                0..100 => 0,
                100..200 => (tick - 99).min(REST),
                _ => REST,
            };
            assert_eq!(tick - swept, behind, "at {tick}");
        }
        assert_eq!(most, REST);
    }

    /// link.md 5, `stream_heartbeat_ms`: pings come as rarely as it says, also where a walk has
    /// more ticks than the table has slots (1,024 of them and an hour).
    #[test]
    fn a_walk_takes_its_third_of_a_heartbeat() {
        for (slots, ticks) in [(1_024, 18_750), (1_024, 234), (1_024, 1), (3_072, 5), (500_000, 7)]
        {
            for first in [1, 2, 1_000_003] {
                let shares = (first..first + ticks).map(|tick| share(slots, ticks, tick));
                let shares: Vec<u64> = shares.collect();
                assert_eq!(shares.iter().sum::<u64>(), slots, "{slots} slots in {ticks} ticks");
                let (least, most) = (shares.iter().min(), shares.iter().max());
                assert!(least.zip(most).is_some_and(|(least, most)| most - least <= 1));
            }
        }
    }

    #[test]
    fn a_stop_is_no_time_of_the_walk() {
        const SWEEP: u64 = 40;
        let (mut swept, mut tick, mut walked) = (0, 0, 0);
        for passed in [1, 10, 11, 9_000, 1, 3, 1] {
            tick += passed;
            let held_up = held_up(passed, SWEEP);
            swept += held_up;
            let upto = upto(tick, passed - held_up, swept, None);
            walked += upto - swept;
            swept = upto;
            assert_eq!(swept, tick, "what was left out isn't made up for later");
        }
        assert_eq!(walked, 1 + 10 + 10 + 10 + 1 + 3 + 1);
        assert_eq!(held_up(2, 3), 1, "a short walk goes on with each round");
    }
}
