//! From outboxes to sockets: gather, write, wait for those that are full, and not forever (http.md
//! 12). `outbox/slow.rs` decides what goes from an outbox that is too full.

use std::net::Shutdown;
use std::time::Duration;

use halley_link::{CloseReason, FRAME_BYTES_MAX};
use halley_sys::TcpProgress;
use halley_wire::Gap;
use mio::net::TcpStream;

use crate::conns::table::{Phase, flag};
use crate::conns::{Conns, Hung, LINGER_MS, Lost};
use crate::outbox::slow::Relief;
use crate::outbox::{self, Flush, Outbox, Piece};
use crate::settings::Settings;
use crate::socket;
use crate::stats::Stat;
use crate::transport::Transport;

/// Of a write that the socket took, so much may be more than the client's kernel has room for.
const MUCH_BYTES: usize = 16_384;

/// Is there no room for what was written, at a client whose kernel answers? Its answers to this
/// one's questions come ever more rarely, but more than one in half of the time that they have; who
/// was given more time keeps it.
fn waits_in_the_kernel(socket: &TcpStream, answer_ms: u64) -> bool {
    let Some(now) = socket::progress(socket).filter(|now| now.unsent > 0) else { return false };
    2 * u64::from(now.unheard_ms) <= answer_ms
        || socket::user_timeout(socket).is_some_and(|time| time.as_millis() > answer_ms.into())
}

impl<D: Hung> Conns<D> {
    /// Puts a piece into a connection's outbox; it is written when the round settles. A push that
    /// is too much may write the outbox at once, and doom this connection or others.
    pub fn push(&mut self, index: u32, piece: Piece) {
        let Some(slot) = self.table.get(index) else { return };
        if slot.socket.is_none() || slot.has(flag::DOOMED) {
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
            && slot.phase() == Phase::Live
            && !slot.has(flag::BUFFERED);
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

    /// As [`Conns::push`], for what comes to a held session besides what it missed. A REPLAY, a
    /// frame at most, waits for its client whatever the bound is: beside it there is room as ever.
    pub fn push_beside_replay(&mut self, index: u32, piece: Piece) {
        self.push(index, piece);
        let most = self.settings.outbox_bytes_max.saturating_add(FRAME_BYTES_MAX);
        let is_full =
            |conns: &mut Self| conns.outbox(index).is_some_and(|outbox| outbox.bytes() > most);
        if !is_full(self) {
            return;
        }
        // As in `outbox_full`: a round may bring so much to a client that is as fast as can be.
        if self.table.get(index).is_some_and(|slot| !slot.has(flag::BLOCKED)) {
            self.flush(index);
        }
        if is_full(self) {
            self.slow_consumer(index);
        }
    }

    /// What a connection has waiting; `None` for nothing.
    pub fn outbox(&mut self, index: u32) -> Option<&mut Outbox> {
        let number = self.table.get(index)?.outbox;
        self.pool.get(number)
    }

    /// The outbox of this number, which is in a slot; `None` for none.
    pub fn lent(&mut self, number: u32) -> Option<&mut Outbox> {
        self.pool.get(number)
    }

    /// Sees to it that an outbox is written when the round settles.
    pub(in crate::conns) fn mark_dirty(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        if !slot.has(flag::DIRTY) {
            slot.set(flag::DIRTY);
            self.dirty.push(index);
        }
    }

    /// So many bytes were sealed that no outbox knows of; they are written when the round settles.
    pub(in crate::conns) fn sealed(&mut self, index: u32, bytes: usize) {
        let Some(slot) = self.table.get(index).filter(|_| bytes > 0) else { return };
        self.stats.add(Stat::OutboxBytes, bytes as u64);
        if slot.outbox == outbox::NONE {
            slot.outbox = self.pool.lend();
        }
        self.mark_dirty(index);
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
        self.count_lost(index, relief);
        if !relief.enough {
            self.slow_consumer(index);
        }
    }

    fn count_lost(&mut self, index: u32, relief: Relief) {
        if relief.dropped == 0 && relief.conflated == 0 {
            return;
        }
        let conn = self.table.conn(index);
        let (dropped, conflated) = self.lost(index);
        self.lost.set(
            index,
            Lost {
                conn,
                dropped: dropped.saturating_add(relief.dropped),
                conflated: conflated.saturating_add(relief.conflated),
            },
        );
    }

    /// How many events a connection lost, as its client was too slow: those that were dropped, and
    /// those that a newer one replaced. An outbox that is empty is gone, this isn't.
    pub fn lost(&mut self, index: u32) -> (u32, u32) {
        let lost = self.lost.get(index);
        if lost.conn == self.table.conn(index) { (lost.dropped, lost.conflated) } else { (0, 0) }
    }

    /// A client that doesn't take what is for it, or too slowly.
    #[cold]
    pub fn slow_consumer(&mut self, index: u32) {
        self.stats.count(Stat::SlowConsumers);
        self.doom(index, CloseReason::SlowConsumer);
    }

    /// The check that was scheduled, of a stream that has its outbox still, or again.
    ///
    /// The kernel gives up a connection whose client takes nothing for the time that it may leave a
    /// heartbeat unacknowledged, though the client may be there. So it gets more time while
    /// `outbox_ms_max` decides; that takes a call to the kernel now and then, and none for a client
    /// that is only behind by a moment.
    ///
    /// Likewise a client whose kernel has no room for all that this one's took, though no outbox
    /// waits: while its kernel answers, it is there. One that doesn't answer has gone, and the
    /// kernel finds that by the usual time.
    ///
    /// The socket is tried first. It may have room of which a worker that was held up has not
    /// heard, or less than the kernel tells: what that takes is written at the first check, else it
    /// would look at the last as if the client had just taken it, and have as long again.
    pub fn check_outbox(&mut self, index: u32) {
        self.on_writable(index);
        let now = self.clock.now_ms;
        let most = self.settings.outbox_ms_max;
        let usual = self.settings.user_timeout_ms();
        if !self.is_in(index, Phase::Live) {
            return;
        }
        let Some(slot) = self.table.get(index) else { return };
        let Some(socket) = slot.socket.as_ref() else { return };
        slot.deadline = 0;
        let (timeout, left) = match self.pool.get(slot.outbox) {
            None if waits_in_the_kernel(socket, usual) => (most + usual, Some(usual / 2)),
            None => (usual, None),
            Some(outbox) => (most + usual, Some(most.saturating_sub(outbox.stalled_ms(now)))),
        };
        if left == Some(0) {
            return self.slow_consumer(index);
        }
        // A socket that refuses the option is one that has failed; its next write will tell.
        let _ = socket::set_user_timeout(socket, Duration::from_millis(timeout));
        if let Some(left) = left {
            self.set_deadline(index, left);
        }
    }

    /// How far the client has taken what it was sent.
    pub fn progress(&mut self, index: u32) -> Option<TcpProgress> {
        socket::progress(self.table.get(index)?.socket.as_ref()?)
    }

    /// All outboxes together are too large: the fullest connections go, down to seven eighths of
    /// the bound, so that the search for them is rare.
    #[cold]
    fn relieve(&mut self) {
        self.flush_dirty();
        let most = self.settings.outboxes_bytes_max as u64;
        if self.stats.get(Stat::OutboxBytes) <= most {
            return;
        }
        for index in self.outboxes_by_size() {
            if self.stats.get(Stat::OutboxBytes) <= most / 8 * 7 {
                return;
            }
            self.stats.count(Stat::OutboxFull);
            self.doom(index, CloseReason::SlowConsumer);
        }
    }

    /// Connections with an outbox, the fullest first.
    pub fn outboxes_by_size(&mut self) -> Vec<u32> {
        if self.stats.get(Stat::OutboxBytes) == 0 {
            return Vec::new();
        }
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

    /// Writes every outbox that got something; that of a doomed connection when it finishes.
    pub fn flush_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            let Some(slot) = self.table.get(index) else { continue };
            if slot.clear(flag::DIRTY) && !slot.has(flag::BLOCKED) && !slot.has(flag::DOOMED) {
                self.flush(index);
            }
        }
        // What was written last may have made others dirty; else the list's memory is used again.
        if self.dirty.is_empty() {
            self.dirty = dirty;
        }
    }

    /// The socket takes bytes again.
    pub fn on_writable(&mut self, index: u32) {
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
            return self.doom(index, CloseReason::Vanished);
        };
        self.stats.add(Stat::Writes, writes);
        self.stats.add(Stat::Written, bytes as u64);
        match end {
            Flush::Blocked => {
                outbox.blocked(bytes, self.clock.now_ms);
                let (live, poll) = (slot.phase() == Phase::Live, slot.transport == Transport::Poll);
                let unwatched = slot.deadline == 0;
                slot.set(flag::BLOCKED);
                self.stats.count(Stat::Blocked);
                self.watch(index, true);
                // A stream's deadline may be the session's, which is no watch over its outbox.
                if live && (unwatched || !poll) {
                    self.watch_outbox(index);
                }
            }
            Flush::Empty => {
                self.pool.take_back(slot.outbox);
                slot.outbox = outbox::NONE;
                let streams = slot.phase() == Phase::Live && slot.transport != Transport::Poll;
                if bytes >= MUCH_BYTES && streams {
                    self.watch_outbox(index);
                }
                self.flushed(index);
            }
        }
    }

