//! Reading HTTP requests from a connection: heads, bodies, pipelining. Sans-I/O parsing is
//! `halley-wire`'s; this file decides how much is read and what is kept.
//!
//! Bounds: a head by the head limits; of a body at most `request_window_bytes` are on their way
//! to the brain; nothing is read ahead of an answer but what came with the request in one read.

use halley_link::{FLAG_END, Frame};
use halley_wire::HttpError;
use halley_wire::http1::head::parse_request;

use crate::conns::READ_BYTES;
use crate::conns::read::READS_PER_TURN;
use crate::conns::table::{Phase, flag};
use crate::conns::tls::shake::is_tls;
use crate::http::request::reads_form;
use crate::http::state::Http;
use crate::sessions::Sessions;
use crate::sessions::base::detail::Detail;
use crate::sessions::base::detail::{exchange_of, exchange_or_new};
use crate::sessions::base::exchange::Stage;
use crate::sessions::base::io::Io;
use crate::sessions::poll::ahead::read_ahead;
use crate::sessions::users::identity::{FOREVER, TOKEN_EXPIRED};
use crate::settings::Settings;
use crate::stats::Stat;

const BODY_LATE: HttpError = HttpError::new(
    408,
    "body_too_slow",
    "The body came slower than limits.pace_bytes_per_s_min allows: send it as fast as you can, or \
     in several requests.",
);

/// Answers that may wait in an outbox while further pipelined requests are read; none while the
/// socket is full, so that the time for taking them (16.7) isn't begun anew.
const PIPELINED_BYTES_MAX: usize = 65_536;

/// How often bodies in small chunks are read. They get [`READS_PER_TURN`] reads then, which take a
/// quarter of a millisecond: so all of them together have a sixteenth of a worker at most, and
/// others don't wait for what they cost.
pub const SMALL_CHUNKS_EVERY_MS: u64 = 4;

/// What one step did with the input.
pub enum Step {
    /// So many bytes were used; there may be more to do.
    Used(usize),
    /// Nothing more can be done now; the input is kept.
    Wait,
    /// The connection is no longer one for requests; the input is not ours.
    Done,
}

impl Http {
    /// Reads requests until the socket is empty, something has to be waited for, or the turn is
    /// over.
    pub fn http_readable(&mut self, io: &mut Io, sessions: &mut Sessions, index: u32) {
        for _ in 0..READS_PER_TURN {
            if self.waits_for_small_chunks(io, index) || !self.read_once(io, sessions, index) {
                return;
            }
        }
        io.conns.turn_is_over(index);
    }

    /// A body in small chunks costs many times what one in large chunks does, so all of them
    /// together get one read a round ([`Http::read_small_chunks`]). Is this one's next read there?
    fn waits_for_small_chunks(&mut self, io: &mut Io, index: u32) -> bool {
        let Some(exchange) = exchange_of(&mut io.conns, index) else { return false };
        if !exchange.small_chunks || !exchange.body_is_next() {
            return false;
        }
        if !exchange.queued {
            exchange.queued = true;
            self.small_chunks.push_back(index);
        }
        true
    }

    /// Reads from the body in small chunks that has waited longest, and sends on what it read as
    /// one frame. If the entry's connection has gone, this reads from the next one in its slot,
    /// which does no harm: that would have been read anyway.
    pub fn read_small_chunks(&mut self, io: &mut Io, sessions: &mut Sessions) {
        let now_ms = io.conns.clock.now_ms;
        if now_ms < self.small_chunks_at_ms {
            return;
        }
        let Some(index) = self.small_chunks.pop_front() else { return };
        self.small_chunks_at_ms = now_ms + SMALL_CHUNKS_EVERY_MS;
        let Some(exchange) = exchange_of(&mut io.conns, index) else { return };
        exchange.queued = false;
        let conn = io.conns.table.conn(index);
        self.joins = true;
        let more = (0..READS_PER_TURN)
            .all(|_| io.conns.is_in(index, Phase::Http) && self.read_once(io, sessions, index));
        self.joins = false;
        self.send_joined(io, conn);
        if more && io.conns.is_in(index, Phase::Http) {
            self.http_readable(io, sessions, index);
        }
    }

    /// How long there is nothing to read of bodies in small chunks.
    pub fn pause_ms(&self, io: &Io) -> u64 {
        if self.small_chunks.is_empty() {
            return u64::MAX;
        }
        self.small_chunks_at_ms.saturating_sub(io.conns.clock.now_ms)
    }

    /// Sends on what was joined of a body that isn't at its end.
    fn send_joined(&mut self, io: &mut Io, conn: u64) {
        if !self.joined.is_empty() {
            io.link.send(&Frame::RequestBody { conn, flags: 0, body: &self.joined });
            self.joined.clear();
        }
    }

