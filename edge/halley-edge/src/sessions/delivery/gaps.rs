//! GAP (`protocol/link.md` 10.4): sessions learn that they miss events which can't be had any more.

use halley_link::List;
use halley_wire::Gap;

use crate::conns::table::Phase;
use crate::sessions::delivery::Writer;

impl Writer<'_> {
    /// GAP: tells these connections, or all (10.4).
    pub fn gap(&mut self, gap: &Gap<'_>, cursor: &[u8], conns: List<'_, u64>) {
        for conn in conns.iter() {
            if let Some((index, _)) = self.io.conns.find(conn) {
                self.deliver_pending_first(index);
                self.welcome(index, b"");
                self.tell_gap(index, gap, cursor);
            }
        }
        if conns.is_empty() {
            for index in 0..self.io.conns.table.slots() {
                // A held session is replayed from its own cursor, with its own gaps. This gap's
                // cursor would skip what it has yet to get.
                if !self.delivery.replays.is_held(index) {
                    self.tell_gap(index, gap, cursor);
                }
            }
        }
    }

    fn tell_gap(&mut self, index: u32, gap: &Gap<'_>, cursor: &[u8]) {
        self.deliver_pending_first(index);
        let Some(slot) = self.io.conns.slot(index) else { return };
        let transport = slot.transport;
        if !matches!(slot.phase(), Phase::Opening | Phase::Live) {
            return;
        }
        let held = self.delivery.replays.moved(index, cursor);
        let polls = self.delivery.polls.gap(self.io, index, gap, cursor, held);
        if !polls && self.io.conns.is_in(index, Phase::Live) {
            let mut out = Vec::new();
            transport.gap(&mut out, cursor, gap);
            self.push(index, out.into());
        }
    }
}
