//! The end of a worker (`protocol/link.md` 9.1, `protocol/http.md` 13.4).
//!
//! 1. At once: no new connections of clients, no new streams, idle connections of clients close.
//!    Pending connections are answered.
//! 2. Streams are closed evenly over the drain, each after its last words: where its client goes
//!    on, and when. Few of them take no longer than they need. The API is served meanwhile and the
//!    brain goes on delivering.
//! 3. When the last stream was closed: the API's listener and idle connections go; requests that
//!    wait for the brain have a moment for their answer.
//!
//! A drain alone doesn't keep events from being lost: what a client hasn't read by then, it gets
//! from the next edge, by its cursor.

use std::sync::atomic::Ordering;

use halley_link::CloseReason;

use crate::conns::table::{Phase, flag};
use crate::log;
use crate::sessions::base::detail::exchange_of;
use crate::sessions::base::errors::NO_BRAIN;
use crate::stats::Stat;
use crate::transport::Transport;
use crate::worker::state::{RUN, Worker};

/// Streams closed in a second at least, so that a drain takes no longer than it needs.
const CLOSES_PER_S_MIN: u64 = 500;
/// How long requests that wait for the brain, and pending connections, have when the streams are
/// gone.
const ANSWERS_MS: u64 = 300;
/// How long a stopping worker waits for last writes when the streams are gone.
const STOP_MS: u64 = 1_000;

/// How often a worker that stops accepts what waits at its public listener.
const ACCEPT_ROUNDS_MAX: usize = 256;

/// How far a worker has stopped.
#[derive(Clone, Copy)]
pub struct Stopping {
    since_ms: u64,
    /// Streams that there were at the beginning.
    streams: u64,
    closed: u64,
    /// The next slot to look at.
    next: u32,
    /// When the last stream was closed.
    emptied_ms: Option<u64>,
    /// Has everything been closed that is not a stream?
    rest_closed: bool,
}

impl Worker {
    /// Begins to stop when told to, and goes on with it; true when all is done.
    pub(crate) fn stopped(&mut self) -> bool {
        // Read again every time: a signal may cut a drain short.
        let drain_ms = self.shared.stop.load(Ordering::Relaxed);
        if drain_ms == RUN {
            return false;
        }
        let mut stopping = match self.stopping {
            Some(stopping) => stopping,
            None => self.stop_accepting(),
        };
        self.stopping = Some(stopping);
        self.sessions.admission().stop();
        self.close_streams(&mut stopping, drain_ms);
        let done = stopping.emptied_ms.is_some_and(|emptied_ms| {
            let since_ms = self.io.conns.clock.heard_ms.saturating_sub(emptied_ms);
            if !stopping.rest_closed && (since_ms >= ANSWERS_MS || self.nobody_waits()) {
                stopping.rest_closed = true;
                self.close_rest();
            }
            since_ms >= STOP_MS
        });
        self.stopping = Some(stopping);
        self.settle();
        self.io.conns.table.used() == 0 || done
    }

    fn stop_accepting(&mut self) -> Stopping {
        // Whom the kernel has let in already would be cut off with the listener.
        for _ in 0..ACCEPT_ROUNDS_MAX {
            if !self.acceptor.is_open() || !self.accept(false) {
                break;
            }
        }
        self.acceptor.close(false);
        let mut streams = 0;
        for index in 0..self.io.conns.table.slots() {
            let Some(slot) = self.io.conns.slot(index) else { continue };
            // A pending connection may still ask, and is told when to come back.
            let idle = slot.is_idle() && !slot.has(flag::PENDING);
            match slot.phase() {
                Phase::Waiting | Phase::Opening | Phase::Live => streams += 1,
                Phase::Http if idle && !slot.has(flag::API) => {
                    self.io.conns.doom(index, CloseReason::Stopping);
                }
                _ => {}
            }
        }
        log!("worker {}: closing {streams} streams", self.index);
        let since_ms = self.io.conns.clock.now_ms;
        let (emptied_ms, rest_closed) = (None, false);
        Stopping { since_ms, streams, closed: 0, next: 0, emptied_ms, rest_closed }
    }

