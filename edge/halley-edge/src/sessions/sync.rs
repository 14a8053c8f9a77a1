//! What the brain is told of sessions: all of them at a meeting, then each that opens or ends
//! (`protocol/link.md` 6). State is replaced, never repaired.

use halley_link::Session;

use crate::conns::table::{Phase, flag};
use crate::sessions::hold::Hold;
use crate::worker::Worker;

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

    /// One round of the sync: announces what has not been announced, slot by slot (6.1, 6.3).
    pub(crate) fn sync(&mut self) {
        let slots = self.table.slots();
        let Some(part) = self.link.sync_slots(slots) else { return };
        for index in part.clone() {
            self.announce_session(index);
        }
        self.link.synced(part.end, slots);
    }

    /// Tells the brain of a session, if there is a brain and it hasn't been told.
    pub(crate) fn announce_session(&mut self, index: u32) {
        if !self.link.is_up() {
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
            self.link.opened(&item);
        }
    }
}
