//! TLS handshakes that can go on, in the order of their turns (`protocol/http.md` 15.6).
//!
//! Answering ClientHello is the expensive step; it is wasted if the handshake then times out. So
//! handshakes that have answered it have *begun*, and come first: they have [`BEGUN_TURNS`] turns
//! for each one that begins, which is more than a handshake needs. Others go to the end of the
//! queue after each turn, whatever their clients have sent, and wait since their first turn was
//! due.
//!
//! A handshake that has waited for half of its time doesn't begin any more. Otherwise, with more
//! handshakes than there is time for, the first in the queue would always be nearly late. So a
//! handshake that begins can end, however many wait.
//!
//! Bound: ids of connections that are gone stay until their turn; both queues together hold at most
//! twice as many as there are connections, and [`SPARE`].

use std::collections::VecDeque;

use crate::conns::table::Table;

/// Turns of those that have begun before one begins.
const BEGUN_TURNS: u32 = 7;
/// Ids that may lie there of connections that are gone before they are looked for.
const SPARE: usize = 1_024;

/// Whose turn it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Turn {
    /// The connection's id; it may be gone.
    pub conn: u64,
    /// Since when it waits, if it is one that begins.
    pub since_ms: u64,
    /// It has waited for too long to begin.
    pub late: bool,
}

/// See the module. The caller puts in no connection that is there already.
#[derive(Default)]
pub struct Handshakes {
    begun: VecDeque<u64>,
    /// With the time since which they wait.
    new: VecDeque<(u64, u64)>,
    /// Turns of those that have begun since the last one that began.
    begun_turns: u32,
}

impl Handshakes {
    /// One whose client's hello is answered can go on.
    pub fn go_on(&mut self, table: &mut Table<impl Default>, conn: u64) {
        self.bound(table);
        self.begun.push_back(conn);
    }

    /// One can begin that waits for it since then; it may have had turns.
    pub fn begin(&mut self, table: &mut Table<impl Default>, conn: u64, since_ms: u64) {
        self.bound(table);
        self.new.push_back((conn, since_ms));
    }

    /// The next one, when a handshake has so much time.
    pub fn next(&mut self, now_ms: u64, handshake_ms_max: u64) -> Option<Turn> {
        if self.begun_turns < BEGUN_TURNS || self.new.is_empty() {
            if let Some(conn) = self.begun.pop_front() {
                self.begun_turns = BEGUN_TURNS.min(self.begun_turns + 1);
                return Some(Turn { conn, since_ms: 0, late: false });
            }
        }
        self.begun_turns = 0;
        let (conn, since_ms) = self.new.pop_front()?;
        let late = now_ms.saturating_sub(since_ms) > handshake_ms_max / 2;
        Some(Turn { conn, since_ms, late })
    }

    /// Does nobody wait?
    pub fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.new.is_empty()
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self, table: &mut Table<impl Default>) {
        self.forget_who_left(table);
        self.begun.shrink_to(2 * self.begun.len());
        self.new.shrink_to(2 * self.new.len());
    }

    fn bound(&mut self, table: &mut Table<impl Default>) {
        if self.begun.len() + self.new.len() >= 2 * table.used() + SPARE {
            self.forget_who_left(table);
        }
    }

    fn forget_who_left(&mut self, table: &mut Table<impl Default>) {
        self.begun.retain(|conn| table.find(*conn).is_some());
        self.new.retain(|(conn, _)| table.find(*conn).is_some());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::conns::table::tests::{enter, table};

    fn turns(handshakes: &mut Handshakes, n: usize) -> Vec<u64> {
        (0..n).map_while(|_| handshakes.next(0, 10_000)).map(|turn| turn.conn).collect()
    }

    /// http.md 15.6: "those that have begun first", and those that want to begin are not shut out.
    #[test]
    fn who_has_begun_comes_first() {
        let (mut handshakes, mut table) = (Handshakes::default(), table());
        (100..103).for_each(|conn| handshakes.begin(&mut table, conn, 0));
        (0..10).for_each(|conn| handshakes.go_on(&mut table, conn));
        assert_eq!(turns(&mut handshakes, 9), [0, 1, 2, 3, 4, 5, 6, 100, 7]);
        handshakes.go_on(&mut table, 10);
        assert_eq!(turns(&mut handshakes, 9), [8, 9, 10, 101, 102]);
        assert!(handshakes.is_empty());
        (0..20).for_each(|conn| handshakes.go_on(&mut table, conn));
        assert_eq!(turns(&mut handshakes, 19).len(), 19, "nobody waits for one that isn't there");
        handshakes.begin(&mut table, 100, 0);
        assert_eq!(turns(&mut handshakes, 2), [100, 19]);
    }

    /// 15.6: "one that has waited for half of its time is closed instead".
    #[test]
    fn who_is_late_does_not_begin() {
        let (mut handshakes, mut table) = (Handshakes::default(), table());
        handshakes.begin(&mut table, 1, 1_000);
        handshakes.begin(&mut table, 2, 1_001);
        handshakes.go_on(&mut table, 3);
        for expected in [(3, 0, false), (1, 1_000, true), (2, 1_001, false)] {
            let (conn, since_ms, late) = expected;
            assert_eq!(handshakes.next(6_001, 10_000), Some(Turn { conn, since_ms, late }));
        }
        assert_eq!(handshakes.next(6_001, 10_000), None);
    }

    /// 15.6: "has begun once its hello is answered": a turn without that is none that counts, and
    /// doesn't make the waiting shorter.
    #[test]
    fn a_turn_without_an_answer_is_no_beginning() {
        let (mut handshakes, mut table) = (Handshakes::default(), table());
        (1..=3).for_each(|conn| handshakes.begin(&mut table, conn, conn * 1_000));
        let first = handshakes.next(3_000, 10_000).unwrap();
        handshakes.begin(&mut table, first.conn, first.since_ms);
        handshakes.go_on(&mut table, 4);
        let next = |handshakes: &mut Handshakes| handshakes.next(6_001, 10_000).unwrap();
        for (conn, late) in [(4, false), (2, false), (3, false), (1, true)] {
            let turn = next(&mut handshakes);
            assert_eq!((turn.conn, turn.late), (conn, late));
        }
    }

    /// Clients that come, send a hello and leave, while nobody gets a turn.
    #[test]
    fn the_queues_are_bounded() {
        let (mut handshakes, mut table) = (Handshakes::default(), table());
        let first = enter(&mut table);
        let first = table.conn(first);
        handshakes.begin(&mut table, first, 0);
        for n in 0..5 * SPARE {
            let index = enter(&mut table);
            let conn = table.conn(index);
            if n % 2 == 0 {
                handshakes.begin(&mut table, conn, 0);
            } else {
                handshakes.go_on(&mut table, conn);
            }
            table.remove(index);
            assert!(handshakes.begun.len() + handshakes.new.len() <= SPARE + 4);
        }
        handshakes.trim(&mut table);
        assert!(handshakes.begun.capacity() + handshakes.new.capacity() < 16);
        assert_eq!(turns(&mut handshakes, 9), [first]);
    }
}
