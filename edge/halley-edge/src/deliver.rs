//! From DELIVER to the outboxes: encode once per kind of stream, share.

use std::rc::Rc;

use halley_link::{Event, List};

use crate::stats::Stat;
use crate::table::Phase;
use crate::transport::TRANSPORTS;
use crate::worker::Worker;

impl Worker {
    /// Puts an event into the outboxes of these connections.
    pub(crate) fn deliver(&mut self, event: &Event<'_>, conns: List<'_, u64>) {
        let mut encoded: [Option<Rc<[u8]>>; TRANSPORTS] = [const { None }; TRANSPORTS];
        let (mut delivered, mut stale) = (0, 0);
        for conn in conns.iter() {
            let Some((index, slot)) = self.table.find(conn) else {
                stale += 1;
                continue;
            };
            let transport = slot.transport;
            match slot.phase {
                Phase::Live => {}
                Phase::Opening => self.welcome(index),
                _ => {
                    stale += 1;
                    continue;
                }
            }
            let piece = encoded[transport as usize].get_or_insert_with(|| {
                let mut out = Vec::with_capacity(event.json.len() + 64);
                transport.event(&mut out, event.cursor, event.json, event.data_offset);
                out.into()
            });
            let piece = Rc::clone(piece);
            self.push(index, piece.into());
            delivered += 1;
        }
        self.stats.add(Stat::Delivered, delivered);
        self.stats.add(Stat::Stale, stale);
    }
}
