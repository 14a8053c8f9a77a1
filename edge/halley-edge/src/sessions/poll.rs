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
//! Bounds: `hold_bytes_max` of live events, one REPLAY, and [`AHEAD_BYTES_MAX`] of requests that
//! were sent ahead of the answer.

use std::rc::Rc;

use halley_link::CloseReason;
use halley_wire::http1::head::Request;
use halley_wire::{Gap, HttpError, poll, target};

use crate::conns::table::{Phase, flag};
use crate::outbox::{self, Piece};
use crate::sessions::base::detail::{Conns, Detail, poll_of};
use crate::sessions::base::exchange::Exchange;
use crate::sessions::base::io::Io;
use crate::sessions::base::opening::Poll;
use crate::sessions::cursor;
use crate::sessions::newest;
use crate::sessions::parameters;
use crate::sessions::state::Sessions;
use crate::sessions::stream::{Opened, SessionRequest};
use crate::sessions::subscriptions;
use crate::stats::Stat;
use crate::transport::{EXPIRED, Transport};

/// What a client may send ahead of its answer before it is not read any more.
const AHEAD_BYTES_MAX: usize = 16_384;
/// Without `timeout` (11.2).
const TIMEOUT_MS: u64 = 25_000;
/// A held poll waits so long for its replay, though its timeout be shorter: else a client that
/// never waits would never get anything.
const HELD_MS_MIN: u64 = 1_000;

const BAD_TIMEOUT: HttpError = HttpError::new(
    400,
    "bad_timeout",
    "timeout is in seconds, a decimal number such as 2.5: for how long the answer may wait.",
);

impl Sessions {
    /// `GET /v1/poll`
    pub fn open_poll(
        &mut self,
        io: &mut Io,
        index: u32,
        req: &Request<'_>,
    ) -> Result<Opened, HttpError> {
        parameters::check(req.target)?;
        let timeout_ms = match target::query_value(req.target, "timeout")? {
            Some(text) => milliseconds(&text).ok_or(BAD_TIMEOUT)?,
            None => TIMEOUT_MS,
        };
        let subjects = &subscriptions::of_poll(req.target, timeout_ms > 0)?;
        let principal = &self.principal_of_session(io, req, !subjects.is_empty())?;
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
            opening.poll = Some(Poll {
                until_ms,
                events: Vec::new(),
                bytes: 0,
                gap: None,
                cursor: Box::default(),
                link_was: Box::default(),
                unparsed: Vec::new(),
                expired: false,
            });
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
        self.poll_begins(io, index, cursor);
        self.begin_session(&mut io.conns, index);
        let Some(poll) = poll_of(&mut io.conns, index) else { return };
        let left_ms = poll.until_ms.saturating_sub(now_ms);
        if left_ms == 0 && !held {
            return self.answer_poll_soon(&mut io.conns, index);
        }
        self.set_deadline(
            &mut io.conns,
            index,
            if held { left_ms.max(HELD_MS_MIN) } else { left_ms },
        );
        self.poll_due_if_it_has_something(io, index);
        self.replays.replayed(io, index);
    }

    /// The brain said where the poll is, which is nearer than what the link said before.
    fn poll_begins(&mut self, io: &mut Io, index: u32, cursor: &[u8]) {
        let link_was = io.link.cursor().into();
        if let Some(poll) = poll_of(&mut io.conns, index).filter(|_| !cursor.is_empty()) {
            poll.cursor = cursor.into();
            poll.link_was = link_was;
        }
    }

    /// Puts an event into a poll's answer; false when there is no room for it.
    pub fn gather(
        &mut self,
        conns: &mut Conns,
        index: u32,
        piece: Piece,
        bytes_max: usize,
    ) -> bool {
        let held = self.replays.is_held(index);
        let Some(poll) = poll_of(conns, index) else { return false };
        if piece.len() > bytes_max.saturating_sub(poll.bytes) {
            return false;
        }
        poll.bytes += piece.len();
        poll.events.push(piece.bytes);
        if !held {
            self.answer_poll_soon(conns, index);
        }
        true
    }

    /// A gap that concerns a poll; false if the connection has none.
    pub fn poll_gap(&mut self, io: &mut Io, index: u32, gap: &Gap<'_>, cursor: &[u8]) -> bool {
        let held = self.replays.is_held(index);
        let Some(poll) = poll_of(&mut io.conns, index) else { return false };
        poll.note(gap);
        self.poll_begins(io, index, cursor);
        if !held {
            self.answer_poll_soon(&mut io.conns, index);
        }
        true
    }

    /// A REPLAY was dealt with: if it brought something, the poll is answered.
    pub fn poll_due_if_it_has_something(&mut self, io: &mut Io, index: u32) {
        if poll_of(&mut io.conns, index).is_some_and(|poll| poll.has_something()) {
            self.answer_poll_soon(&mut io.conns, index);
        }
    }

    /// A poll that could not be answered when it was due may be answered now.
    pub fn poll_due_if_late(&mut self, io: &mut Io, index: u32) {
        let wait_ms = if self.replays.is_held(index) { HELD_MS_MIN } else { 0 };
        let now_ms = io.conns.clock.now_ms;
        let late = |poll: &mut Poll| poll.until_ms + wait_ms <= now_ms;
        if poll_of(&mut io.conns, index).is_some_and(|poll| poll.has_something() || late(poll)) {
            self.answer_poll_soon(&mut io.conns, index);
        }
    }

    /// A poll is held no longer: it is answered, or has what is left of its own time.
    pub fn poll_goes_live(&mut self, io: &mut Io, index: u32) {
        let now_ms = io.conns.clock.now_ms;
        let Some(poll) = poll_of(&mut io.conns, index) else { return };
        let left_ms = poll.until_ms.saturating_sub(now_ms);
        if poll.has_something() || left_ms == 0 {
            self.answer_poll_soon(&mut io.conns, index);
        } else {
            self.set_deadline(&mut io.conns, index, left_ms);
        }
    }

