//! Admission (`protocol/http.md` 13): how many streams a second become sessions.

use crate::stats::Stat;
use crate::table::Phase;
use crate::worker::Worker;

impl Worker {
    /// A stream, or a poll, asks for its session: phase Waiting, with what it needs in its slot.
    pub(crate) fn admit(&mut self, index: u32) {
        self.stats.add(Stat::Waiting, 1);
        self.admitted(index);
    }

    fn admitted(&mut self, index: u32) {
        let Some(slot) = self.table.get(index).filter(|slot| slot.phase == Phase::Waiting) else {
            return;
        };
        slot.phase = Phase::Opening;
        self.stats.sub(Stat::Waiting, 1);
        self.stats.add(Stat::Opening, 1);
        self.set_deadline(index, self.settings.stream_open_ms_max);
        self.announce_session(index);
    }
}
