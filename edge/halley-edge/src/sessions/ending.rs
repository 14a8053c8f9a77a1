//! How sessions and requests end, and what the brain hears of it.

use halley_link::{CloseReason, ClosedSession};
use halley_wire::websocket::close_code;

use crate::conns::LINGER_MS;
use crate::conns::table::{Phase, flag};
use crate::outbox;
use crate::sessions::Sessions;
use crate::sessions::base::errors::SESSION_LATE;
use crate::sessions::base::groups;
use crate::sessions::base::io::Io;
use crate::sessions::base::requests;
use crate::sessions::delivery::polls::PollAnswer;
use crate::sessions::poll;
use crate::sessions::ws::talk::Parting;
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

    /// The session, if it is one, is over: each part forgets it, and the brain hears of it.
    fn leave(&mut self, io: &mut Io, index: u32, reason: CloseReason) {
        self.websockets.gone(io, index);
        requests::gone(io, index);
        self.delivery.forget(&mut io.conns, index);
        groups::remove(io, index);
        self.tokens.forget(index);
        self.subscriptions.forget(index);
        tell_end(io, index, reason);
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

    /// Writes the last that the client hears, if there is something to say, then closes.
    pub fn last_words(
        &mut self,
        io: &mut Io,
        index: u32,
        words: Option<Vec<u8>>,
        why: CloseReason,
    ) {
        if let Some(words) = words {
            self.writer(io).push(index, words.into());
        }
        self.close_after_flush(io, index, why);
    }

    /// Says goodbye in the stream's own words, then closes. For sessions alone.
    pub fn close_gently(&mut self, io: &mut Io, index: u32, text: &str, reason: CloseReason) {
        let Some(slot) = io.conns.slot(index) else { return };
        let transport = slot.transport;
        match slot.phase() {
            Phase::Live if transport.is_websocket() => {
                let Parting { words, reason } = Parting::by(close_code::GOING_AWAY, text, reason);
                self.last_words(io, index, Some(words), reason);
            }
            Phase::Live if transport == Transport::Poll => {
                self.answer_poll(io, index, reason, false);
            }
            Phase::Live => {
                let mut out = Vec::new();
                transport.end(&mut out, text);
                self.last_words(io, index, Some(out), reason);
            }
            Phase::Waiting | Phase::Opening => self.refuse_stream(io, index, &SESSION_LATE),
            _ => {}
        }
    }

    /// Answers the polls that are due.
    pub fn answer_polls(&mut self, io: &mut Io) {
        for conn in self.delivery.take_due() {
            if let Some((index, slot)) = io.conns.find(conn) {
                // OPENED makes it due again.
                let numbered = slot.user_number != 0 || !slot.has(flag::ANNOUNCED);
                if slot.phase() == Phase::Live && (numbered || !io.link.is_there()) {
                    self.answer_poll(io, index, CloseReason::Poll, true);
                }
            }
        }
    }

    /// Ends the session of a poll with its answer. The connection goes on if the client wants it to
    /// and `keep` is true.
    fn answer_poll(&mut self, io: &mut Io, index: u32, reason: CloseReason, keep: bool) {
        let Some(answer) = self.writer(io).poll_answer(index, reason, keep) else { return };
        let PollAnswer { out, keep_alive, reason, ahead } = answer;
        if keep_alive {
            self.leave(io, index, reason);
            return poll::next::goes_on(&mut io.conns, index, out, ahead);
        }
        self.last_words(io, index, Some(out), reason);
        // A long answer may take its time, unlike a stream's last words.
        if io.conns.slot(index).is_some_and(|slot| slot.outbox != outbox::NONE) {
            let ms = io.conns.answer_ms(index);
            io.conns.set_deadline(index, ms);
        }
    }
}

/// A session that is over: the brain hears of it if it knows its number, else once it has said it.
fn tell_end(io: &mut Io, index: u32, reason: CloseReason) {
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