    /// At the end of the round: more of what the round brings goes into the same answer.
    pub fn answer_poll_soon(&mut self, conns: &mut Conns, index: u32) {
        let conn = conns.table.conn(index);
        if self.polls_due.last() != Some(&conn) {
            self.polls_due.push(conn);
        }
    }

    /// Answers the polls that are due.
    pub fn answer_polls(&mut self, io: &mut Io) {
        for conn in std::mem::take(&mut self.polls_due) {
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
        let cursor = self.poll_cursor(io, index);
        // Its replay goes on, or waits for the next poll.
        let more = self.replays.is_held(index);
        let Detail::Opening(opening) = io.conns.table.take_detail(index) else { return };
        let Some(poll) = opening.poll else { return };
        let reply = if keep { opening.reply } else { opening.reply.last() };
        let gap = poll.gap.as_ref();
        let gap = gap.map(|gap| Gap { reason: &gap.reason, from: gap.from, to: gap.to });
        let end = poll.expired.then_some(EXPIRED);
        let reason = if poll.expired { CloseReason::Expired } else { reason };
        let answer = poll::Answer { gap, events: &poll.events, cursor: &cursor, more, end };
        let mut out = Vec::new();
        poll::answer(&mut out, &answer, &reply.options(&origins, date));
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
        if !poll.unparsed.is_empty() {
            let exchange = Exchange { unparsed: poll.unparsed, ..Exchange::default() };
            io.conns.table.set_detail(index, Detail::Http(Box::new(exchange)));
        }
        self.renew(io, index);
        io.conns.push(index, out.into());
        let ms = io.conns.answer_ms(index);
        io.conns.set_deadline(index, ms);
        if let Some(slot) = io.conns.slot(index) {
            slot.set(flag::UNREAD);
            io.conns.ready.push(index);
        }
    }

    /// A poll's token has expired: it is answered with what there is. False if that was known.
    pub fn poll_expired(&mut self, io: &mut Io, index: u32) -> bool {
        let Some(poll) = poll_of(&mut io.conns, index) else { return false };
        let first = !std::mem::replace(&mut poll.expired, true);
        self.answer_poll_soon(&mut io.conns, index);
        first
    }

    /// What the client of a poll goes on behind.
    fn poll_cursor(&mut self, io: &mut Io, index: u32) -> Vec<u8> {
        if let Some(cursor) = self.replays.cursor(index) {
            return cursor.to_vec();
        }
        let link = io.link.cursor().to_vec();
        match poll_of(&mut io.conns, index) {
            // The link has brought nothing since the brain named another cursor: that is nearer.
            Some(poll) if poll.events.is_empty() && *poll.link_was == *link => {
                if poll.cursor.is_empty() { link } else { poll.cursor.to_vec() }
            }
            _ => link,
        }
    }

    /// The next request of the connection is about another session: what is on its way for this
    /// one must not meet it.
    fn renew(&mut self, io: &mut Io, index: u32) {
        io.conns.table.renew(index);
        io.conns.watch_again(index);
    }

    /// Keeps what came behind the request of a poll.
    pub fn read_ahead(&mut self, io: &mut Io, index: u32, bytes: &[u8]) {
        let Some(poll) = poll_of(&mut io.conns, index) else { return };
        poll.unparsed.extend_from_slice(bytes);
        if poll.unparsed.len() >= AHEAD_BYTES_MAX {
            // Nothing more is read, so only an event tells that the client has left; it may have
            // come together with the request.
            io.conns.watch_again(index);
        }
    }

    /// Reads what a waiting client sends: the next request, or its end.
    pub fn poll_readable(&mut self, io: &mut Io, index: u32) {
        loop {
            let Some(poll) = poll_of(&mut io.conns, index) else { return };
            let room = AHEAD_BYTES_MAX.saturating_sub(poll.unparsed.len());
            if room == 0 {
                if let Some(slot) = io.conns.slot(index) {
                    slot.set(flag::UNREAD);
                }
                return;
            }
            let mut scratch = std::mem::take(&mut io.conns.scratch);
            let most = room.min(scratch.len());
            let read = io.conns.read(index, &mut scratch, most);
            if let Some(n) = read {
                self.read_ahead(io, index, &scratch[..n]);
            }
            io.conns.scratch = scratch;
            if read.is_none() {
                return;
            }
        }
    }
}

/// A decimal number of seconds, as long as it likes (11.2).
fn milliseconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return None;
    }
    let whole = whole.parse().unwrap_or(u64::MAX / 1_000 - 1);
    let thousandths = part.bytes().chain(*b"000").take(3);
    let part = thousandths.fold(0, |ms, digit| 10 * ms + u64::from(digit - b'0'));
    Some(whole.min(u64::MAX / 1_000 - 1) * 1_000 + part)
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    /// http.md 11.2.
    #[test]
    fn a_timeout_is_a_decimal_number_of_seconds() {
        for (text, ms) in [
            ("0", 0),
            ("2.5", 2_500),
            ("25", 25_000),
            ("0.0019", 1),
            ("007.25", 7_250),
            ("1.0000000000000000000000000000000001", 1_000),
        ] {
            assert_eq!(milliseconds(text), Some(ms), "{text}");
        }
        let long = "9".repeat(60);
        assert!(milliseconds(&long).is_some_and(|ms| ms > u64::MAX / 2));
        for text in ["", ".", "1.", ".5", "-1", "+1", "1e3", "inf", "1,5", " 1", "1.2.3", "\u{661}"]
        {
            assert_eq!(milliseconds(text), None, "{text}");
        }
    }
}