    /// A stream's socket is full: someone has to look whether it stays so.
    fn watch_outbox(&mut self, index: u32) {
        let first = self.settings.outbox_ms_max.min(self.settings.user_timeout_ms() / 2);
        self.lower_deadline(index, first);
    }

    /// Everything was written: what waited for that goes on.
    fn flushed(&mut self, index: u32) {
        if self.tells_emptied {
            self.emptied.push(index);
        }
        let Some(slot) = self.table.get(index) else { return };
        // A session that is held may be owed an answer (`sessions/replay/`).
        let waits = slot.has(flag::UNREAD) || slot.has(flag::BUFFERED);
        match slot.phase() {
            Phase::Closing => self.last_was_written(index),
            Phase::Http | Phase::Live if waits || self.has_kept(index) => self.ready.push(index),
            _ => {}
        }
    }

    /// The last byte is with the kernel: tells the client that none follows, and waits for its
    /// close.
    pub(in crate::conns) fn last_was_written(&mut self, index: u32) {
        if self.close_tls(index) {
            return;
        }
        let Some(slot) = self.table.get(index) else { return };
        let shut = slot.socket.as_ref().is_some_and(|s| s.shutdown(Shutdown::Write).is_ok());
        if shut {
            self.set_deadline(index, LINGER_MS);
            // Not at once: the buffer for reading may be in use.
            self.turn_is_over(index);
        } else {
            self.doom(index, CloseReason::Client);
        }
    }

    /// How long a client has for the answers that wait for it, from the last of them on.
    pub fn answer_ms(&mut self, index: u32) -> u64 {
        let bytes = self.outbox(index).map_or(0, |outbox| outbox.bytes() as u64);
        let Settings { request_ms_max, pace_bytes_per_s_min, .. } = self.settings;
        request_ms_max + bytes.saturating_mul(1_000) / pace_bytes_per_s_min
    }
}
