//! A worker: one thread, one poll, one descriptor table, one place on the trunk. Everything that a
//! client or the brain causes happens in [`Worker::run`]'s loop, which asks its parts; none of them
//! knows the worker, and none that is further down knows one further up:
//!
//! ```text
//! main → worker → http → { sessions, trunk } → { link, groups } → conns
//!      → { outbox, limits, settings, … }
//! ```
//!
//! - `conns/` has the connections: what waits for them, until when, and their bytes;
//! - `link/` is the link to the brain, `groups/` gives groups' events to members, in slices;
//! - `sessions/` opens streams, polls and WebSockets, writes events to them and reads their
//!   messages; `http/` reads requests and writes answers;
//! - here `acceptor.rs` listens, `admit.rs` accepts, `place.rs` has the beginning and the end of a
//!   place on the trunk, `handed.rs` handles the brain's frames, `sweep.rs` and `time.rs` have
//!   heartbeats and deadlines, `stop.rs` the end.
//!
//! Invariant: nothing blocks, and nothing is written to a socket before the round's input was
//! dealt with ([`Worker::settle`]); so writes gather by themselves when there is much to do.
//!
//! Invariant: parts only doom a connection (`conns/doom.rs`); [`Worker::reap`] ends it.

pub mod acceptor;
pub mod admit;
pub mod handed;
pub mod listen;
pub mod place;
pub mod silence;
pub mod state;
pub mod stop;
pub mod sweep;
pub mod time;

use std::io;
use std::time::Instant;

use halley_link::CloseReason;
use mio::event::Event;
use mio::{Events, Token};

use crate::conns::doom::Doom;
use crate::conns::table::wheel::TICK_MS;
use crate::conns::table::{Phase, flag};
use crate::conns::tls::shake::Turned;
use crate::groups::write_permits::WAKE;
use crate::sessions::base::detail::poll_of;
use crate::stats::Stat;
use crate::trunk::owner::Owner;
use crate::worker::acceptor::{API, PUBLIC};
use crate::worker::state::{TRUNK, Worker};
use halley_wire::HttpError;

const EVENTS_PER_ROUND: usize = 1_024;

/// Answer to plain HTTP where TLS is spoken.
const HTTPS_EXPECTED: HttpError = HttpError::new(
    400,
    "https_expected",
    "This port speaks TLS: use https:// (or wss://) instead of http:// in the address.",
);

