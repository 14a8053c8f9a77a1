//! Pending connections: those that have not sent a whole request yet, in the order in which they
//! came.
//!
//! An attacker may open connections and send nothing, or a byte now and then. So pending
//! connections are the first to be closed when places get few (`protocol/http.md` 16.5). Each
//! listener has a queue: what comes to the public one makes no room among servers' connections.
//!
//! Bound: a queue holds the ids of at most twice as many as there are, and [`SPARE`].

use std::collections::VecDeque;

use crate::conns::table::{Table, flag};

/// Ids that may lie there of connections that have asked, or are gone, before they are looked for.
const SPARE: usize = 1_024;

/// See the module.
#[derive(Default)]
pub struct Pending {
    queue: VecDeque<u64>,
    count: usize,
}

impl<D: Default> Table<D> {
    /// A connection came in.
    pub(crate) fn came(&mut self, index: u32) {
        let api = self.is_api(index);
        let pending = &self.pending[api];
        if pending.queue.len() > 2 * pending.count + SPARE {
            self.forget_who_asked();
        }
        let conn = self.conn(index);
        self.pending[api].queue.push_back(conn);
        self.pending[api].count += 1;
        self.limits.pending_came();
    }

    /// A connection has sent a whole request, or is gone.
    pub fn asked(&mut self, index: u32) {
        if self.get(index).is_some_and(|slot| slot.clear(flag::PENDING)) {
            let api = self.is_api(index);
            self.pending[api].count -= 1;
            self.limits.pending_asked();
        }
    }

    /// Which queue a connection is in.
    fn is_api(&mut self, index: u32) -> usize {
        usize::from(self.get(index).is_some_and(|slot| slot.has(flag::API)))
    }

    /// Connections that have not sent a whole request yet.
    pub fn pending(&self) -> usize {
        self.pending.iter().map(|pending| pending.count).sum()
    }

    /// The one of them that came first, of those that make room for a connection to this listener.
    pub fn oldest_pending(&mut self, api: bool) -> Option<u32> {
        self.oldest_in(0).or_else(|| if api { self.oldest_in(1) } else { None })
    }

    fn oldest_in(&mut self, api: usize) -> Option<u32> {
        while let Some(conn) = self.pending[api].queue.front().copied() {
            if self.is_pending(conn) {
                return self.find(conn).map(|(index, _)| index);
            }
            self.pending[api].queue.pop_front();
        }
        None
    }

    /// Gives back what is kept of those that have asked.
    pub(crate) fn forget_who_asked(&mut self) {
        for api in [0, 1] {
            let mut queue = std::mem::take(&mut self.pending[api].queue);
            queue.retain(|conn| self.is_pending(*conn));
            queue.shrink_to(2 * queue.len());
            self.pending[api].queue = queue;
        }
    }

    fn is_pending(&mut self, conn: u64) -> bool {
        self.find(conn).is_some_and(|(_, slot)| slot.has(flag::PENDING))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::conns::table::tests::{enter, table};

    /// http.md 16.5: "the oldest first".
    #[test]
    fn the_oldest_goes_first() {
        let mut table = table();
        let indices: Vec<u32> = (0..6).map(|_| enter(&mut table)).collect();
        table.asked(indices[0]);
        table.asked(indices[0]);
        table.remove(indices[1]);
        assert_eq!((table.pending(), table.oldest_pending(false)), (4, Some(indices[2])));
        table.remove(indices[2]);
        table.asked(indices[4]);
        assert_eq!((table.pending(), table.oldest_pending(false)), (2, Some(indices[3])));
        table.remove(indices[3]);
        table.remove(indices[5]);
        table.remove(indices[4]);
        assert_eq!((table.pending(), table.oldest_pending(false)), (0, None));
    }

    /// An old pending connection in front keeps what came after it from being forgotten one by one.
    #[test]
    fn the_queue_is_bounded() {
        let mut table = table();
        let first = enter(&mut table);
        for _ in 0..5 * SPARE {
            let index = enter(&mut table);
            table.asked(index);
            table.remove(index);
        }
        assert!(table.pending[0].queue.len() <= SPARE + 4, "{}", table.pending[0].queue.len());
        assert_eq!((table.pending(), table.oldest_pending(false)), (1, Some(first)));
        table.trim();
        assert_eq!(table.pending[0].queue.len(), 1);
        assert!(table.pending[0].queue.capacity() < 16);
    }
}