    /// Reads once. Is there perhaps more to read?
    fn read_once(&mut self, io: &mut Io, sessions: &mut Sessions, index: u32) -> bool {
        let room = self.http_room(io, index);
        if !io.conns.is_in(index, Phase::Http) {
            return false;
        }
        let Some(slot) = io.conns.slot(index) else { return false };
        if room == 0 {
            slot.set(flag::UNREAD);
            return false;
        }
        slot.clear(flag::UNREAD);
        let mut scratch = std::mem::take(&mut io.conns.scratch);
        let read = io.conns.read(index, &mut scratch, room);
        if let Some(n) = read {
            self.http_bytes(io, sessions, index, &scratch[..n]);
        }
        io.conns.scratch = scratch;
        read.is_some()
    }

    /// How much may be read now. Whatever makes this 0 wakes the connection when it is over.
    fn http_room(&mut self, io: &mut Io, index: u32) -> usize {
        let room = io.link_has_room();
        let answers_wait = answers_wait(io, index);
        let stage = match io.conns.table.detail(index) {
            Some(Detail::Http(exchange)) => &exchange.stage,
            _ => &Stage::Head,
        };
        match stage {
            Stage::Head if answers_wait => 0,
            Stage::Message(_) if answers_wait => 0,
            Stage::Head | Stage::Form(_) | Stage::Message(_) => READ_BYTES,
            Stage::Length(_) | Stage::Chunked(_) if room => exchange_of(&mut io.conns, index)
                .map_or(0, |exchange| exchange.window.min(READ_BYTES)),
            Stage::Length(_) | Stage::Chunked(_) => {
                self.paused.push(index);
                0
            }
            Stage::Answer => 0,
        }
    }

    /// Goes on with bytes that were kept, then with the socket's.
    pub fn resume_http(&mut self, io: &mut Io, sessions: &mut Sessions, index: u32) {
        if !io.conns.is_in(index, Phase::Http) {
            return;
        }
        if io.conns.has_kept(index) {
            self.http_bytes(io, sessions, index, &[]);
        }
        let unread = io.conns.slot(index).is_some_and(|slot| slot.has(flag::UNREAD));
        if unread && io.conns.is_in(index, Phase::Http) {
            self.http_readable(io, sessions, index);
        }
    }

    /// Deals with bytes behind those that were kept.
    pub fn http_bytes(&mut self, io: &mut Io, sessions: &mut Sessions, index: u32, bytes: &[u8]) {
        let mut kept = match exchange_of(&mut io.conns, index) {
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
            match self.http_step(io, sessions, index, input) {
                Step::Used(n) => input = input.get(n..).unwrap_or_default(),
                Step::Wait => return self.keep(io, index, input, begins),
                Step::Done => return read_ahead(&mut io.conns, index, input),
            }
        }
    }

    /// Keeps bytes until more come, or until the answer before them is written.
    fn keep(&mut self, io: &mut Io, index: u32, input: &[u8], begins: bool) {
        let Some(exchange) = exchange_or_new(&mut io.conns, index) else { return };
        exchange.unparsed = input.to_vec();
        // 3.5: a head has its time from its first byte, however long the connection was idle.
        if begins && matches!(exchange.stage, Stage::Head) {
            let ms = io.conns.settings.request_ms_max;
            io.conns.set_deadline(index, ms);
        }
    }

    fn http_step(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        input: &[u8],
    ) -> Step {
        let answers_wait = answers_wait(io, index);
        if !io.conns.is_in(index, Phase::Http) {
            return Step::Done;
        }
        let stage = match io.conns.table.detail(index) {
            Some(Detail::Http(exchange)) => &exchange.stage,
            _ => &Stage::Head,
        };
        match stage {
            Stage::Answer => Step::Wait,
            Stage::Length(_) | Stage::Chunked(_) => self.body_step(io, sessions, index, input),
            Stage::Form(_) => match self.form_goes_on(io, sessions, index, input) {
                Some(used) => Step::Used(used),
                None => Step::Done,
            },
            Stage::Head | Stage::Message(_) if answers_wait => Step::Wait,
            Stage::Message(_) => match self.message_goes_on(io, sessions, index, input) {
                Some(used) => Step::Used(used),
                None => Step::Done,
            },
            Stage::Head => self.head_step(io, sessions, index, input),
        }
    }

