//! INSPECT (`protocol/link.md` 10.8): what waits for a connection; it answers why an event did not
//! come.

use halley_link::{
    BEHIND_MAX, Frame, Item, List, NO_CONN, NumberedSession, SessionState, SlowSession,
};

use crate::conns::table::Phase;
use crate::sessions::base::io::Io;
use crate::sessions::delivery::Writer;

impl Writer<'_> {
    /// Answers INSPECT.
    pub fn inspect(&mut self, token: u32, conn: u64) {
        if conn == NO_CONN {
            return behind(self.io, token);
        }
        let now = self.io.conns.clock.now_ms;
        self.deliver_pending_first_to(conn);
        // What this round hasn't written yet waits for nobody.
        self.io.conns.flush_dirty();
        let found = self.io.conns.find(conn).filter(|(_, slot)| {
            !matches!(slot.phase(), Phase::Proxy | Phase::Handshake | Phase::Http)
        });
        let Some((index, slot)) = found else { return self.io.link.send(&unknown(token, conn)) };
        let held = self.delivery.replays.waiting(index);
        let state = match slot.phase() {
            Phase::Waiting | Phase::Opening => SessionState::Opening,
            Phase::Live if held.is_some() => SessionState::Held,
            Phase::Live => SessionState::Live,
            _ => SessionState::Closing,
        };
        let transport = slot.transport.on_link();
        let (dropped, conflated) = self.io.conns.lost(index);
        let (bytes, pieces, stalled_ms) =
            self.io.conns.outbox(index).map_or((0, 0, 0), |outbox| {
                (outbox.bytes(), outbox.pieces(), outbox.stalled_ms(now))
            });
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let frame = Frame::Inspected {
            token,
            conn,
            state,
            transport,
            outbox_bytes: number(bytes),
            outbox_pieces: number(pieces),
            outbox_ms: u32::try_from(stalled_ms).unwrap_or(u32::MAX),
            held: number(held.unwrap_or(0)),
            dropped,
            conflated,
        };
        self.io.link.send(&frame);
    }
}

/// Which sessions have most waiting, of those whose sockets were full (10.8).
fn behind(io: &mut Io, token: u32) {
    io.conns.flush_dirty();
    let now = io.conns.clock.now_ms;
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (mut count, mut items) = (0, Vec::new());
    for index in io.conns.outboxes_by_size() {
        let conn = io.conns.table.conn(index);
        let Some(slot) = io.conns.slot(index).filter(|slot| slot.phase() == Phase::Live) else {
            continue;
        };
        let session = NumberedSession { conn, user_number: slot.user_number };
        let transport = slot.transport.on_link();
        let Some(outbox) = io.conns.outbox(index).filter(|outbox| outbox.was_full()) else {
            continue;
        };
        let slow = SlowSession {
            session,
            transport,
            outbox_bytes: number(outbox.bytes()),
            outbox_pieces: number(outbox.pieces()),
            outbox_ms: u32::try_from(outbox.stalled_ms(now)).unwrap_or(u32::MAX),
        };
        slow.write(&mut items);
        count += 1;
        if usize::from(count) == BEHIND_MAX {
            break;
        }
    }
    io.link.send(&Frame::Behind { token, sessions: List::from_items(count, &items) });
}

fn unknown(token: u32, conn: u64) -> Frame<'static> {
    Frame::Inspected {
        token,
        conn,
        state: SessionState::Unknown,
        transport: 0,
        outbox_bytes: 0,
        outbox_pieces: 0,
        outbox_ms: 0,
        held: 0,
        dropped: 0,
        conflated: 0,
    }
}
