//! Long-poll (`protocol/http.md` 11): a session that ends with the first thing there is to say.
//!
//! A poll is opened as streams are, and with a cursor it is held as they are (`replay/`);
//! but what it gets gathers in its answer instead of the outbox. It is answered at the end of the
//! round that brought something, or when its time is over; then the connection goes on to the next
//! request (`poll/next.rs`).
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

use crate::conns::table::Phase;
use crate::sessions::base::detail::{Detail, poll_of};
use crate::sessions::delivery::{Writer, welcome};
use crate::sessions::poll::HELD_MS_MIN;
use crate::stats::Stat;

/// The answer of a poll, whose session is over with it.
pub struct PollAnswer {
    /// Its bytes.
    pub out: Vec<u8>,
    /// May the connection serve another request?
    pub keep_alive: bool,
    /// Why the session ends.
    pub reason: CloseReason,
    /// What the client sent ahead of it.
    pub ahead: Vec<u8>,
}

impl Writer<'_> {
    /// OPENED of a poll: its time begins to count.
    pub fn poll_opened(&mut self, index: u32, cursor: &[u8]) {
        let held = self.delivery.replays.is_held(index);
        let now_ms = self.io.conns.clock.now_ms;
        if let Some(poll) = poll_of(&mut self.io.conns, index) {
            poll.is_at(cursor, self.io.link.cursor());
        }
        welcome::begin(&mut self.io.conns, self.tokens, index);
        let Some(poll) = poll_of(&mut self.io.conns, index) else { return };
        let left_ms = poll.left_ms(now_ms);
        if left_ms == 0 && !held {
            return self.delivery.polls.answer_soon(&mut self.io.conns, index);
        }
        let ms = if held { left_ms.max(HELD_MS_MIN) } else { left_ms };
        self.tokens.set_deadline(&mut self.io.conns, index, ms);
        self.delivery.polls.due_if_it_has_something(&mut self.io.conns, index);
        self.replayed(index);
    }

    /// The time of a poll is over: it is answered at the end of the round.
    pub fn answer_poll_soon(&mut self, index: u32) {
        self.delivery.polls.answer_soon(&mut self.io.conns, index);
    }

    /// A poll that could not be answered when it was due may be answered now.
    pub fn poll_due_if_late(&mut self, index: u32) {
        let held = self.delivery.replays.is_held(index);
        self.delivery.polls.due_if_late(&mut self.io.conns, index, held);
    }

    /// A poll is held no longer: it is answered, or has what is left of its own time.
    pub fn poll_goes_live(&mut self, index: u32) {
        let now_ms = self.io.conns.clock.now_ms;
        let Some(poll) = poll_of(&mut self.io.conns, index) else { return };
        let left_ms = poll.left_ms(now_ms);
        if poll.has_something() || left_ms == 0 {
            self.delivery.polls.answer_soon(&mut self.io.conns, index);
        } else {
            self.tokens.set_deadline(&mut self.io.conns, index, left_ms);
        }
    }

    /// The answer of a poll, as its session ends for this reason; `keep` says that the connection
    /// may go on. `None` for a session that isn't there, or is none of a poll.
    pub fn poll_answer(
        &mut self,
        index: u32,
        reason: CloseReason,
        keep: bool,
    ) -> Option<PollAnswer> {
        let (date, origins) =
            (self.io.conns.clock.date, Rc::clone(&self.io.conns.settings.origins));
        self.deliver_pending_first(index);
        if !self.io.conns.is_in(index, Phase::Live) {
            return None;
        }
        // Its replay goes on, or waits for the next poll.
        let more = self.delivery.replays.is_held(index);
        let Detail::Opening(opening) = self.io.conns.table.take_detail(index) else { return None };
        let poll = opening.poll?;
        let cursor = match self.delivery.replays.cursor(index) {
            Some(cursor) => cursor.to_vec(),
            None => poll.cursor(self.io.link.cursor()),
        };
        let reply = if keep { opening.reply } else { opening.reply.last() };
        let out = poll.answer(&cursor, more, &reply.options(&origins, date));
        self.io.conns.stats.count(Stat::Polls);
        let (keep_alive, reason) = (reply.keep_alive, poll.reason(reason));
        Some(PollAnswer { out, keep_alive, reason, ahead: poll.into_ahead() })
    }
}
