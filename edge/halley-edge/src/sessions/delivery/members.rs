//! Events of groups (`protocol/link.md` 11) for the sessions that are their members: those in
//! flight to one are written before anything else is ([`Writer::push`]). `base/groups.rs` has the
//! groups.

use crate::conns::table::{Phase, flag};
use crate::groups::fan_out::{Bounds, Kept, Members, Now};
use crate::outbox::Piece;
use crate::sessions::base::detail::Conns;
use crate::sessions::delivery::{Delivery, Writer};
use crate::sessions::users::tokens::Tokens;
use crate::stats::Stat;

/// Sessions and their connections, as members of groups.
struct Given<'w> {
    delivery: &'w mut Delivery,
    tokens: &'w Tokens,
    conns: &'w mut Conns,
}

impl Members for Given<'_> {
    fn outbox_bytes(&self) -> u64 {
        self.conns.stats.get(Stat::OutboxBytes)
    }

    /// One whose outbox is empty has room.
    fn has_room(&mut self, index: u32, bytes: usize, most: usize) -> bool {
        let Some(slot) = self.conns.slot(index) else { return true };
        if slot.phase() != Phase::Live || slot.has(flag::BUFFERED) {
            return true;
        }
        let number = slot.outbox;
        let outbox = self.conns.lent(number);
        outbox.is_none_or(|outbox| outbox.is_forced() || outbox.bytes() + bytes <= most)
    }

    fn give(&mut self, index: u32, event: &mut Kept) {
        let Some(slot) = self.conns.slot(index).filter(|slot| !slot.has(flag::DOOMED)) else {
            return;
        };
        let (transport, buffered) = (slot.transport, slot.has(flag::BUFFERED));
        let phase = slot.phase();
        let piece = event.piece(transport, &mut self.delivery.deflater);
        match phase {
            Phase::Opening if !buffered => {
                self.delivery.welcome(self.conns, self.tokens, index, b"");
            }
            Phase::Opening | Phase::Live => {}
            _ => return,
        }
        self.conns.stats.count(Stat::GroupDelivered);
        if buffered {
            self.delivery.buffer(self.conns, index, event.shard, event.seq, piece);
        } else {
            self.conns.stats.count(Stat::Delivered);
            self.conns.ages.note(event.at, 1);
            self.conns.push(index, piece);
        }
    }

    fn has_taken_all(&mut self, index: u32) -> bool {
        self.conns.on_writable(index);
        self.conns.outbox(index).is_none()
    }

    fn force(&mut self, index: u32) {
        if let Some(outbox) = self.conns.outbox(index) {
            outbox.force();
        }
    }
}

impl Writer<'_> {
    /// Puts a piece into a session's outbox, behind the events in flight to it.
    pub fn push(&mut self, index: u32, piece: Piece) {
        self.deliver_pending_first(index);
        self.io.conns.push(index, piece);
    }

    /// Gives a session the events in flight to it, which come before anything else.
    pub fn deliver_pending_first(&mut self, index: u32) {
        if self.io.fan_out.in_flight() > 0 {
            let Writer { io, delivery, tokens } = self;
            let mut given = Given { delivery, tokens, conns: &mut io.conns };
            io.fan_out.give_all(index, &mut given);
        }
    }

    /// The same, by the connection's id.
    pub fn deliver_pending_first_to(&mut self, conn: u64) {
        if let Some((index, _)) = self.io.conns.find(conn) {
            self.deliver_pending_first(index);
        }
    }

    /// Serves a slice of those for whom something is in flight.
    pub fn serve_groups(&mut self) {
        while let Some(index) = self.io.conns.next_emptied() {
            self.io.fan_out.has_room(index);
        }
        let Writer { io, delivery, tokens } = self;
        let bounds = Bounds::of(&io.conns.settings);
        let clock = &io.conns.clock;
        let now = Now { now_ms: clock.now_ms, polled_ms: clock.polled_ms };
        let mut given = Given { delivery, tokens, conns: &mut io.conns };
        io.fan_out.serve(bounds, now, &mut given);
        io.conns.tell_emptied(io.fan_out.any_lagging());
        io.conns.stats.set(Stat::InFlight, io.fan_out.in_flight() as u64);
    }
}
