//! The sessions of a worker that are held (`protocol/link.md` 10): each has a cursor of its own,
//! and live events that wait for the end of its replay. [`hold`] says why, and what the bounds are.
//!
//! `delivery/replays.rs` writes to the client meanwhile; nothing in here knows of it.

pub mod hold;

use std::collections::HashMap;

use halley_link::Frame;

use crate::conns::table::{Phase, flag};
use crate::outbox::{self, Piece};
use crate::sessions::base::detail::{Conns, poll_of};
use crate::sessions::base::io::Io;
use crate::sessions::replay::hold::Hold;
use crate::stats::Stat;

/// A map of holds that is this large gives memory back when most of them are gone.
const HOLDS_KEPT: usize = 1_024;

/// See the module. Invariant: an entry belongs to the session that is in the slot now, which has
/// [`flag::BUFFERED`]; the gauges of held sessions and bytes count the entries.
#[derive(Default)]
pub struct Replays {
    /// By index.
    holds: HashMap<u32, Hold>,
}

impl Replays {
    /// Does the session wait for the end of a replay?
    pub fn is_held(&self, index: u32) -> bool {
        self.holds.contains_key(&index)
    }

    /// What a brain has to replay from; `None` if the session isn't held.
    pub fn cursor(&self, index: u32) -> Option<&[u8]> {
        self.holds.get(&index).map(Hold::cursor)
    }

    /// How many live events wait; `None` if the session isn't held.
    pub fn waiting(&self, index: u32) -> Option<usize> {
        self.holds.get(&index).map(Hold::len)
    }

    /// Holds a session that came with a cursor.
    pub fn hold(&mut self, conns: &mut Conns, index: u32, cursor: &[u8]) {
        let Some(slot) = conns.slot(index) else { return };
        slot.set(flag::BUFFERED);
        if self.holds.insert(index, Hold::new(cursor)).is_none() {
            conns.stats.add(Stat::Held, 1);
        }
    }

    /// Keeps a live event; false when there is no room for it.
    ///
    /// # Errors
    /// The event, if the session isn't held.
    pub fn keep(
        &mut self,
        conns: &mut Conns,
        index: u32,
        shard: u8,
        seq: u64,
        piece: Piece,
    ) -> Result<bool, Piece> {
        let Some(hold) = self.holds.get_mut(&index) else { return Err(piece) };
        let all = conns.stats.get(Stat::HeldBytes);
        let before = hold.bytes();
        let kept = hold.keep(shard, seq, piece, conns.settings.hold_bytes_max);
        conns.stats.add(Stat::HeldBytes, (hold.bytes() - before) as u64);
        Ok(kept && all <= conns.settings.outboxes_bytes_max as u64)
    }

    /// The session has its welcome, and the link's cursor is this.
    pub fn began(&mut self, index: u32, behind: &[u8]) {
        if let Some(hold) = self.holds.get_mut(&index) {
            hold.began(behind);
        }
    }

    /// The client was sent something with this cursor, unless it is empty; false if the session
    /// isn't held.
    pub fn moved(&mut self, index: u32, cursor: &[u8]) -> bool {
        let Some(hold) = self.holds.get_mut(&index) else { return false };
        hold.moved(cursor);
        true
    }

    /// A REPLAY has come that isn't the last one: it is answered once its client has taken it.
    pub fn owe(&mut self, io: &mut Io, index: u32) {
        if let Some(hold) = self.holds.get_mut(&index) {
            hold.owe();
            self.replayed(io, index);
        }
    }

    /// Answers REPLAY if one waits for that and the outbox is empty (10.3).
    pub fn replayed(&mut self, io: &mut Io, index: u32) {
        let conn = io.conns.table.conn(index);
        let Some(slot) = io.conns.slot(index) else { return };
        let waits = slot.outbox != outbox::NONE || slot.phase() != Phase::Live;
        if waits || poll_of(&mut io.conns, index).is_some_and(|poll| poll.has_something()) {
            return;
        }
        if self.holds.get_mut(&index).is_some_and(Hold::owes_no_more) {
            io.link.send(&Frame::Replayed { conn });
        }
    }

    /// The link is gone, and with it the replays that it carried.
    pub fn owe_nothing(&mut self) {
        self.holds.values_mut().for_each(|hold| {
            hold.owes_no_more();
        });
    }

    /// The session is held no longer; its flag stays until what was held is written.
    pub fn take(&mut self, conns: &mut Conns, index: u32) -> Option<Hold> {
        let hold = self.holds.remove(&index)?;
        conns.stats.sub(Stat::Held, 1);
        conns.stats.sub(Stat::HeldBytes, hold.bytes() as u64);
        let left = self.holds.len();
        if self.holds.capacity() > HOLDS_KEPT.max(8 * left) {
            self.holds.shrink_to(2 * left);
        }
        Some(hold)
    }

    /// The session is over, and what was held for it.
    pub fn forget(&mut self, conns: &mut Conns, index: u32) {
        let buffered = conns.slot(index).is_some_and(|slot| slot.clear(flag::BUFFERED));
        if buffered {
            self.take(conns, index);
        }
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.holds.shrink_to(2 * self.holds.len());
    }
}
