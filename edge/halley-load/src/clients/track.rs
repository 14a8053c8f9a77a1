//! The knowledge of one thread's clients: their cursors, and which numbers of each subject they
//! have seen.
//!
//! `halley-load publish --numbers` numbers the events of each subject from 1. So a client that
//! follows a subject knows what it has missed (a number that was left out), what came twice, and
//! what came after a later one. Pure: no I/O, no clock.
//!
//! Invariants: a number is in exactly one of three sets, seen, missing (below the last one seen) or
//! still to come. `owed` is how many of the numbers up to the expected ones aren't seen.
//!
//! Memory: a cursor, and for each subject that the client follows two words and the numbers that
//! are missing, at most [`HOLES_MAX`] ranges of them.

use std::sync::Arc;

use serde::Serialize;

use super::event::{CURSOR_BYTES_MAX, Event};
use super::follows::{Follows, Numbers};

/// Ranges of missing numbers that are remembered for one client and subject; of more, the oldest
/// are missing for good.
const HOLES_MAX: usize = 1024;
/// The last number of a subject whose numbers are followed from the next one on.
const UNKNOWN: u32 = u32::MAX;

/// What was found since the mark.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Events with a number about a subject that the client follows.
    pub numbered: u64,
    /// Numbers that the client had seen already.
    pub duplicates: u64,
    /// Numbers that came after a later one of their subject.
    pub order_breaks: u64,
    /// Times that numbers were left out before one.
    pub gaps: u64,
    /// Gaps that the server told.
    pub gaps_told: u64,
    /// Numbers that were owed and came.
    pub caught_up: u64,
}

/// How things stand, whatever was marked.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Clients that know a cursor.
    pub cursors: u64,
    /// Clients that some of the expected numbers are missing for.
    pub owing: u64,
    /// These numbers: one for each client.
    pub owed: u64,
    /// When the last client had all that was expected; 0 if none was behind since `expect`.
    pub last_caught_up_ns: u64,
    /// Clients that got an event which was due after `flow`.
    pub flowing: u64,
    /// When the first of them got it.
    pub first_flow_ns: u64,
    /// When the last of them got it.
    pub last_flow_ns: u64,
}

/// One thread's clients.
#[derive(Debug)]
pub struct Tracker {
    follows: Arc<Follows>,
    clients: Vec<Client>,
    /// What [`Tracker::owe`] was told; empty before.
    expected: Numbers,
    flow_ns: u64,
    /// What was found since it was last taken.
    pub found: Found,
    /// How things stand.
    pub standing: Standing,
}

#[derive(Debug)]
struct Client {
    /// Empty if there is none.
    cursor: Vec<u8>,
    rows: Box<[Row]>,
    owed: u32,
    flows: bool,
}

/// A subject as one client has seen it.
#[derive(Debug)]
struct Row {
    subject: u32,
    /// The highest number seen.
    last: u32,
    /// Ranges below `last` that are missing, both ends included, in order.
    holes: Vec<(u32, u32)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    Next,
    AfterGap,
    Late,
    Again,
}

impl Tracker {
    /// For clients with these indices of [`Follows`].
    #[must_use]
    pub fn new(follows: Arc<Follows>, indices: impl Iterator<Item = usize>) -> Self {
        let row = |&subject: &u32| Row { subject, last: 0, holes: Vec::new() };
        let client = |index| Client {
            cursor: Vec::new(),
            rows: follows.of(index).iter().map(row).collect(),
            owed: 0,
            flows: false,
        };
        let clients = indices.map(client).collect();
        let (found, standing) = (Found::default(), Standing::default());
        Self { follows, clients, expected: Arc::new([]), flow_ns: u64::MAX, found, standing }
    }

    /// The client's cursor, if it knows one.
    #[must_use]
    pub fn cursor_of(&self, slot: usize) -> Option<&[u8]> {
        self.clients.get(slot).map(|client| &client.cursor[..]).filter(|cursor| !cursor.is_empty())
    }

    /// All that the client got is behind this cursor.
    pub fn cursor(&mut self, slot: usize, cursor: &[u8]) {
        let Some(client) = self.clients.get_mut(slot) else { return };
        if cursor.len() <= CURSOR_BYTES_MAX && cursor.iter().all(is_cursor_byte) {
            self.standing.cursors += u64::from(client.cursor.is_empty());
            client.cursor.clear();
            client.cursor.extend_from_slice(cursor);
        }
    }

    /// The client comes back as one who was never there: its numbers go on from the next ones.
    pub fn forget(&mut self, slot: usize) {
        let Some(client) = self.clients.get_mut(slot) else { return };
        self.standing.cursors -= u64::from(!client.cursor.is_empty());
        self.standing.owing -= u64::from(client.owed > 0);
        self.standing.owed -= u64::from(client.owed);
        (client.cursor, client.owed) = (Vec::new(), 0);
        for row in &mut client.rows {
            (row.last, row.holes) = (UNKNOWN, Vec::new());
        }
    }

