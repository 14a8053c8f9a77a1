//! Long-poll (`protocol/http.md` 11): a session that ends with the first thing there is to say.
//!
//! A poll is opened as streams are, and with a cursor it is held as they are (`replay/`);
//! but what it gets gathers in its answer instead of the outbox. It is answered at the end of the
//! round that brought something, or when its time is over; then the connection goes on to the next
//! request.
//!
//! The next request is another session with a connection id of its own (link.md 2.4), as it may be
//! another user's, and frames about this one may still be on their way. So a poll is answered only
//! when the edge can report the session's end to the brain, which takes the number from OPENED
//! (6.4).
//!
//! Bounds: `hold_bytes_max` of live events, one REPLAY, and what may be sent ahead of the answer
//! (`poll/ahead.rs`).

use std::rc::Rc;

use halley_link::CloseReason;
use halley_wire::http1::head::Request;
use halley_wire::{HttpError, poll};

use crate::conns::table::{Phase, flag};
use crate::outbox;
use crate::sessions::Sessions;
use crate::sessions::base::detail::{Conns, Detail, poll_of};
use crate::sessions::base::exchange::Exchange;
use crate::sessions::base::io::Io;
use crate::sessions::base::poll::Poll;
use crate::sessions::poll::HELD_MS_MIN;
use crate::sessions::request::cursor;
use crate::sessions::request::newest;
use crate::sessions::request::parameters;
use crate::sessions::request::timeout;
use crate::sessions::stream::{Opened, SessionRequest};
use crate::sessions::subscriptions;
use crate::stats::Stat;
use crate::transport::Transport;

impl Sessions {
    /// `GET /v1/poll`
    pub fn open_poll(
        &mut self,
        io: &mut Io,
        index: u32,
        req: &Request<'_>,
    ) -> Result<Opened, HttpError> {
        parameters::check(req.target)?;
        let timeout_ms = timeout::of_target(req.target)?;
        let subjects = &subscriptions::of_poll(req.target, timeout_ms > 0)?;
        let principal =
            &self.tokens.principal_of_session(&mut io.conns, req, !subjects.is_empty())?;
        let until_ms = io.conns.clock.now_ms + timeout_ms.min(io.conns.settings.poll_ms_max);
        let cursor = newest::or_newest(io, req.target, cursor::of_target(req)?, subjects)?;
        let transport = Transport::Poll;
        let wanted = SessionRequest { transport, principal, cursor: &cursor, subjects };
        let opened = self.open_session(io, index, req, &wanted, |out, options| {
            // Only HEAD is answered by this.
            if options.head_only {
                let events: &[Rc<[u8]>] = &[];
                poll::answer(
                    out,
                    &poll::Answer { gap: None, events, cursor: b"", more: false, end: None },
                    options,
                );
            }
        })?;
        if let Some(Detail::Opening(opening)) = io.conns.table.detail(index) {
            opening.poll = Some(Poll::until(until_ms));
            // Its events are buffered, and whether the client has left is to be seen.
            if let Some(slot) = io.conns.slot(index) {
                slot.set(flag::BUFFERED | flag::UNREAD);
            }
            io.conns.ready.push(index);
        }
        Ok(opened)
    }

    /// OPENED of a poll: its time begins to count.
    pub fn poll_opened(&mut self, io: &mut Io, index: u32, cursor: &[u8]) {
        let held = self.replays.is_held(index);
        let now_ms = io.conns.clock.now_ms;
        if let Some(poll) = poll_of(&mut io.conns, index) {
            poll.is_at(cursor, io.link.cursor());
        }
        self.begin_session(&mut io.conns, index);
        let Some(poll) = poll_of(&mut io.conns, index) else { return };
        let left_ms = poll.left_ms(now_ms);
        if left_ms == 0 && !held {
            return self.polls.answer_soon(&mut io.conns, index);
        }
        let ms = if held { left_ms.max(HELD_MS_MIN) } else { left_ms };
        self.set_deadline(&mut io.conns, index, ms);
        self.polls.due_if_it_has_something(&mut io.conns, index);
        self.replays.replayed(io, index);
    }