impl Worker {
    /// Works until the edge is told to stop.
    ///
    /// # Errors
    /// When the poll itself fails, which it doesn't.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_ROUND);
        self.tell_time();
        loop {
            let pause = if self.has_more() { 0 } else { self.http.pause_ms(&self.io).min(TICK_MS) };
            let pause = if pause > 0 && !self.may_sleep() { 0 } else { pause };
            let pause = self.io.conns.clock.poll_for(pause);
            match self.poll.poll(&mut events, Some(pause)) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            // Each connection has one event in it at most; listeners and wake-ups have theirs.
            let polls_max = self.io.conns.table.used() / EVENTS_PER_ROUND + 2;
            let full = events.iter().count() >= EVENTS_PER_ROUND;
            self.io.conns.clock.heard(full, polls_max);
            self.tell_time();
            self.io.link.seat().round();
            self.send_stats();
            for event in &events {
                self.on_event(event);
                self.reap();
            }
            self.accept_rest();
            self.shake_hands();
            self.http.read_small_chunks(&mut self.io, &mut self.sessions);
            self.reap();
            if let Some(owner) = &mut self.owner {
                owner.turn()?;
            }
            self.take_handed();
            self.sessions.sync(&mut self.io);
            self.on_time();
            self.sessions.admit_waiting(&mut self.io);
            self.settle();
            if self.stopped() {
                self.end_link(halley_link::GoodbyeCode::Stopping, "the edge stops");
                if let Some(owner) = self.owner.take() {
                    owner.stop();
                }
                return Ok(());
            }
        }
    }

    fn tell_time(&mut self) {
        if self.io.conns.clock.look() {
            self.acceptor.new_second();
        }
    }

    /// Is there something to do that no event will tell of?
    fn has_more(&self) -> bool {
        let upload = !self.http.paused.is_empty() && self.io.link_has_room();
        self.handed_may_be_taken()
            || self.owner.as_ref().is_some_and(Owner::has_more)
            || self.io.fan_out.has_permit()
            || self.acceptor.has_more()
            || upload
            || self.io.conns.has_more()
            || self.io.link.sync_may_go_on()
    }

    fn on_event(&mut self, event: &Event) {
        match event.token() {
            PUBLIC => {
                self.accept(false);
            }
            API => {
                self.accept(true);
            }
            // The round is for what it waited for.
            WAKE | TRUNK => {}
            token => self.on_connection(token, event),
        }
    }

    fn on_connection(&mut self, token: Token, event: &Event) {
        let Some(index) = self.io.conns.named(token) else { return };
        // Both sides closed is how a connection in phase Closing ends well. A client that polls and
        // closes one side has left; the answer to another request may still be read.
        let polls = poll_of(&mut self.io.conns, index).is_some();
        if event.is_error() || event.is_read_closed() && (event.is_write_closed() || polls) {
            let reason = if event.is_error() {
                self.io.conns.stats.count(Stat::Vanished);
                CloseReason::Vanished
            } else {
                CloseReason::Client
            };
            return self.io.conns.doom(index, reason);
        }
        if event.is_writable() {
            self.io.conns.on_writable(index);
        }
        if event.is_readable() {
            self.on_readable(index);
        }
    }

    /// Reads what a client sent.
    pub(crate) fn on_readable(&mut self, index: u32) {
        match self.io.conns.phase(index) {
            Phase::Proxy => self.proxy_readable(index),
            Phase::Handshake => self.io.conns.handshake_readable(index),
            Phase::Http => self.http.http_readable(&mut self.io, &mut self.sessions, index),
            Phase::Waiting | Phase::Opening | Phase::Live => {
                self.sessions.readable(&mut self.io, index);
            }
            Phase::Closing => self.io.conns.discard(index),
            Phase::Free | Phase::Left => {}
        }
    }

    /// Goes on with handshakes, for a bounded time.
    fn shake_hands(&mut self) {
        if !self.io.conns.handshakes_wait() {
            return;
        }
        let started = Instant::now();
        while let Some((index, since_ms)) = self.io.conns.next_handshake(started) {
            let mut plain = std::mem::take(&mut self.io.conns.scratch);
            match self.io.conns.handshake(index, since_ms, &mut plain) {
                Turned::Nothing => {}
                Turned::Done(bytes) => {
                    let bytes = plain.get(..bytes).unwrap_or_default();
                    self.http.http_bytes(&mut self.io, &mut self.sessions, index, bytes);
                }
                Turned::Plain => {
                    self.http.refuse(&mut self.io, &mut self.sessions, index, &HTTPS_EXPECTED);
                }
            }
            self.io.conns.scratch = plain;
        }
    }

    /// Writes everything that the round brought about. Every connection gets one turn: one whose
    /// client sends without end must not keep the others waiting, so what is ready after its turn
    /// is for the next round.
    pub(crate) fn settle(&mut self) {
        if self.io.link_has_room() {
            self.io.conns.ready.append(&mut self.http.paused);
        }
        self.reap();
        self.sessions.writer(&mut self.io).serve_groups();
        self.sessions.answer_polls(&mut self.io);
        self.io.conns.flush_dirty();
        for index in std::mem::take(&mut self.io.conns.ready) {
            self.resume(index);
        }
        self.reap();
        self.io.conns.flush_dirty();
        self.io.conns.count_ages();
        self.reap();
        self.io.link.announce();
        self.io.link.flush();
        if let Some(owner) = &mut self.owner {
            owner.write();
        }
    }

    /// Ends the connections that are doomed. Ending one dooms no other, but may doom it once more:
    /// its last bytes may fail.
    pub(crate) fn reap(&mut self) {
        while let Some((index, doom)) = self.io.conns.next_doomed() {
            match doom {
                Doom::Drop(reason) => self.sessions.end(&mut self.io, index, reason),
                Doom::Finish(reason) => {
                    self.sessions.close_after_flush(&mut self.io, index, reason);
                }
            }
        }
    }

    /// Gives back what a storm left in the worker's own lists; called now and then.
    pub(crate) fn trim(&mut self) {
        self.io.conns.trim();
        self.io.link.trim();
        self.sessions.trim();
        self.http.trim();
    }

    /// Goes on with a connection that waited for its turn.
    fn resume(&mut self, index: u32) {
        let Some(slot) = self.io.conns.slot(index).filter(|slot| !slot.has(flag::DOOMED)) else {
            return;
        };
        match slot.phase() {
            Phase::Http => self.http.resume_http(&mut self.io, &mut self.sessions, index),
            Phase::Free | Phase::Proxy | Phase::Handshake | Phase::Left => {}
            Phase::Waiting | Phase::Opening | Phase::Live | Phase::Closing => {
                let buffered = slot.has(flag::BUFFERED);
                if slot.clear(flag::UNREAD) {
                    self.on_readable(index);
                }
                if buffered {
                    self.sessions.writer(&mut self.io).replayed(index);
                }
            }
        }
    }
}