    /// From now on the client must have seen all numbers up to these.
    pub fn owe(&mut self, numbers: Numbers) {
        (self.standing.owing, self.standing.owed, self.standing.last_caught_up_ns) = (0, 0, 0);
        for client in &mut self.clients {
            let owed = |row: &Row| numbers.get(row.subject as usize).map_or(0, |n| row.missing(*n));
            client.owed = client.rows.iter().map(owed).sum();
            self.standing.owing += u64::from(client.owed > 0);
            self.standing.owed += u64::from(client.owed);
        }
        self.expected = numbers;
    }

    /// From now on events that were due after `since_ns` show which clients get any.
    pub fn flow(&mut self, since_ns: u64) {
        self.flow_ns = since_ns;
        for client in &mut self.clients {
            client.flows = false;
        }
        let standing = &mut self.standing;
        (standing.flowing, standing.first_flow_ns, standing.last_flow_ns) = (0, 0, 0);
    }

    /// An event reached the client at `now_ns`.
    pub fn event(&mut self, slot: usize, event: Event<'_>, stamp_ns: Option<u64>, now_ns: u64) {
        let Some(client) = self.clients.get_mut(slot) else { return };
        let (found, standing) = (&mut self.found, &mut self.standing);
        if !client.flows && stamp_ns.is_some_and(|stamp_ns| stamp_ns >= self.flow_ns) {
            client.flows = true;
            standing.flowing += 1;
            standing.last_flow_ns = now_ns;
            if standing.first_flow_ns == 0 {
                standing.first_flow_ns = now_ns;
            }
        }
        let subject = event.subject().and_then(|subject| self.follows.subject(subject));
        let (Some(subject), Some(number)) = (subject, event.number()) else { return };
        let Ok(at) = client.rows.binary_search_by_key(&subject, |row| row.subject) else { return };
        found.numbered += 1;
        match client.rows[at].see(number) {
            Place::Next => {}
            Place::AfterGap => found.gaps += 1,
            Place::Late => found.order_breaks += 1,
            Place::Again => {
                found.duplicates += 1;
                return;
            }
        }
        let expected = self.expected.get(subject as usize).copied().unwrap_or(0);
        if client.owed > 0 && number <= expected {
            client.owed -= 1;
            standing.owed -= 1;
            found.caught_up += 1;
            if client.owed == 0 {
                standing.owing -= 1;
                standing.last_caught_up_ns = now_ns;
            }
        }
    }
}

/// What a cursor may have (link.md 7.2); with anything else it could end a request's line.
fn is_cursor_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(byte)
}

impl Row {
    /// Takes note of a number.
    fn see(&mut self, number: u32) -> Place {
        if self.last == UNKNOWN || number == self.last.saturating_add(1) {
            self.last = number;
            return Place::Next;
        }
        if number > self.last {
            if self.holes.len() == HOLES_MAX {
                self.holes.remove(0);
            }
            self.holes.push((self.last + 1, number - 1));
            self.last = number;
            return Place::AfterGap;
        }
        let hole = self.holes.iter().position(|&(from, to)| from <= number && number <= to);
        let Some(at) = hole else { return Place::Again };
        let (from, to) = self.holes.remove(at);
        if number < to {
            self.holes.insert(at, (number + 1, to));
        }
        if from < number {
            self.holes.insert(at, (from, number - 1));
        }
        Place::Late
    }

    /// How many of the numbers up to `expected` weren't seen.
    fn missing(&self, expected: u32) -> u32 {
        if self.last == UNKNOWN {
            return 0;
        }
        let below = |&(from, to): &(u32, u32)| (to.min(expected) + 1).saturating_sub(from);
        self.holes.iter().map(below).sum::<u32>() + expected.saturating_sub(self.last)
    }
}

impl Found {
    /// Adds what another thread found.
    pub fn merge(&mut self, other: &Self) {
        self.numbered += other.numbered;
        self.duplicates += other.duplicates;
        self.order_breaks += other.order_breaks;
        self.gaps += other.gaps;
        self.gaps_told += other.gaps_told;
        self.caught_up += other.caught_up;
    }
}

impl Standing {
    /// Adds how another thread's clients stand.
    pub fn merge(&mut self, other: &Self) {
        let earliest = |a: u64, b: u64| if a == 0 || b == 0 { a.max(b) } else { a.min(b) };
        self.cursors += other.cursors;
        self.owing += other.owing;
        self.owed += other.owed;
        self.last_caught_up_ns = self.last_caught_up_ns.max(other.last_caught_up_ns);
        self.flowing += other.flowing;
        self.first_flow_ns = earliest(self.first_flow_ns, other.first_flow_ns);
        self.last_flow_ns = self.last_flow_ns.max(other.last_flow_ns);
    }
}

#[cfg(test)]
#[path = "track_tests.rs"]
mod tests;
