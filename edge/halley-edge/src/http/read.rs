//! Reading HTTP requests from a connection: heads, bodies, pipelining. Sans-I/O parsing is
//! `halley-wire`'s; this file decides how much is read and what is kept.
//!
//! Bounds: a head by the head limits; of a body at most `request_window_bytes` are on their way
//! to the brain; nothing is read ahead of an answer but what came with the request in one read.

use halley_link::{FLAG_END, Frame};
use halley_wire::HttpError;
use halley_wire::http1::head::parse_request;

use crate::conns::table::{Phase, flag};
use crate::conns::tls::shake::is_tls;
use crate::outbox::{self, Outbox};
use crate::sessions::detail::Detail;
use crate::sessions::exchange::{Exchange, Stage};
use crate::sessions::who::{FOREVER, TOKEN_EXPIRED};
use crate::settings::Settings;
use crate::stats::Stat;
use crate::worker::{READ_BYTES, Worker};

const BODY_LATE: HttpError = HttpError::new(
    408,
    "body_too_slow",
    "The body came slower than limits.pace_bytes_per_s_min allows: send it as fast as you can, or \
     in several requests.",
);

/// Answers that may wait in an outbox while further pipelined requests are read; none while the
/// socket is full, so that the time for taking them (16.7) isn't begun anew.
const PIPELINED_BYTES_MAX: usize = 65_536;
/// Reads of one connection before others have their turn.
pub const READS_PER_TURN: usize = 4;

/// What one step did with the input.
pub enum Step {
    /// So many bytes were used; there may be more to do.
    Used(usize),
    /// Nothing more can be done now; the input is kept.
    Wait,
    /// The connection is no longer one for requests; the input is not ours.
    Done,
}

impl Worker {
    /// Reads requests until the socket is empty, something has to be waited for, or the turn is
    /// over.
    pub(crate) fn http_readable(&mut self, index: u32) {
        for _ in 0..READS_PER_TURN {
            let room = self.http_room(index);
            let Some(slot) = self.table.get(index).filter(|slot| slot.phase == Phase::Http) else {
                return;
            };
            if room == 0 {
                slot.set(flag::UNREAD);
                return;
            }
            slot.clear(flag::UNREAD);
            let mut scratch = std::mem::take(&mut self.scratch);
            let read = self.read(index, &mut scratch, room);
            if let Some(n) = read {
                self.http_bytes(index, &scratch[..n]);
            }
            self.scratch = scratch;
            if read.is_none() {
                return;
            }
        }
        self.turn_is_over(index);
    }

    /// The socket may have more: reads on in the next round.
    pub(crate) fn turn_is_over(&mut self, index: u32) {
        let Some(slot) = self.table.get(index).filter(|slot| slot.socket.is_some()) else { return };
        slot.set(flag::UNREAD);
        self.ready.push(index);
    }

    /// How much may be read now. Whatever makes this 0 wakes the connection when it is over.
    fn http_room(&mut self, index: u32) -> usize {
        let room = self.link_has_room();
        let answers_wait = self.answers_wait(index);
        let stage = match self.table.detail(index) {
            Some(Detail::Http(exchange)) => &exchange.stage,
            _ => &Stage::Head,
        };
        match stage {
            Stage::Head if answers_wait => 0,
            Stage::Head => READ_BYTES,
            Stage::Length(_) | Stage::Chunked(_) if room => self
                .exchange(index)
                .map_or(0, |exchange| exchange.window.min(exchange.read_bytes_max())),
            Stage::Length(_) | Stage::Chunked(_) => {
                self.paused.push(index);
                0
            }
            Stage::Answer => 0,
        }
    }

    /// Does the client not take its answers as fast as it asks for them? Then it is read again
    /// when the outbox is empty.
    fn answers_wait(&mut self, index: u32) -> bool {
        let Some(slot) = self.table.get(index) else { return false };
        let (outbox, blocked) = (slot.outbox, slot.has(flag::BLOCKED));
        let waits = |outbox: &mut Outbox| blocked || outbox.bytes() > PIPELINED_BYTES_MAX;
        self.pool.get(outbox).is_some_and(waits)
    }