    fn head_step(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        input: &[u8],
    ) -> Step {
        match parse_request(input, &io.conns.settings.head) {
            Ok(Some(request)) => {
                io.conns.stats.count(Stat::Requests);
                let used = self.request(io, sessions, index, &request, input);
                // 16.5: a form is a part of its request, whose user isn't known before its end.
                if !reads_form(io, index) {
                    io.conns.table.asked(index);
                }
                match used {
                    Some(used) => Step::Used(request.head_bytes + used),
                    None => Step::Done,
                }
            }
            Ok(None) => Step::Wait,
            Err(error) => {
                if is_tls(input) {
                    io.conns.tls_unexpected(index);
                }
                self.refuse(io, sessions, index, &error);
                Step::Done
            }
        }
    }

    /// Sends on what is there of a body, as one frame however small the chunks are.
    fn body_step(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        input: &[u8],
    ) -> Step {
        let conn = io.conns.table.conn(index);
        if principal_has_expired(io, index) {
            self.joined.clear();
            self.refuse(io, sessions, index, &TOKEN_EXPIRED);
            return Step::Done;
        }
        let Some(exchange) = exchange_of(&mut io.conns, index) else { return Step::Done };
        let input = &input[..input.len().min(exchange.window)];
        let before = self.joined.len();
        let taken = match &mut exchange.stage {
            Stage::Length(left) => {
                let n = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= n as u64;
                Ok((n, *left == 0))
            }
            Stage::Chunked(decoder) => decoder.decode_all(input, &mut self.joined),
            Stage::Head | Stage::Form(_) | Stage::Message(_) | Stage::Answer => {
                return Step::Wait;
            }
        };
        let (used, done) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                // What stands before the fault has come.
                self.send_joined(io, conn);
                self.refuse(io, sessions, index, &error);
                return Step::Done;
            }
        };
        let chunked = matches!(exchange.stage, Stage::Chunked(_));
        let came = if chunked { self.joined.len() - before } else { used };
        exchange.window -= came;
        exchange.small_chunks = 2 * came < used;
        if done {
            exchange.stage = Stage::Answer;
        }
        let data = if chunked { &self.joined } else { &input[..used] };
        let waits = chunked && self.joins;
        if done || !waits && !data.is_empty() {
            let flags = if done { FLAG_END } else { 0 };
            io.link.send(&Frame::RequestBody { conn, flags, body: data });
            self.joined.clear();
        }
        body_came(io, index, came);
        if used == 0 && !done { Step::Wait } else { Step::Used(used) }
    }

    /// A body is later than its pace allows, unless it was the link that had no room for it, or
    /// it waits for its read.
    pub fn body_is_late(&mut self, io: &mut Io, sessions: &mut Sessions, index: u32) {
        let unread = io.conns.slot(index).is_some_and(|slot| slot.has(flag::UNREAD));
        let queued = exchange_of(&mut io.conns, index).is_some_and(|exchange| exchange.queued);
        if queued || unread && !io.link_has_room() {
            if let Some(exchange) = exchange_of(&mut io.conns, index) {
                exchange.late_us = 0;
            }
            return body_came(io, index, 0);
        }
        io.conns.stats.count(Stat::SlowBodies);
        self.refuse(io, sessions, index, &BODY_LATE);
    }
}

/// Does the client not take its answers as fast as it asks for them? Then it is read again
/// when the outbox is empty.
fn answers_wait(io: &mut Io, index: u32) -> bool {
    let Some(slot) = io.conns.slot(index) else { return false };
    let blocked = slot.has(flag::BLOCKED);
    let outbox = io.conns.outbox(index);
    outbox.is_some_and(|outbox| blocked || outbox.bytes() > PIPELINED_BYTES_MAX)
}

/// Is the token of a body's sender at its end (14.6)?
fn principal_has_expired(io: &mut Io, index: u32) -> bool {
    let now_s = io.conns.clock.unix_ms() / 1_000;
    exchange_of(&mut io.conns, index)
        .is_some_and(|exchange| exchange.until_s != FOREVER && u64::from(exchange.until_s) <= now_s)
}

/// So many bytes of a body came. From now on the side that is awaited has its time: the brain for
/// an answer or for more credit, the client by its pace (http.md 16.6).
pub fn body_came(io: &mut Io, index: u32, bytes: usize) {
    let now_ms = io.conns.clock.now_ms;
    let Settings { response_ms_max, pace_grace_ms, pace_bytes_per_s_min, .. } = io.conns.settings;
    let Some(exchange) = exchange_of(&mut io.conns, index) else { return };
    if !exchange.body_is_next() {
        exchange.late_us = 0;
        return io.conns.set_deadline(index, response_ms_max);
    }
    exchange.came(bytes, 1_000 * now_ms, 1_000 * pace_grace_ms, pace_bytes_per_s_min);
    match (exchange.late_us / 1_000).saturating_sub(now_ms) {
        // Each byte would put off the end by a tick.
        0 => io.conns.lower_deadline(index, 0),
        left_ms => io.conns.set_deadline(index, left_ms),
    }
}