    /// Closes the streams whose time has come.
    fn close_streams(&mut self, stopping: &mut Stopping, drain_ms: u64) {
        let elapsed_ms = self.io.conns.clock.now_ms - stopping.since_ms;
        let even = stopping.streams.saturating_mul(elapsed_ms).checked_div(drain_ms);
        let due = match even {
            Some(even) if elapsed_ms < drain_ms => {
                even.max(elapsed_ms.saturating_mul(CLOSES_PER_S_MIN) / 1_000)
            }
            _ => u64::MAX,
        };
        while stopping.next < self.io.conns.table.slots() && stopping.closed < due {
            if self.close_stream(stopping.next, drain_ms) {
                stopping.closed += 1;
            }
            stopping.next += 1;
        }
        if stopping.next >= self.io.conns.table.slots() && stopping.emptied_ms.is_none() {
            stopping.emptied_ms = Some(self.io.conns.clock.now_ms);
        }
    }

    /// Says the last words to a stream; false when the slot has none.
    fn close_stream(&mut self, index: u32, drain_ms: u64) -> bool {
        let Some(slot) = self.io.conns.slot(index).filter(|slot| !slot.has(flag::DOOMED)) else {
            return false;
        };
        let (transport, buffered) = (slot.transport, slot.has(flag::BUFFERED));
        match slot.phase() {
            Phase::Waiting | Phase::Opening => self.sessions.busy(&mut self.io, index, drain_ms),
            Phase::Live if transport == Transport::Poll => {
                self.sessions.close_gently(&mut self.io, index, "stopping", CloseReason::Stopping);
            }
            Phase::Live => {
                // 13.4. Not at once, or a client whose connection is refused then asks in a loop.
                let usual_ms = self.io.conns.settings.stream_retry_ms;
                let spread_ms = self.sessions.admission().spread_ms(drain_ms.max(usual_ms.into()));
                let retry_ms = u64::from(usual_ms / 2) + spread_ms;
                // A held session goes on behind what it was replayed last, as its client knows.
                let cursor = if buffered { b"" } else { self.io.link.cursor() };
                let mut out = Vec::new();
                transport.last_words(&mut out, cursor, retry_ms);
                self.sessions.writer(&mut self.io).push(index, out.into());
                self.sessions.close_gently(&mut self.io, index, "stopping", CloseReason::Stopping);
            }
            Phase::Free
            | Phase::Proxy
            | Phase::Handshake
            | Phase::Http
            | Phase::Closing
            | Phase::Left => {
                return false;
            }
        }
        true
    }

    fn nobody_waits(&self) -> bool {
        self.io.conns.stats.get(Stat::RequestsInFlight) == 0 && self.io.conns.table.pending() == 0
    }

    /// What is left are connections for requests.
    fn close_rest(&mut self) {
        self.acceptor.close(true);
        for index in 0..self.io.conns.table.slots() {
            let phase = self.io.conns.slot(index).map_or(Phase::Free, |slot| slot.phase());
            if matches!(phase, Phase::Proxy | Phase::Handshake | Phase::Http) {
                self.close_gently(index, "stopping", CloseReason::Stopping);
            }
        }
    }

    /// Says goodbye as a connection's phase has it, then closes.
    pub(crate) fn close_gently(&mut self, index: u32, text: &str, reason: CloseReason) {
        let (io, sessions) = (&mut self.io, &mut self.sessions);
        match io.conns.phase(index) {
            Phase::Http if exchange_of(&mut io.conns, index).is_some_and(|e| e.is_in_flight()) => {
                self.http.refuse(io, sessions, index, &NO_BRAIN);
            }
            Phase::Http | Phase::Handshake | Phase::Proxy => sessions.end(io, index, reason),
            _ => sessions.close_gently(io, index, text, reason),
        }
    }
}