    /// Goes on with bytes that were kept, then with the socket's.
    pub(crate) fn resume_http(&mut self, index: u32) {
        if self.table.get(index).is_none_or(|slot| slot.phase != Phase::Http) {
            return;
        }
        if self.kept(index) {
            self.http_bytes(index, &[]);
        }
        if self.table.get(index).is_some_and(|s| s.phase == Phase::Http && s.has(flag::UNREAD)) {
            self.http_readable(index);
        }
    }

    /// Deals with bytes behind those that were kept.
    pub(crate) fn http_bytes(&mut self, index: u32, bytes: &[u8]) {
        let mut kept = match self.exchange(index) {
            Some(exchange) => std::mem::take(&mut exchange.unparsed),
            None => Vec::new(),
        };
        let begins = kept.is_empty();
        let mut input = if begins {
            bytes
        } else {
            kept.extend_from_slice(bytes);
            &kept
        };
        loop {
            if input.is_empty() {
                return;
            }
            match self.http_step(index, input) {
                Step::Used(n) => input = input.get(n..).unwrap_or_default(),
                Step::Wait => return self.keep(index, input, begins),
                Step::Done => return self.read_ahead(index, input),
            }
        }
    }

    /// Keeps bytes until more come, or until the answer before them is written.
    fn keep(&mut self, index: u32, input: &[u8], begins: bool) {
        let Some(exchange) = self.exchange_or_new(index) else { return };
        exchange.unparsed = input.to_vec();
        // 3.5: a head has its time from its first byte, however long the connection was idle.
        if begins && matches!(exchange.stage, Stage::Head) {
            self.set_deadline(index, self.settings.request_ms_max);
        }
    }

    fn http_step(&mut self, index: u32, input: &[u8]) -> Step {
        let answers_wait = self.answers_wait(index);
        if self.table.get(index).is_none_or(|slot| slot.phase != Phase::Http) {
            return Step::Done;
        }
        let stage = match self.table.detail(index) {
            Some(Detail::Http(exchange)) => &exchange.stage,
            _ => &Stage::Head,
        };
        match stage {
            Stage::Answer => Step::Wait,
            Stage::Length(_) | Stage::Chunked(_) => self.body_step(index, input),
            Stage::Head if answers_wait => Step::Wait,
            Stage::Head => self.head_step(index, input),
        }
    }

    fn head_step(&mut self, index: u32, input: &[u8]) -> Step {
        match parse_request(input, &self.settings.head) {
            Ok(Some(request)) => {
                self.stats.count(Stat::Requests);
                self.table.asked(index);
                let body = input.get(request.head_bytes..).unwrap_or_default();
                match self.request(index, &request, body) {
                    Some(used) => Step::Used(request.head_bytes + used),
                    None => Step::Done,
                }
            }
            Ok(None) => Step::Wait,
            Err(error) => {
                if is_tls(input) {
                    self.tls_unexpected(index);
                }
                self.refuse(index, &error);
                Step::Done
            }
        }
    }

