//! What the brain is told of sessions: all of them at a meeting, then each that opens or ends
//! (`protocol/link.md` 6). State is replaced, never repaired.

use halley_link::{Frame, Item, List, Session};

use crate::link::Link;
use crate::outbox::hold::Hold;
use crate::table::{Phase, flag};
use crate::worker::Worker;

/// Sync goes on when the link's queue is below this.
const SYNC_QUEUE_BYTES: usize = 262_144;
/// Slots that the sync looks at in one round.
const SYNC_SLOTS_PER_ROUND: u32 = 8_192;
/// A batch is sent at this size at the latest.
const BATCH_BYTES: usize = 65_536;

/// Items of the round's OPEN or CLOSE. Bound: [`BATCH_BYTES`] and one item.
#[derive(Default)]
pub struct Batch {
    count: u16,
    bytes: Vec<u8>,
}

impl Batch {
    /// Adds an item; true when the batch should be sent.
    pub fn add<'a>(&mut self, item: &impl Item<'a>) -> bool {
        item.write(&mut self.bytes);
        self.count += 1;
        self.bytes.len() >= BATCH_BYTES
    }

    /// Drops what is in it.
    pub fn clear(&mut self) {
        *self = Batch::default();
    }
}

impl Worker {
    /// Before a sync: what an earlier brain said of the sessions is void.
    pub(crate) fn forget_numbers(&mut self) -> u32 {
        let mut sessions = 0;
        for index in 0..self.table.slots() {
            let Some(slot) = self.table.get(index) else { continue };
            if slot.phase == Phase::Free {
                continue;
            }
            slot.user_number = 0;
            slot.clear(flag::ANNOUNCED);
            match slot.phase {
                Phase::Opening | Phase::Live => sessions += 1,
                Phase::Left => self.table.remove(index),
                Phase::Free
                | Phase::Proxy
                | Phase::Handshake
                | Phase::Http
                | Phase::Waiting
                | Phase::Closing => {}
            }
        }
        sessions
    }

    /// Is there a sync, and room for more of it?
    pub(crate) fn sync_may_go_on(&self) -> bool {
        let room = |link: &Link| link.queued() <= SYNC_QUEUE_BYTES;
        self.sync_next.is_some() && self.link.as_ref().is_some_and(room)
    }

    /// One round of the sync: announces what has not been announced, slot by slot (6.1, 6.3).
    pub(crate) fn sync(&mut self) {
        let Some(first) = self.sync_next.filter(|_| self.sync_may_go_on()) else { return };
        let end = self.table.slots().min(first.saturating_add(SYNC_SLOTS_PER_ROUND));
        for index in first..end {
            self.announce_session(index);
        }
        self.sync_next = Some(end);
        if end >= self.table.slots() {
            self.sync_next = None;
            self.announce();
            self.send(&Frame::SyncEnd);
        }
    }

    /// Tells the brain of a session, if there is a brain and it hasn't been told.
    pub(crate) fn announce_session(&mut self, index: u32) {
        if !self.link.as_ref().is_some_and(|link| link.up) {
            return;
        }
        let conn = self.table.conn(index);
        let Some(slot) = self.table.get(index) else { return };
        // 10.6: who is held goes on from a cursor of its own, all others from the link's.
        let hold = if slot.has(flag::ASIDE) { self.holds.get(&index) } else { None };
        let cursor = hold.map_or(b"".as_slice(), Hold::cursor);
        let ours = matches!(slot.phase, Phase::Opening | Phase::Live);
        if ours && !slot.has(flag::ANNOUNCED) {
            slot.set(flag::ANNOUNCED);
            let transport = slot.transport.on_link();
            let user = self.table.user(index);
            let item = Session { conn, transport, user, cursor };
            if self.opens.add(&item) {
                self.announce();
            }
        }
    }

    /// Sends the round's OPEN and CLOSE. A connection that opened and closed in one round is in
    /// both, in this order.
    pub(crate) fn announce(&mut self) {
        let Some(link) = self.link.as_mut().filter(|link| link.up) else {
            self.opens.clear();
            self.closes.clear();
            return;
        };
        if self.opens.count > 0 {
            let sessions = List::from_items(self.opens.count, &self.opens.bytes);
            link.send(&Frame::Open { sessions });
            self.opens.clear();
        }
        if self.closes.count > 0 {
            let sessions = List::from_items(self.closes.count, &self.closes.bytes);
            link.send(&Frame::Close { sessions });
            self.closes.clear();
        }
    }
}
