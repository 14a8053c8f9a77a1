//! The end of a worker (`protocol/link.md` 9.1): it stops accepting and closes its connections a
//! few at a time over the drain, so that their clients don't all go elsewhere at once.

use std::sync::atomic::Ordering;

use halley_link::CloseReason;

use crate::log;
use crate::worker::{RUN, Worker};

/// How long a stopping worker waits for last writes beyond the drain.
const STOP_MS: u64 = 1_000;

/// How far a worker has stopped.
#[derive(Clone, Copy)]
pub struct Stopping {
    since_ms: u64,
    /// The next slot to close.
    next: u32,
}

impl Worker {
    /// Begins to stop when told to, and goes on with it; true when all is done.
    pub(crate) fn stopped(&mut self) -> bool {
        // Read again every time: a signal may cut a drain short.
        let drain_ms = self.shared.stop.load(Ordering::Relaxed);
        if drain_ms == RUN {
            return false;
        }
        let Stopping { since_ms, next } = self.stopping.unwrap_or_else(|| self.stop_accepting());
        let elapsed_ms = self.now_ms - since_ms;
        let slots = self.table.slots();
        let due = match u64::from(slots).saturating_mul(elapsed_ms).checked_div(drain_ms) {
            Some(due) if elapsed_ms < drain_ms => (due as u32).min(slots),
            _ => slots,
        };
        for index in next..due {
            self.close_gently(index, "stopping", CloseReason::Stopping);
        }
        self.stopping = Some(Stopping { since_ms, next: due.max(next) });
        self.settle();
        self.table.used() == 0 || elapsed_ms >= drain_ms.saturating_add(STOP_MS)
    }

    fn stop_accepting(&mut self) -> Stopping {
        log!("worker {}: closing {} connections", self.index, self.table.used());
        let _ = self.poll.registry().deregister(&mut self.public);
        let _ = self.poll.registry().deregister(&mut self.api);
        self.accept_more = [false; 2];
        Stopping { since_ms: self.now_ms, next: 0 }
    }
}
