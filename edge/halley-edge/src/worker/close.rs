//! How connections end, and what the brain hears of it.

use std::io::Read;
use std::net::Shutdown;

use halley_link::{CloseReason, ClosedSession, Frame};
use halley_wire::websocket::close_code;

use crate::conns::table::{Phase, flag};
use crate::http::read::READS_PER_TURN;
use crate::outbox;
use crate::stats::Stat;
use crate::transport::Transport;
use crate::worker::sweep::SESSION_LATE;
use crate::worker::{READ_BYTES, Worker};

/// How long a connection may take to read its last bytes and to close its side. Closing at once
/// while the client still sends would make the kernel throw the answer away (RFC 9112 section
/// 9.6).
const LINGER_MS: u64 = 2_000;

impl Worker {
    /// Reads once into a buffer of [`READ_BYTES`]: `room` bytes at most, or those of a TLS record;
    /// `None` when there is nothing more now, or when that was the end of the connection.
    pub(crate) fn read(&mut self, index: u32, buffer: &mut [u8], room: usize) -> Option<usize> {
        if self.tls.is_some() && self.is_sealed(index) {
            return self.read_sealed(index, buffer, room);
        }
        self.read_socket(index, buffer.get_mut(..room)?)
    }

    /// Reads what the socket has; otherwise like [`Worker::read`].
    pub(crate) fn read_socket(&mut self, index: u32, buffer: &mut [u8]) -> Option<usize> {
        loop {
            let slot = self.table.get(index)?;
            match slot.socket.as_mut()?.read(buffer) {
                Ok(n) if n > 0 => return Some(n),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return None,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(_) => {
                    self.said_all(index);
                    return None;
                }
                Err(_) => {
                    self.stats.count(Stat::Vanished);
                    self.drop_connection(index, CloseReason::Vanished);
                    return None;
                }
            }
        }
    }

    /// The client closed its side. One that asked may still wait for what is in the outbox.
    pub(crate) fn said_all(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        match slot.phase {
            Phase::Http if slot.outbox != outbox::NONE => {
                self.close_after_flush(index, CloseReason::Client);
            }
            Phase::Closing if slot.outbox != outbox::NONE => {}
            _ => self.drop_connection(index, CloseReason::Client),
        }
    }

    /// Throws away what a closing connection still sends.
    pub(crate) fn discard(&mut self, index: u32) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let more =
            (0..READS_PER_TURN).all(|_| self.read(index, &mut scratch, READ_BYTES).is_some());
        self.scratch = scratch;
        if more {
            self.turn_is_over(index);
        }
    }

    /// Ends a connection at once.
    pub(crate) fn drop_connection(&mut self, index: u32, reason: CloseReason) {
        self.request_gone(index);
        self.leave(index, reason);
        self.end_tls(index);
        let Some(slot) = self.table.get(index) else { return };
        let lent = std::mem::replace(&mut slot.outbox, outbox::NONE);
        slot.socket = None;
        slot.deadline = 0;
        // 6.4: without its number the brain could not be told which session ended.
        let waits = slot.has(flag::ANNOUNCED);
        if waits {
            slot.phase = Phase::Left;
        } else {
            self.table.remove(index);
        }
        if lent != outbox::NONE {
            let dropped = self.pool.take_back(lent);
            self.stats.sub(Stat::OutboxBytes, dropped as u64);
        }
    }

    /// The session, if it is one, is over: counts, and tells the brain if it knows the number.
    pub(crate) fn leave(&mut self, index: u32, reason: CloseReason) {
        self.forget_hold(index);
        self.strike(index);
        self.tokens.forget(index);
        let conn = self.table.conn(index);
        let Some(slot) = self.table.get(index) else { return };
        match slot.phase {
            Phase::Live => self.stats.sub(Stat::Sessions, 1),
            Phase::Waiting => self.stats.sub(Stat::Waiting, 1),
            Phase::Opening => self.stats.sub(Stat::Opening, 1),
            _ => {}
        }
        // Who ended it first has the reason: a closing connection is left by its client as well.
        if !slot.has(flag::ANNOUNCED) {
            self.table.take_detail(index);
        } else if slot.user_number != 0 {
            slot.clear(flag::ANNOUNCED);
            let user_number = slot.user_number;
            self.table.take_detail(index);
            self.link.closed(&ClosedSession { conn, user_number, reason });
        } else {
            slot.ended.get_or_insert(reason);
            self.table.take_detail(index);
        }
    }

    /// Lets the outbox go out, then closes.
    pub(crate) fn close_after_flush(&mut self, index: u32, reason: CloseReason) {
        self.request_gone(index);
        self.leave(index, reason);
        let Some(slot) = self.table.get(index) else { return };
        if matches!(slot.phase, Phase::Free | Phase::Left) {
            return;
        }
        // An answer may take its time on a slow way; a stream's last words may not.
        let answer = slot.phase == Phase::Http;
        slot.phase = Phase::Closing;
        let empty = slot.outbox == outbox::NONE;
        let ms = if answer { self.answer_ms(index) } else { LINGER_MS };
        self.set_deadline(index, ms);
        if empty {
            self.last_was_written(index);
        }
    }

    /// Says goodbye in the stream's own words, then closes.
    pub(crate) fn close_gently(&mut self, index: u32, text: &str, reason: CloseReason) {
        let Some(slot) = self.table.get(index) else { return };
        let transport = slot.transport;
        match slot.phase {
            Phase::Live if transport.is_websocket() => {
                self.close_websocket(index, close_code::GOING_AWAY, text, reason);
            }
            Phase::Live if transport == Transport::Poll => self.answer_poll(index, reason, false),
            Phase::Live => {
                let mut out = Vec::new();
                transport.end(&mut out, text);
                self.push(index, out.into());
                self.close_after_flush(index, reason);
            }
            Phase::Http => {
                let busy = self.exchange(index).is_some_and(|exchange| exchange.in_flight);
                if busy {
                    self.refuse(index, &crate::http::request::NO_BRAIN);
                } else {
                    self.drop_connection(index, reason);
                }
            }
            Phase::Handshake => self.drop_connection(index, reason),
            Phase::Waiting | Phase::Opening => self.refuse_stream(index, &SESSION_LATE),
            Phase::Proxy => self.drop_connection(index, reason),
            Phase::Free | Phase::Closing | Phase::Left => {}
        }
    }

    /// The last byte is with the kernel: tells the client that none follows, and waits for its
    /// close.
    pub(crate) fn last_was_written(&mut self, index: u32) {
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
            self.drop_connection(index, CloseReason::Client);
        }
    }

    /// The client of a request that waits for the brain is gone, or no longer to be answered (8.6).
    pub(crate) fn request_gone(&mut self, index: u32) {
        self.operations_gone(index);
        let conn = self.table.conn(index);
        let Some(exchange) = self.exchange(index) else { return };
        if std::mem::take(&mut exchange.in_flight) {
            self.stats.sub(Stat::RequestsInFlight, 1);
            self.send(&Frame::RequestGone { conn });
        }
    }
}
