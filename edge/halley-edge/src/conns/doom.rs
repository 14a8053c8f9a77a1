//! How connections end.
//!
//! **A connection is never ended in the middle of something.** If a push is too much, a socket
//! fails, or a client has gone, the connection is only *doomed*. Its outbox is freed at once, so
//! the bounds stay exact. It can't be found by its id any more, a push to it does nothing, and
//! nothing is read from it. The worker ends it later ([`Conns::next_doomed`]), so code that pushes
//! may go on using the connections that it holds.
//!
//! Invariant: a doomed connection's flag is set, and its last entry in `doomed` says how it ends.

use halley_link::CloseReason;

use crate::conns::table::{Phase, flag};
use crate::conns::{Conns, Hung};
use crate::outbox;
use crate::stats::Stat;

/// How a doomed connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doom {
    /// At once.
    Drop(CloseReason),
    /// When what waits was written.
    Finish(CloseReason),
}

impl<D: Hung> Conns<D> {
    /// Dooms a connection; it is lost for this reason, and what waits for it is given up.
    #[cold]
    pub fn doom(&mut self, index: u32, reason: CloseReason) {
        let Some(slot) = self.table.get(index) else { return };
        if matches!(slot.phase(), Phase::Free | Phase::Left) {
            return;
        }
        let lent = std::mem::replace(&mut slot.outbox, outbox::NONE);
        if lent != outbox::NONE {
            let dropped = self.pool.take_back(lent);
            self.stats.sub(Stat::OutboxBytes, dropped as u64);
        }
        self.end_tls(index);
        self.mark_doomed(index, Doom::Drop(reason));
    }

    /// Dooms a connection that gets what waits for it, and then no more.
    #[cold]
    pub fn doom_gently(&mut self, index: u32, reason: CloseReason) {
        if !matches!(self.phase(index), Phase::Free | Phase::Left | Phase::Closing) {
            self.mark_doomed(index, Doom::Finish(reason));
        }
    }

    fn mark_doomed(&mut self, index: u32, doom: Doom) {
        let Some(slot) = self.table.get(index) else { return };
        if slot.has(flag::DOOMED) {
            // One that was to finish may now be dropped; one that was to be dropped stays so.
            let mut doomed = self.doomed.iter_mut().rev();
            if let (Some(entry), Doom::Drop(_)) = (doomed.find(|entry| entry.0 == index), doom) {
                if matches!(entry.1, Doom::Finish(_)) {
                    entry.1 = doom;
                }
            }
            return;
        }
        slot.set(flag::DOOMED);
        self.doomed.push((index, doom));
    }

    /// The next connection that is to end, and how. It isn't doomed any more: the caller ends it.
    /// An entry whose connection was ended meanwhile is ignored; of two for a slot the last counts.
    pub fn next_doomed(&mut self) -> Option<(u32, Doom)> {
        while let Some((index, doom)) = self.doomed.pop() {
            if self.table.get(index).is_some_and(|slot| slot.clear(flag::DOOMED)) {
                return Some((index, doom));
            }
        }
        None
    }

    /// A connection gets no more than what waits for it, within so much time.
    pub fn close(&mut self, index: u32, ms: u64) {
        let Some(slot) = self.table.get(index) else { return };
        if matches!(slot.phase(), Phase::Free | Phase::Left) {
            return;
        }
        let (empty, blocked) = (slot.outbox == outbox::NONE, slot.has(flag::BLOCKED));
        self.become_of(index, Phase::Closing);
        self.set_deadline(index, ms);
        if empty {
            self.last_was_written(index);
        } else if !blocked {
            self.mark_dirty(index);
        }
    }

    /// Ends a connection at once. One of which the brain knows without having said its number keeps
    /// its slot: the brain could not be told which session ended (6.4).
    pub fn remove(&mut self, index: u32) {
        if matches!(self.phase(index), Phase::Free | Phase::Left) {
            return;
        }
        self.end_tls(index);
        let Some(slot) = self.table.get(index) else { return };
        let lent = std::mem::replace(&mut slot.outbox, outbox::NONE);
        slot.socket = None;
        slot.deadline = 0;
        slot.clear(flag::DOOMED);
        let waits = slot.has(flag::ANNOUNCED);
        if lent != outbox::NONE {
            let dropped = self.pool.take_back(lent);
            self.stats.sub(Stat::OutboxBytes, dropped as u64);
        }
        self.become_of(index, Phase::Left);
        if !waits {
            self.forget_left(index);
        }
    }

    /// The brain has heard of a session that left, or needs not: its slot is free.
    pub fn forget_left(&mut self, index: u32) {
        if self.phase(index) == Phase::Left {
            self.stats.sub(Stat::Left, 1);
            self.table.remove(index);
        }
    }
}