    /// A poll that could not be answered when it was due may be answered now.
    pub fn poll_due_if_late(&mut self, io: &mut Io, index: u32) {
        let held = self.replays.is_held(index);
        self.polls.due_if_late(&mut io.conns, index, held);
    }

    /// The time of a poll is over: it is answered at the end of the round.
    pub fn answer_poll_soon(&mut self, conns: &mut Conns, index: u32) {
        self.polls.answer_soon(conns, index);
    }

    /// A poll is held no longer: it is answered, or has what is left of its own time.
    pub fn poll_goes_live(&mut self, io: &mut Io, index: u32) {
        let now_ms = io.conns.clock.now_ms;
        let Some(poll) = poll_of(&mut io.conns, index) else { return };
        let left_ms = poll.left_ms(now_ms);
        if poll.has_something() || left_ms == 0 {
            self.polls.answer_soon(&mut io.conns, index);
        } else {
            self.set_deadline(&mut io.conns, index, left_ms);
        }
    }

    /// Answers the polls that are due.
    pub fn answer_polls(&mut self, io: &mut Io) {
        for conn in self.polls.take_due() {
            if let Some((index, slot)) = io.conns.find(conn) {
                // OPENED makes it due again.
                let numbered = slot.user_number != 0 || !slot.has(flag::ANNOUNCED);
                if slot.phase() == Phase::Live && (numbered || !io.link.is_there()) {
                    self.answer_poll(io, index, CloseReason::Poll, true);
                }
            }
        }
    }

    /// Ends the session with its answer. The connection goes on if the client wants it to and
    /// `keep` is true.
    pub fn answer_poll(&mut self, io: &mut Io, index: u32, reason: CloseReason, keep: bool) {
        let (date, origins) = (io.conns.clock.date, Rc::clone(&io.conns.settings.origins));
        self.deliver_pending_first(io, index);
        if !io.conns.is_in(index, Phase::Live) {
            return;
        }
        // Its replay goes on, or waits for the next poll.
        let more = self.replays.is_held(index);
        let Detail::Opening(opening) = io.conns.table.take_detail(index) else { return };
        let Some(poll) = opening.poll else { return };
        let cursor = match self.replays.cursor(index) {
            Some(cursor) => cursor.to_vec(),
            None => poll.cursor(io.link.cursor()),
        };
        let reply = if keep { opening.reply } else { opening.reply.last() };
        let reason = poll.reason(reason);
        let out = poll.answer(&cursor, more, &reply.options(&origins, date));
        io.conns.stats.count(Stat::Polls);
        if !reply.keep_alive {
            self.push(io, index, out.into());
            self.close_after_flush(io, index, reason);
            // A long answer may take its time, unlike a stream's last words.
            if io.conns.slot(index).is_some_and(|slot| slot.outbox != outbox::NONE) {
                let ms = io.conns.answer_ms(index);
                self.set_deadline(&mut io.conns, index, ms);
            }
            return;
        }
        self.leave(io, index, reason);
        let Some(slot) = io.conns.slot(index) else { return };
        slot.clear(flag::ANNOUNCED);
        slot.ended = None;
        slot.user_number = 0;
        io.conns.become_of(index, Phase::Http);
        io.conns.back_to_proxy(index);
        io.conns.table.set_user(index, b"");
        let unparsed = poll.into_ahead();
        if !unparsed.is_empty() {
            let exchange = Exchange { unparsed, ..Exchange::default() };
            io.conns.table.set_detail(index, Detail::Http(Box::new(exchange)));
        }
        // What is on its way for this session must not meet the next request, which is about
        // another one.
        io.conns.table.renew(index);
        io.conns.watch_again(index);
        io.conns.push(index, out.into());
        let ms = io.conns.answer_ms(index);
        io.conns.set_deadline(index, ms);
        if let Some(slot) = io.conns.slot(index) {
            slot.set(flag::UNREAD);
            io.conns.ready.push(index);
        }
    }
}
