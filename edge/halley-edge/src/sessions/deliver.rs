//! DELIVER: one event into the outboxes of these connections.

use halley_link::{Event, List};

use crate::conns::table::{Phase, flag};
use crate::link::goodbye::LinkEnd;
use crate::outbox::pieces::Encoder;
use crate::stats::Stat;
use crate::worker::Worker;

impl Worker {
    /// DELIVER: puts an event into the outboxes of these connections.
    ///
    /// # Errors
    /// The link's, if the event has no cursor and can't move the link's.
    pub(crate) fn deliver(
        &mut self,
        event: &Event<'_>,
        conns: List<'_, u64>,
    ) -> Result<(), LinkEnd> {
        self.link.cursor_passes(event)?;
        // A copy: what is done for a connection may look at the link's own.
        let mut cursor = std::mem::take(&mut self.event_cursor);
        cursor.clear();
        cursor.extend_from_slice(self.link.cursor());
        self.fan_out(&Event { cursor: &cursor, ..*event }, conns);
        self.event_cursor = cursor;
        Ok(())
    }

    fn fan_out(&mut self, event: &Event<'_>, conns: List<'_, u64>) {
        let mut encoder = Encoder::new(event, &self.settings);
        let (mut delivered, mut stale) = (0, 0);
        let under_way = self.groups.under_way() > 0;
        for conn in conns.iter() {
            if under_way {
                self.overdue_to(conn);
            }
            let Some((index, slot)) = self.table.find(conn) else {
                stale += 1;
                continue;
            };
            let transport = slot.transport;
            let aside = slot.has(flag::ASIDE);
            match slot.phase {
                Phase::Live => {}
                Phase::Opening if aside => {}
                Phase::Opening => self.welcome(index, b""),
                _ => {
                    stale += 1;
                    continue;
                }
            }
            let piece = encoder.piece(transport, &mut self.compression.deflater);
            if aside {
                self.set_aside(index, event.shard, event.seq, piece);
            } else {
                self.push(index, piece);
                delivered += 1;
            }
        }
        self.stats.add(Stat::Delivered, delivered);
        self.stats.add(Stat::Stale, stale);
    }
}
