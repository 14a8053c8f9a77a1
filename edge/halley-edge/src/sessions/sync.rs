//! Sessions for the brain: all of them at a handshake, then each that opens or ends
//! (`protocol/link.md` 6). State is replaced, never repaired.

use halley_link::{CloseReason, Session};

use crate::conns::table::{Phase, flag};
use crate::sessions::Sessions;
use crate::sessions::base::errors::StreamError;
use crate::sessions::base::io::Io;

/// When a link has ended, and before a sync: what an earlier brain knows and said of the
/// sessions is void. Gives how many there are.
pub fn forget_numbers(io: &mut Io) -> u32 {
    let mut sessions = 0;
    for index in 0..io.conns.table.slots() {
        let Some(slot) = io.conns.slot(index) else { continue };
        if slot.phase() == Phase::Free {
            continue;
        }
        slot.user_number = 0;
        slot.clear(flag::ANNOUNCED);
        match slot.phase() {
            Phase::Opening | Phase::Live => sessions += 1,
            Phase::Left => io.conns.forget_left(index),
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

impl Sessions {
    /// One round of the sync: announces what has not been announced, slot by slot (6.1, 6.3).
    pub fn sync(&mut self, io: &mut Io) {
        let slots = io.conns.table.slots();
        let Some(part) = io.link.sync_slots(slots) else { return };
        for index in part.clone() {
            self.announce_session(io, index);
        }
        io.link.synced(part.end, slots);
    }

    /// Tells the brain of a session, if there is a brain and it hasn't been told.
    pub fn announce_session(&mut self, io: &mut Io, index: u32) {
        if !io.link.is_up() {
            return;
        }
        let conn = io.conns.table.conn(index);
        let Some(slot) = io.conns.slot(index) else { return };
        // 10.6: a held session goes on from its own cursor, all others from the link's.
        let own = if slot.has(flag::BUFFERED) { self.delivery.cursor(index) } else { None };
        let cursor = own.unwrap_or_default();
        let ours = matches!(slot.phase(), Phase::Opening | Phase::Live) && !slot.has(flag::DOOMED);
        if ours && !slot.has(flag::ANNOUNCED) {
            slot.set(flag::ANNOUNCED);
            let (transport, opening) = (slot.transport.on_link(), slot.phase() == Phase::Opening);
            let much = self.subscriptions.announce(io, index);
            let user = io.conns.table.user(index);
            let item = Session { conn, transport, user, cursor };
            io.link.opened(&item);
            if much {
                io.link.announce();
            }
            self.rights_again(io, index);
            if opening {
                let ms = io.conns.settings.stream_open_ms_max;
                self.tokens.set_deadline(&mut io.conns, index, ms);
            }
        }
    }

    /// REFUSED.
    pub fn refused(&mut self, io: &mut Io, conn: u64, error: &StreamError<'_>) {
        let Some((index, slot)) = io.conns.table.find(conn) else { return };
        slot.clear(flag::ANNOUNCED);
        match slot.phase() {
            _ if slot.has(flag::DOOMED) => {}
            Phase::Waiting | Phase::Opening => self.refuse_stream(io, index, error),
            Phase::Live => {
                let reason = format!("{}: {}", error.code, error.message);
                self.close_gently(io, index, &reason, CloseReason::CloseSessions);
            }
            Phase::Left => io.conns.forget_left(index),
            Phase::Free | Phase::Proxy | Phase::Handshake | Phase::Http | Phase::Closing => {}
        }
    }
}
