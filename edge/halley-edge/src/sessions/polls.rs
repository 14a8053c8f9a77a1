//! Long-poll (`protocol/http.md` 11): a session that ends with the first thing there is to say.
//!
//! Polls open and end here; `delivery/polls.rs` has their answers.

use std::rc::Rc;

use halley_link::CloseReason;
use halley_wire::http1::head::Request;
use halley_wire::{HttpError, poll as wire};

use crate::conns::table::{Phase, flag};
use crate::outbox;
use crate::sessions::Sessions;
use crate::sessions::base::detail::Detail;
use crate::sessions::base::io::Io;
use crate::sessions::base::poll::Poll;
use crate::sessions::delivery::polls::PollAnswer;
use crate::sessions::poll;
use crate::sessions::request::cursor;
use crate::sessions::request::newest;
use crate::sessions::request::parameters;
use crate::sessions::request::timeout;
use crate::sessions::stream::{Opened, SessionRequest};
use crate::sessions::subscriptions;
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
                wire::answer(
                    out,
                    &wire::Answer { gap: None, events, cursor: b"", more: false, end: None },
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

    /// Ends the session with its answer. The connection goes on if the client wants it to and
    /// `keep` is true.
    pub fn answer_poll(&mut self, io: &mut Io, index: u32, reason: CloseReason, keep: bool) {
        let Some(answer) = self.writer(io).poll_answer(index, reason, keep) else { return };
        let PollAnswer { out, keep_alive, reason, ahead } = answer;
        if keep_alive {
            self.leave(io, index, reason);
            return poll::next::goes_on(&mut io.conns, index, out, ahead);
        }
        self.writer(io).push(index, out.into());
        self.close_after_flush(io, index, reason);
        // A long answer may take its time, unlike a stream's last words.
        if io.conns.slot(index).is_some_and(|slot| slot.outbox != outbox::NONE) {
            let ms = io.conns.answer_ms(index);
            io.conns.set_deadline(index, ms);
        }
    }
}
