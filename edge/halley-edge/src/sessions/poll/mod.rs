//! The polls of a worker (`protocol/http.md` 11): events and gaps gather in their answers, and a
//! list has those that are due. A poll's answer stands in its connection's detail (`base/poll.rs`).
//!
//! `delivery/polls.rs` writes the answers; after one, `next.rs` readies the connection for the next
//! request.

pub mod ahead;
pub mod next;

use halley_wire::Gap;

use crate::conns::table::flag;
use crate::outbox::Piece;
use crate::sessions::base::detail::{Conns, Detail, poll_of};
use crate::sessions::base::io::Io;
use crate::sessions::base::poll::Poll;

/// A held poll waits so long for its replay, though its timeout be shorter: else a client that
/// never waits would never get anything.
pub const HELD_MS_MIN: u64 = 1_000;

/// A poll's connection waits for its session, or for more of an answer until then, by the worker's
/// clock.
pub fn begins(conns: &mut Conns, index: u32, until_ms: u64) {
    let Some(Detail::Opening(opening)) = conns.table.detail(index) else { return };
    opening.poll = Some(Poll::until(until_ms));
    // Its events are buffered, and whether the client has left is to be seen.
    if let Some(slot) = conns.slot(index) {
        slot.set(flag::BUFFERED | flag::UNREAD);
    }
    conns.ready.push(index);
}

/// See the module.
#[derive(Default)]
pub struct Polls {
    /// By connection id: polls that have their answer, or no more time.
    due: Vec<u64>,
}

impl Polls {
    /// At the end of the round: more of what the round brings goes into the same answer.
    pub fn answer_soon(&mut self, conns: &mut Conns, index: u32) {
        let conn = conns.table.conn(index);
        if self.due.last() != Some(&conn) {
            self.due.push(conn);
        }
    }

    /// Those that are due, each at least once, by connection id.
    pub fn take_due(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.due)
    }

    /// Puts an event into a poll's answer; false when there is no room for it, or no poll. One that
    /// is `held` waits for more of its replay.
    pub fn gather(
        &mut self,
        conns: &mut Conns,
        index: u32,
        piece: Piece,
        bytes_max: usize,
        held: bool,
    ) -> bool {
        let Some(poll) = poll_of(conns, index) else { return false };
        if !poll.add(piece, bytes_max) {
            return false;
        }
        if !held {
            self.answer_soon(conns, index);
        }
        true
    }

    /// A gap that concerns a poll; false if the connection has none.
    pub fn gap(
        &mut self,
        io: &mut Io,
        index: u32,
        gap: &Gap<'_>,
        cursor: &[u8],
        held: bool,
    ) -> bool {
        let Some(poll) = poll_of(&mut io.conns, index) else { return false };
        poll.note(gap);
        poll.is_at(cursor, io.link.cursor());
        if !held {
            self.answer_soon(&mut io.conns, index);
        }
        true
    }

    /// A REPLAY was dealt with: if it brought something, the poll is answered.
    pub fn due_if_it_has_something(&mut self, conns: &mut Conns, index: u32) {
        if poll_of(conns, index).is_some_and(|poll| poll.has_something()) {
            self.answer_soon(conns, index);
        }
    }

    /// A poll that could not be answered when it was due may be answered now.
    pub fn due_if_late(&mut self, conns: &mut Conns, index: u32, held: bool) {
        let wait_ms = if held { HELD_MS_MIN } else { 0 };
        let now_ms = conns.clock.now_ms;
        let is_due = |poll: &mut Poll| poll.has_something() || poll.is_late(now_ms, wait_ms);
        if poll_of(conns, index).is_some_and(is_due) {
            self.answer_soon(conns, index);
        }
    }

    /// A poll's token has expired: it is answered with what there is. False if that was known.
    pub fn expired(&mut self, conns: &mut Conns, index: u32) -> bool {
        let Some(poll) = poll_of(conns, index) else { return false };
        let first = poll.expire();
        self.answer_soon(conns, index);
        first
    }
}
