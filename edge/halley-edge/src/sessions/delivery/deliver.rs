//! DELIVER: one event into the outboxes of these connections.

use halley_link::Event;

use crate::conns::table::{Phase, flag};
use crate::link::goodbye::LinkEnd;
use crate::outbox::pieces::Encoder;
use crate::sessions::delivery::Writer;
use crate::stats::Stat;

impl Writer<'_> {
    /// DELIVER: puts an event into the outboxes of these connections.
    ///
    /// # Errors
    /// The link's, if the event has no cursor and can't move the link's.
    pub fn deliver(
        &mut self,
        event: &Event<'_>,
        conns: impl Iterator<Item = u64>,
    ) -> Result<(), LinkEnd> {
        self.io.link.cursor_passes(event)?;
        // A copy: what is done for a connection may look at the link's own.
        let mut cursor = std::mem::take(&mut self.delivery.event_cursor);
        cursor.clear();
        cursor.extend_from_slice(self.io.link.cursor());
        self.fan_out(&Event { cursor: &cursor, ..*event }, conns);
        self.delivery.event_cursor = cursor;
        Ok(())
    }

    fn fan_out(&mut self, event: &Event<'_>, conns: impl Iterator<Item = u64>) {
        let mut encoder = Encoder::new(event, &self.io.conns.settings);
        let (mut delivered, mut stale) = (0, 0);
        let in_flight = self.io.fan_out.in_flight() > 0;
        for conn in conns {
            if in_flight {
                self.deliver_pending_first_to(conn);
            }
            let Some((index, slot)) = self.io.conns.find(conn) else {
                stale += 1;
                continue;
            };
            let transport = slot.transport;
            let buffered = slot.has(flag::BUFFERED);
            match slot.phase() {
                Phase::Live => {}
                Phase::Opening if buffered => {}
                Phase::Opening => self.welcome(index, b""),
                _ => {
                    stale += 1;
                    continue;
                }
            }
            let piece = encoder.piece(transport, &mut self.delivery.deflater);
            if buffered {
                self.delivery.buffer(&mut self.io.conns, index, event.shard, event.seq, piece);
            } else {
                // The events in flight to it have gone before.
                self.io.conns.push(index, piece);
                delivered += 1;
            }
        }
        self.io.conns.stats.add(Stat::Delivered, delivered);
        self.io.conns.ages.note(event.at, delivered);
        self.io.conns.stats.add(Stat::Stale, stale);
    }
}
