//! How sessions and requests end, and what the brain hears of it.

use halley_link::{CloseReason, ClosedSession};
use halley_wire::websocket::close_code;

use crate::conns::LINGER_MS;
use crate::conns::table::{Phase, flag};
use crate::sessions::Sessions;
use crate::sessions::base::errors::SESSION_LATE;
use crate::sessions::base::groups;
use crate::sessions::base::io::Io;
use crate::sessions::base::requests;
use crate::transport::Transport;

impl Sessions {
    /// Ends a connection at once.
    pub fn end(&mut self, io: &mut Io, index: u32, reason: CloseReason) {
        if matches!(io.conns.phase(index), Phase::Free | Phase::Left) {
            return;
        }
        self.leave(io, index, reason);
        io.conns.remove(index);
    }

    /// The session, if it is one, is over: tells the brain if it knows the number.
    pub fn leave(&mut self, io: &mut Io, index: u32, reason: CloseReason) {
        self.websockets.gone(io, index);
        requests::gone(io, index);
        self.delivery.forget(&mut io.conns, index);
        groups::remove(io, index);
        self.tokens.forget(index);
        self.subscriptions.forget(index);
        self.rights_due.forget(index);
        let conn = io.conns.table.conn(index);
        let Some(slot) = io.conns.slot(index) else { return };
        // The first reason counts: in the end the client leaves a closing connection, too.
        if !slot.has(flag::ANNOUNCED) {
            io.conns.table.take_detail(index);
        } else if slot.user_number != 0 {
            slot.clear(flag::ANNOUNCED);
            let user_number = slot.user_number;
            io.conns.table.take_detail(index);
            io.link.closed(&ClosedSession { conn, user_number, reason });
        } else {
            slot.ended.get_or_insert(reason);
            io.conns.table.take_detail(index);
        }
    }

    /// Lets the outbox go out, then closes.
    pub fn close_after_flush(&mut self, io: &mut Io, index: u32, reason: CloseReason) {
        self.leave(io, index, reason);
        // An answer may take its time on a slow way; a stream's last words may not.
        let Some(slot) = io.conns.slot(index) else { return };
        let answer = slot.phase() == Phase::Http;
        if slot.phase() == Phase::Live && slot.transport != Transport::Poll {
            slot.ended.get_or_insert(reason);
        }
        let ms = if answer { io.conns.answer_ms(index) } else { LINGER_MS };
        io.conns.close(index, ms);
    }

    /// Says goodbye in the stream's own words, then closes. For sessions alone.
    pub fn close_gently(&mut self, io: &mut Io, index: u32, text: &str, reason: CloseReason) {
        let Some(slot) = io.conns.slot(index) else { return };
        let transport = slot.transport;
        match slot.phase() {
            Phase::Live if transport.is_websocket() => {
                self.close_websocket(io, index, close_code::GOING_AWAY, text, reason);
            }
            Phase::Live if transport == Transport::Poll => {
                self.answer_poll(io, index, reason, false);
            }
            Phase::Live => {
                let mut out = Vec::new();
                transport.end(&mut out, text);
                self.writer(io).push(index, out.into());
                self.close_after_flush(io, index, reason);
            }
            Phase::Waiting | Phase::Opening => self.refuse_stream(io, index, &SESSION_LATE),
            _ => {}
        }
    }
}