    /// Sends on what is there of a body, as one frame however small the chunks are.
    fn body_step(&mut self, index: u32, input: &[u8]) -> Step {
        let conn = self.table.conn(index);
        if self.asker_has_expired(index) {
            self.refuse(index, &TOKEN_EXPIRED);
            return Step::Done;
        }
        let mut joined = std::mem::take(&mut self.items);
        joined.clear();
        let Some(exchange) = self.exchange(index) else { return Step::Done };
        let input = &input[..input.len().min(exchange.window)];
        let taken = match &mut exchange.stage {
            Stage::Length(left) => {
                let n = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= n as u64;
                Ok((n, &input[..n], *left == 0))
            }
            Stage::Chunked(decoder) => decoder
                .decode_all(input, &mut joined)
                .map(|(used, done)| (used, joined.as_slice(), done)),
            Stage::Head | Stage::Answer => return Step::Wait,
        };
        let (used, data, done) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                // What stands before the fault has come.
                if !joined.is_empty() {
                    self.send(&Frame::RequestBody { conn, flags: 0, body: &joined });
                }
                self.refuse(index, &error);
                return Step::Done;
            }
        };
        let came = data.len();
        exchange.window -= came;
        exchange.small_chunks = 2 * came < used;
        if done {
            exchange.stage = Stage::Answer;
        }
        if !data.is_empty() || done {
            let flags = if done { FLAG_END } else { 0 };
            self.send(&Frame::RequestBody { conn, flags, body: data });
        }
        self.items = joined;
        self.body_came(index, came);
        if used == 0 && !done { Step::Wait } else { Step::Used(used) }
    }

    /// Is the token of a body's sender at its end (14.6)?
    fn asker_has_expired(&mut self, index: u32) -> bool {
        let now_s = self.clock.unix_ms(self.now_ms) / 1_000;
        self.exchange(index).is_some_and(|exchange| {
            exchange.until_s != FOREVER && u64::from(exchange.until_s) <= now_s
        })
    }

    /// So many bytes of a body came. Who lets the other wait now has its time: the brain for an
    /// answer or for more credit, the client by its pace (http.md 16.6).
    pub(crate) fn body_came(&mut self, index: u32, bytes: usize) {
        let now_ms = self.now_ms;
        let Settings { response_ms_max, pace_grace_ms, pace_bytes_per_s_min, .. } = self.settings;
        let Some(exchange) = self.exchange(index) else { return };
        if !exchange.body_is_next() {
            exchange.late_us = 0;
            return self.set_deadline(index, response_ms_max);
        }
        exchange.came(bytes, 1_000 * now_ms, 1_000 * pace_grace_ms, pace_bytes_per_s_min);
        let left_ms = (exchange.late_us / 1_000).saturating_sub(now_ms);
        self.set_deadline(index, left_ms);
    }

    /// A body is later than its pace allows, unless it was the link that had no room for it.
    pub(crate) fn body_is_late(&mut self, index: u32) {
        let unread = self.table.get(index).is_some_and(|slot| slot.has(flag::UNREAD));
        if unread && !self.link_has_room() {
            if let Some(exchange) = self.exchange(index) {
                exchange.late_us = 0;
            }
            return self.body_came(index, 0);
        }
        self.stats.count(Stat::SlowBodies);
        self.refuse(index, &BODY_LATE);
    }

    /// How long a client has for the answers that wait for it, from the last of them on.
    pub(crate) fn answer_ms(&mut self, index: u32) -> u64 {
        let outbox = self.table.get(index).map_or(outbox::NONE, |slot| slot.outbox);
        let bytes = self.pool.get(outbox).map_or(0, |outbox| outbox.bytes() as u64);
        let Settings { request_ms_max, pace_bytes_per_s_min, .. } = self.settings;
        request_ms_max + bytes.saturating_mul(1_000) / pace_bytes_per_s_min
    }

    /// The exchange of a connection that has one.
    pub(crate) fn exchange(&mut self, index: u32) -> Option<&mut Exchange> {
        match self.table.detail(index)? {
            Detail::Http(exchange) => Some(exchange),
            _ => None,
        }
    }

    /// Does a connection have bytes that were read and not used?
    pub(crate) fn kept(&mut self, index: u32) -> bool {
        self.exchange(index).is_some_and(|exchange| !exchange.unparsed.is_empty())
    }

    /// The exchange of a connection, made if need be.
    pub(crate) fn exchange_or_new(&mut self, index: u32) -> Option<&mut Exchange> {
        self.table.get(index).filter(|slot| slot.phase == Phase::Http)?;
        if !matches!(self.table.detail(index), Some(Detail::Http(_))) {
            self.table.set_detail(index, Detail::Http(Box::default()));
        }
        self.exchange(index)
    }
}
