//! From outboxes to sockets: gather, write, wait for those that are full, and not forever (http.md
//! 12). What goes from an outbox that is too full is `slow.rs`'s.

use std::time::Duration;

use halley_link::CloseReason;
use halley_wire::Gap;

use crate::conns::table::{Phase, flag};
use crate::outbox::{self, Flush, Piece};
use crate::stats::Stat;
use crate::transport::Transport;
use crate::worker::Worker;
use crate::worker::listen;

impl Worker {
    /// Puts a piece into a connection's outbox, behind what is under way for it; it is written when
    /// the round settles.
    pub(crate) fn push(&mut self, index: u32, piece: Piece) {
        self.overdue(index);
        self.put(index, piece);
    }

    /// The same for who knows that nothing is under way, or that this comes first.
    pub(crate) fn put(&mut self, index: u32, piece: Piece) {
        let Some(slot) = self.table.get(index) else { return };
        if slot.socket.is_none() {
            return;
        }
        if slot.outbox == outbox::NONE {
            slot.outbox = self.pool.lend();
        }
        let Some(outbox) = self.pool.get(slot.outbox) else { return };
        // The first piece always fits: a limit below one event would be a stream that can't
        // deliver.
        let full = outbox.bytes() > 0
            && outbox.bytes() + piece.len() > self.settings.outbox_bytes_max
            && slot.phase == Phase::Live
            && !slot.has(flag::ASIDE);
        self.stats.add(Stat::OutboxBytes, piece.len() as u64);
        outbox.push(piece);
        if !slot.has(flag::DIRTY) {
            slot.set(flag::DIRTY);
            self.dirty.push(index);
        }
        if full {
            self.outbox_full(index);
        }
        if self.stats.get(Stat::OutboxBytes) > self.settings.outboxes_bytes_max as u64 {
            self.relieve();
        }
    }

    /// More waits than may wait: what the socket takes goes first, as a round may bring more than
    /// the bound to a client that is as fast as can be. Then what `slow_consumer` says.
    fn outbox_full(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        if !slot.has(flag::BLOCKED) {
            self.flush(index);
        }
        let most = self.settings.outbox_bytes_max;
        let Some(slot) = self.table.get(index) else { return };
        let Some(outbox) = self.pool.get(slot.outbox) else { return };
        let before = outbox.bytes();
        if before <= most || outbox.pieces() < 2 {
            return;
        }
        let transport = slot.transport;
        let relief = outbox.relieve(self.settings.slow_consumer, most, |from, to| {
            let mut out = Vec::new();
            transport.gap(&mut out, b"", &Gap { reason: "slow_consumer", from, to });
            out
        });
        let after = outbox.bytes();
        self.stats.sub(Stat::OutboxBytes, before as u64);
        self.stats.add(Stat::OutboxBytes, after as u64);
        self.stats.add(Stat::EventsDropped, relief.dropped.into());
        self.stats.add(Stat::EventsConflated, relief.conflated.into());
        if !relief.enough {
            self.slow_consumer(index);
        }
    }

    fn slow_consumer(&mut self, index: u32) {
        self.stats.count(Stat::SlowConsumers);
        self.drop_connection(index, CloseReason::SlowConsumer);
    }

    /// A stream's socket is full: someone has to look whether it stays so.
    fn watch_outbox(&mut self, index: u32) {
        let first = self.settings.outbox_ms_max.min(self.settings.user_timeout_ms() / 2);
        self.set_deadline(index, first);
    }

    /// The look that was promised: at a stream that has its outbox still, or again.
    ///
    /// The kernel gives up a connection whose client takes nothing for the time that it may leave a
    /// heartbeat unacknowledged, though the client may be there. So it gets more time while
    /// `outbox_ms_max` decides; that takes a call to the kernel now and then, and none for a client
    /// that is only behind by a moment.
    pub(crate) fn look_at_outbox(&mut self, index: u32) {
        let now = self.clock.heard_ms;
        let most = self.settings.outbox_ms_max;
        let usual = self.settings.user_timeout_ms();
        let Some(slot) = self.table.get(index) else { return };
        let Some(socket) = slot.socket.as_ref() else { return };
        slot.deadline = 0;
        let (timeout, left) = match self.pool.get(slot.outbox) {
            None => (usual, None),
            Some(outbox) => (most + usual, Some(most.saturating_sub(outbox.stalled_ms(now)))),
        };
        if left == Some(0) {
            return self.last_try(index);
        }
        // A socket that refuses the option is one that has failed; its next write will tell.
        let _ = listen::set_user_timeout(socket, Duration::from_millis(timeout));
        if let Some(left) = left {
            self.set_deadline(index, left);
        }
    }

