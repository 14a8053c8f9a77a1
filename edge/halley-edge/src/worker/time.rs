//! Time at work: deadlines, and what the sweep does with a stream (`sweep.rs`).

use halley_link::CloseReason;
use halley_wire::HttpError;

use crate::conns::table::wheel::TICK_MS;
use crate::conns::table::{Phase, flag};
use crate::sessions::base::detail::{Detail, exchange_of};
use crate::sessions::base::errors::ANSWER_LATE;
use crate::sessions::ws::talk::ECHO;
use crate::settings::WALKS;
use crate::stats::Stat;
use crate::transport::Transport;
use crate::worker::silence::Look;
use crate::worker::state::Worker;
use crate::worker::sweep::share;

/// Of a heartbeat the part for which a walk may rest.
const RESTS: u64 = 10;

const HEAD_LATE: HttpError = HttpError::new(
    408,
    "request_timeout",
    "The request took longer to arrive than limits.request_ms_max allows.",
);

impl Worker {
    /// Does what is due, by the time up to which everybody has been heard.
    pub(crate) fn on_time(&mut self) {
        let tick = self.io.conns.clock.heard_ms / TICK_MS;
        while let Some((bucket, checks)) = self.io.conns.checks_due(tick) {
            for index in checks {
                if self.io.conns.is_late(index, bucket, tick as u32) {
                    self.late(index);
                }
            }
        }
        // A walk reads what it would miss by itself.
        let tick = self.io.conns.clock.polled_ms / TICK_MS;
        let rest = self.io.conns.settings.stream_heartbeat_ms / RESTS / TICK_MS;
        let rest = self.shared.permits.any_taken().then_some(rest);
        for tick in self.sweep.due(tick, self.ticks_of_a_sweep(), rest) {
            self.walk(tick);
        }
    }

    fn late(&mut self, index: u32) {
        if self.sessions.expired(&mut self.io, index) {
            return;
        }
        let Some(slot) = self.io.conns.slot(index) else { return };
        let (phase, blocked) = (slot.phase(), slot.has(flag::BLOCKED));
        // A stream's last words are no answer.
        let answers = match phase {
            Phase::Http => true,
            Phase::Closing => slot.ended.is_none() || slot.transport == Transport::Poll,
            _ => false,
        };
        if blocked
            && answers
            && exchange_of(&mut self.io.conns, index).is_none_or(|e| !e.is_in_flight())
        {
            return self.answer_is_late(index);
        }
        match (phase, self.io.conns.table.detail(index)) {
            (Phase::Waiting | Phase::Opening, _) => {
                self.sessions.opening_is_late(&mut self.io, index)
            }
            (Phase::Http, Some(Detail::Http(exchange))) => {
                if exchange.body_is_next() {
                    return self.http.body_is_late(&mut self.io, &mut self.sessions, index);
                }
                let error = if exchange.brain_is_next() { ANSWER_LATE } else { HEAD_LATE };
                self.http.refuse(&mut self.io, &mut self.sessions, index, &error);
            }
            (Phase::Handshake, _) => self.io.conns.handshake_late(index),
            // An idle connection, or one whose client doesn't take its last bytes.
            (Phase::Http | Phase::Closing, _) => {
                self.io.conns.stats.count(Stat::Timeouts);
                self.io.conns.doom(index, CloseReason::Client);
            }
            (Phase::Proxy, _) => self.io.conns.bad_header(index),
            (Phase::Live, Some(Detail::Opening(_))) => {
                self.sessions.writer(&mut self.io).answer_poll_soon(index)
            }
            (Phase::Live, _) => {
                self.sessions.talk(&mut self.io).may_be_late(index);
                self.io.conns.check_outbox(index);
                self.sessions.watch(&mut self.io, index);
            }
            (Phase::Free | Phase::Left, _) => {}
        }
    }

    /// The client doesn't take an answer.
    fn answer_is_late(&mut self, index: u32) {
        self.io.conns.stats.count(Stat::SlowReaders);
        self.io.conns.stats.count(Stat::Timeouts);
        self.io.conns.doom(index, CloseReason::Client);
    }

    fn ticks_of_a_sweep(&self) -> u64 {
        (self.io.conns.settings.stream_heartbeat_ms / WALKS / TICK_MS).max(1)
    }

    /// Looks at one tick's share of the table.
    fn walk(&mut self, tick: u64) {
        let slots = self.io.conns.table.slots();
        for _ in 0..share(slots.into(), self.ticks_of_a_sweep(), tick) {
            let index = self.sweep.slot(slots).or_else(|| {
                self.sweep.begin(self.io.link.cursor());
                self.silence.begin();
                self.trim();
                self.sweep.slot(slots)
            });
            if let Some(index) = index {
                self.heartbeat(index);
            }
        }
    }

    fn heartbeat(&mut self, index: u32) {
        if !self.io.conns.is_in(index, Phase::Live) {
            return;
        }
        self.sessions.watch(&mut self.io, index);
        let Some(slot) = self.io.conns.slot(index) else { return };
        let transport = slot.transport;
        // What waits for the end of the round is as good as written.
        let active = slot.clear(flag::ACTIVE) || slot.has(flag::DIRTY);
        let buffered = slot.has(flag::BUFFERED);
        if slot.has(flag::BLOCKED) {
            // Nothing reaches this client now, no question either: `outbox_ms_max` is its time.
            slot.clear(flag::PINGED);
            return;
        }
        if transport.is_websocket() {
            // Only an answer shows that a WebSocket's client is there, so it is asked though
            // events were written.
            let owes = slot.has(flag::PINGED) && self.is_silent(index);
            match owes.then(|| self.look(index)) {
                Some(Look::Gone) => {
                    self.io.conns.stats.count(Stat::Vanished);
                    let reason = CloseReason::Vanished;
                    return self.sessions.close_gently(&mut self.io, index, "no pong", reason);
                }
                Some(Look::Unasked) => {
                    self.io.conns.check_outbox(index);
                    return self.sessions.watch(&mut self.io, index);
                }
                // Asked again, for its room.
                Some(Look::Slow) => {}
                None if !self.sweep.asks() || ECHO => return,
                None => {}
            }
            if !self.io.conns.is_in(index, Phase::Live) {
                return;
            }
            if let Some(slot) = self.io.conns.slot(index) {
                slot.set(flag::PINGED);
            }
        } else if active || self.io.fan_out.is_in_flight(index) {
            return;
        }
        let mut out = Vec::new();
        // 10.1: all up to here was put into the outbox before. A held session has another cursor.
        let unmoved = transport.is_websocket() && !self.sweep.cursor_moved();
        let cursor = if unmoved || buffered { b"" } else { self.io.link.cursor() };
        transport.heartbeat(&mut out, cursor);
        if !out.is_empty() {
            self.io.conns.stats.count(Stat::Heartbeats);
            self.sessions.writer(&mut self.io).push(index, out.into());
        }
    }

    /// Does a WebSocket's client that owes an answer take what it is sent?
    fn look(&mut self, index: u32) -> Look {
        let conn = self.io.conns.table.conn(index);
        self.io.conns.progress(index).map_or(Look::Gone, |now| self.silence.look(conn, now))
    }

    /// Is a WebSocket's client that was asked still silent? Its answer may have come while this
    /// worker was held up, so that nobody has read it.
    fn is_silent(&mut self, index: u32) -> bool {
        self.on_readable(index);
        self.io.conns.is_in(index, Phase::Live)
            && self
                .io
                .conns
                .slot(index)
                .is_some_and(|slot| slot.has(flag::PINGED) && !slot.has(flag::UNREAD))
    }
}