    /// A stream that is out of time: its socket may have room of which a worker that was held up
    /// has not heard.
    fn last_try(&mut self, index: u32) {
        self.on_writable(index);
        let (now, most) = (self.now_ms, self.settings.outbox_ms_max);
        let Some(slot) = self.table.get(index).filter(|slot| slot.phase == Phase::Live) else {
            return;
        };
        if self.pool.get(slot.outbox).is_some_and(|outbox| outbox.stalled_ms(now) >= most) {
            self.slow_consumer(index);
        }
    }

    /// All outboxes together are too large: the fullest connections go, down to seven eighths of
    /// the bound, so that the search for them is rare.
    fn relieve(&mut self) {
        self.flush_dirty();
        let most = self.settings.outboxes_bytes_max as u64;
        if self.stats.get(Stat::OutboxBytes) <= most {
            return;
        }
        let owners = self.outboxes_by_size();
        for index in owners {
            if self.stats.get(Stat::OutboxBytes) <= most / 8 * 7 {
                return;
            }
            self.stats.count(Stat::OutboxFull);
            self.drop_connection(index, CloseReason::SlowConsumer);
        }
    }

    /// Connections with an outbox, the fullest first.
    fn outboxes_by_size(&mut self) -> Vec<u32> {
        let mut sizes = Vec::new();
        for index in 0..self.table.slots() {
            let Some(slot) = self.table.get(index) else { continue };
            if let Some(outbox) = self.pool.get(slot.outbox) {
                let unsent = self.tls.as_mut().map_or(0, |tls| tls.unsent(index));
                sizes.push((outbox.bytes() + unsent, index));
            }
        }
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.into_iter().map(|(_, index)| index).collect()
    }

    /// Writes every outbox that got something.
    pub(crate) fn flush_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            let Some(slot) = self.table.get(index) else { continue };
            if slot.clear(flag::DIRTY) && !slot.has(flag::BLOCKED) {
                self.flush(index);
            }
        }
        // Ending a connection may have made others dirty; else the list's memory is used again.
        if self.dirty.is_empty() {
            self.dirty = dirty;
        }
    }

    /// The socket takes bytes again.
    pub(crate) fn on_writable(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        if slot.clear(flag::BLOCKED) {
            self.watch(index, false);
            self.flush(index);
        }
    }

    fn flush(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        let Some(socket) = slot.socket.as_mut() else { return };
        let Some(outbox) = self.pool.get(slot.outbox) else { return };
        let before = outbox.bytes();
        let sealed = self.tls.as_mut().and_then(|tls| tls.flush(index, outbox, socket));
        let (flushed, grown, gone) = sealed.unwrap_or_else(|| (outbox.flush(socket), 0, 0));
        // An error may come after a part was written; the rest is counted off with the outbox.
        self.stats.add(Stat::OutboxBytes, grown as u64);
        self.stats.sub(Stat::OutboxBytes, (before + gone - outbox.bytes()) as u64);
        slot.set(flag::ACTIVE);
        let Ok((end, bytes, writes)) = flushed else {
            self.stats.count(Stat::Vanished);
            self.drop_connection(index, CloseReason::Vanished);
            return;
        };
        self.stats.add(Stat::Writes, writes);
        self.stats.add(Stat::Written, bytes as u64);
        match end {
            Flush::Blocked => {
                outbox.blocked(bytes, self.now_ms);
                let live = slot.phase == Phase::Live;
                let (unwatched, poll) = (slot.deadline == 0, slot.transport == Transport::Poll);
                slot.set(flag::BLOCKED);
                self.stats.count(Stat::Blocked);
                self.watch(index, true);
                // A deadline of the session itself is no watch over its outbox.
                if live && (unwatched || !poll && self.session_ms(index) != u64::MAX) {
                    self.watch_outbox(index);
                }
            }
            Flush::Empty => {
                self.pool.take_back(slot.outbox);
                slot.outbox = outbox::NONE;
                self.groups.has_room(index);
                self.flushed(index);
            }
        }
    }

    /// Everything was written: goes on with what waited for that.
    fn flushed(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        match slot.phase {
            Phase::Closing => self.last_was_written(index),
            Phase::Http | Phase::Live => {
                let (unread, aside) = (slot.has(flag::UNREAD), slot.has(flag::ASIDE));
                if unread || self.kept(index) {
                    self.ready.push(index);
                }
                if aside {
                    self.replayed(index);
                }
            }
            Phase::Free
            | Phase::Proxy
            | Phase::Handshake
            | Phase::Waiting
            | Phase::Opening
            | Phase::Left => {}
        }
    }
}
