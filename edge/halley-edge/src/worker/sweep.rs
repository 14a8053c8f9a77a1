//! Time: deadlines, and the sweep that keeps silent streams open.
//!
//! The sweep walks over the table once in a third of a heartbeat, a few slots a tick, so no timer
//! belongs to a stream and a million of them are not woken at once. A stream is silent for two
//! thirds at most, and what is written then is acknowledged in another third (`listen.rs`) or the
//! client is gone. A WebSocket is asked by a ping in every second walk and looked at in the next.
//!
//! A million streams' heartbeats are tens of thousands of writes a second, and they have time.
//! While any worker of the edge writes a group's event the walk rests, a tenth of a heartbeat at
//! most behind the clock, and then goes on at its pace: a faster one would leave a WebSocket's
//! client less time for its answer. Who is about to get such an event needs no heartbeat.
//!
//! What an edge was held up for (a machine that slept, a debugger) is no time for a client's answer
//! either: it may lie in the socket, unread. So the walk goes on where it was, and a poll that the
//! stop interrupted is asked again before anything is called late.

use halley_link::CloseReason;
use halley_wire::HttpError;

use crate::conns::table::wheel::{Mark, TICK_MS};
use crate::conns::table::{Phase, flag};
use crate::sessions::detail::Detail;
use crate::sessions::stream::StreamError;
use crate::settings::WALKS;
use crate::stats::Stat;
use crate::worker::Worker;

/// Of a heartbeat the part for which a walk may rest.
const RESTS: u64 = 10;
/// Of a walk the part that one round may make up for.
const CATCHES_UP: u64 = 4;

const HEAD_LATE: HttpError = HttpError::new(
    408,
    "request_timeout",
    "The request took longer to arrive than limits.request_ms_max allows.",
);
/// Answer to what the brain takes too long for.
pub const ANSWER_LATE: HttpError = HttpError::new(
    504,
    "response_timeout",
    "The brain took longer to answer than limits.response_ms_max allows.",
);
/// Answer to a stream that can't have its session here and now.
pub const SESSION_LATE: StreamError<'static> = StreamError {
    status: 503,
    retry_after_s: 1,
    code: "brain_away",
    message: "The brain behind this edge is away for a moment: open the stream again.",
};

/// The tick up to which the walk goes now, when it went up to `swept` and so many ticks have passed
/// since it was last asked; it may `rest` for so many behind the present one.
fn upto(tick: u64, passed: u64, swept: u64, rest: Option<u64>) -> u64 {
    match rest {
        Some(ticks) => tick.saturating_sub(ticks),
        None => tick.min(swept + passed),
    }
}

/// Of the ticks since the last round, those that the walk leaves out: the worker was held up.
fn held_up(passed: u64, ticks_of_a_sweep: u64) -> u64 {
    passed.saturating_sub((ticks_of_a_sweep / CATCHES_UP).max(1))
}

/// The walk over the table: where it is, and what it asks. It knows ticks and slots by their
/// number, no connection.
pub struct Sweep {
    /// The next slot.
    next: u32,
    /// Ticks that were walked.
    swept: u64,
    /// The tick at which the walk was last thought of.
    ticked: u64,
    /// Does this walk send pings?
    asks: bool,
    /// The link's cursor at the beginning of the last walk that sent pings.
    asked_cursor: Vec<u8>,
    /// Did it move until this walk?
    cursor_moved: bool,
}

impl Sweep {
    /// One that has walked nowhere.
    pub fn new() -> Sweep {
        Sweep {
            next: 0,
            swept: 0,
            ticked: 0,
            asks: true,
            asked_cursor: Vec::new(),
            cursor_moved: false,
        }
    }

    /// How many ticks' shares are due at this tick, where a walk over the table takes so many, and
    /// may `rest` for so many behind the present one.
    fn due(&mut self, tick: u64, ticks_of_a_sweep: u64, rest: Option<u64>) -> u64 {
        let passed = tick.saturating_sub(std::mem::replace(&mut self.ticked, tick));
        let held_up = held_up(passed, ticks_of_a_sweep);
        self.swept += held_up;
        let upto = upto(tick, passed - held_up, self.swept, rest);
        let due = upto.saturating_sub(self.swept);
        self.swept += due;
        due
    }

    /// The next slot of so many; `None` at the end of a walk: then [`Sweep::begin`].
    fn slot(&mut self, slots: u32) -> Option<u32> {
        let slot = Some(self.next).filter(|slot| *slot < slots)?;
        self.next += 1;
        Some(slot)
    }

    /// A walk begins, of which every second asks; the link is at this cursor.
    fn begin(&mut self, cursor: &[u8]) {
        self.next = 0;
        self.asks = !self.asks;
        if self.asks {
            // http.md 9.6, for all WebSockets at once: to remember it for each would cost memory.
            self.cursor_moved = self.asked_cursor != cursor;
            self.asked_cursor.clear();
            self.asked_cursor.extend_from_slice(cursor);
        }
    }
}

impl Worker {
    /// Gives a connection until so many milliseconds from now.
    pub(crate) fn set_deadline(&mut self, index: u32, ms: u64) {
        let ms = ms.min(self.session_ms(index));
        let tick = (self.now_ms + ms).div_ceil(TICK_MS);
        let Some(slot) = self.table.get(index) else { return };
        slot.deadline = u32::try_from(tick).unwrap_or(u32::MAX);
        if slot.look.is_none_or(|mark| self.wheel.tick(mark) > tick) {
            slot.look = Some(self.wheel.promise(tick, index));
        }
    }

    /// Does what is due, by the time up to which everybody has been heard.
    pub(crate) fn on_time(&mut self) {
        let tick = self.clock.heard_ms / TICK_MS;
        while let Some((mark, looks)) = self.wheel.due(tick) {
            for index in looks {
                self.look(index, mark, tick as u32);
            }
        }
        let rest = self.settings.stream_heartbeat_ms / RESTS / TICK_MS;
        let rest = self.shared.turns.any_taken().then_some(rest);
        for _ in 0..self.sweep.due(tick, self.ticks_of_a_sweep(), rest) {
            self.walk();
        }
        self.link_time();
    }

    fn look(&mut self, index: u32, mark: Mark, tick: u32) {
        let Some(slot) = self.table.get(index).filter(|slot| slot.look == Some(mark)) else {
            return;
        };
        slot.look = None;
        match slot.deadline {
            0 => {}
            late if late <= tick => self.late(index),
            later => slot.look = Some(self.wheel.promise(later.into(), index)),
        }
    }

    fn late(&mut self, index: u32) {
        if self.expired(index) {
            return;
        }
        let Some(slot) = self.table.get(index) else { return };
        let (phase, blocked) = (slot.phase, slot.has(flag::BLOCKED));
        let answers = matches!(phase, Phase::Http | Phase::Closing);
        if blocked && answers && self.exchange(index).is_none_or(|e| !e.in_flight) {
            return self.answer_is_late(index);
        }
        match (phase, self.table.detail(index)) {
            (Phase::Waiting | Phase::Opening, _) => self.refuse_stream(index, &SESSION_LATE),
            (Phase::Http, Some(Detail::Http(exchange))) => {
                if exchange.body_is_next() {
                    return self.body_is_late(index);
                }
                let error = if exchange.brain_is_next() { ANSWER_LATE } else { HEAD_LATE };
                self.refuse(index, &error);
            }
            (Phase::Handshake, _) => self.handshake_late(index),
            // An idle connection, or one whose client doesn't take its last bytes.
            (Phase::Http | Phase::Closing, _) => {
                self.stats.count(Stat::Timeouts);
                self.drop_connection(index, CloseReason::Client);
            }
            (Phase::Proxy, _) => self.bad_header(index),
            (Phase::Live, Some(Detail::Opening(_))) => self.answer_poll_soon(index),
            (Phase::Live, _) => {
                self.operation_may_be_late(index);
                self.look_at_outbox(index);
                self.watch_session(index);
            }
            (Phase::Free | Phase::Left, _) => {}
        }
    }

    /// The client doesn't take an answer.
    fn answer_is_late(&mut self, index: u32) {
        self.stats.count(Stat::SlowReaders);
        self.stats.count(Stat::Timeouts);
        self.drop_connection(index, CloseReason::Client);
    }

    fn ticks_of_a_sweep(&self) -> u64 {
        (self.settings.stream_heartbeat_ms / WALKS / TICK_MS).max(1)
    }

    /// Looks at one tick's share of the table.
    fn walk(&mut self) {
        let slots = self.table.slots();
        for _ in 0..u64::from(slots).div_ceil(self.ticks_of_a_sweep()) {
            let index = self.sweep.slot(slots).or_else(|| {
                self.sweep.begin(self.link.cursor());
                self.trim();
                self.sweep.slot(slots)
            });
            if let Some(index) = index {
                self.heartbeat(index);
            }
        }
    }

    fn heartbeat(&mut self, index: u32) {
        if self.table.get(index).is_none_or(|slot| slot.phase != Phase::Live) {
            return;
        }
        self.watch_session(index);
        let Some(slot) = self.table.get(index) else { return };
        let transport = slot.transport;
        // What waits for the end of the round is as good as written.
        let active = slot.clear(flag::ACTIVE) || slot.has(flag::DIRTY);
        let aside = slot.has(flag::ASIDE);
        if slot.has(flag::BLOCKED) {
            // Nothing reaches this client now, no question either: `outbox_ms_max` is its time.
            slot.clear(flag::PINGED);
            return;
        }
        if transport.is_websocket() {
            // Only an answer shows that a WebSocket's client is there, so it is asked though
            // events were written.
            if slot.has(flag::PINGED) && self.is_silent(index) {
                self.stats.count(Stat::Vanished);
                self.silent_websocket(index);
                return;
            }
            if !self.sweep.asks {
                return;
            }
            let slot = self.table.get(index).filter(|slot| slot.phase == Phase::Live);
            let Some(slot) = slot else { return };
            slot.set(flag::PINGED);
        } else if active || self.groups.is_under_way(index) {
            return;
        }
        let mut out = Vec::new();
        // 10.1: all up to here was put into the outbox before. A held session has another cursor.
        let unmoved = transport.is_websocket() && !self.sweep.cursor_moved;
        let cursor = if unmoved || aside { b"" } else { self.link.cursor() };
        transport.heartbeat(&mut out, cursor);
        if !out.is_empty() {
            self.stats.count(Stat::Heartbeats);
            self.push(index, out.into());
        }
    }

    /// Is a WebSocket's client that was asked still silent? Its answer may have come while this
    /// worker was held up, so that nobody has read it.
    fn is_silent(&mut self, index: u32) -> bool {
        self.on_readable(index);
        self.table.get(index).is_some_and(|slot| {
            slot.phase == Phase::Live && slot.has(flag::PINGED) && !slot.has(flag::UNREAD)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each slot once in a walk, and every second walk asks.
    #[test]
    fn a_walk_is_over_all_slots() {
        let mut sweep = Sweep::new();
        assert_eq!(sweep.slot(0), None);
        for walk in 0..4 {
            assert_eq!(sweep.asks, walk % 2 == 0);
            assert_eq!(
                (0..9).map_while(|_| sweep.slot(7)).collect::<Vec<_>>(),
                [0, 1, 2, 3, 4, 5, 6]
            );
            sweep.begin(b"c");
        }
        assert_eq!(sweep.slot(7), Some(0));
        assert_eq!(sweep.slot(7), Some(1), "a table that grows is walked on");
    }

    /// http.md 9.6: a cursor is told that has moved since the last pings.
    #[test]
    fn a_cursor_is_compared_with_that_of_the_last_pings() {
        let mut sweep = Sweep::new();
        let mut moved = Vec::new();
        for cursor in ["", "a", "b", "b", "c", "b"] {
            sweep.begin(cursor.as_bytes());
            moved.push((sweep.asks, sweep.cursor_moved));
        }
        let asked: Vec<bool> = moved.iter().filter(|walk| walk.0).map(|walk| walk.1).collect();
        assert_eq!(asked, [true, true, false]);
    }

    /// What is due is due once, however often it is asked.
    #[test]
    fn each_tick_is_due_once() {
        let mut sweep = Sweep::new();
        let due: Vec<u64> = [1, 1, 3, 3, 10, 200].map(|tick| sweep.due(tick, 40, None)).into();
        assert_eq!(due, [1, 0, 2, 0, 7, 10]);
        assert_eq!((sweep.due(220, 40, Some(50)), sweep.due(230, 40, None)), (0, 10));
    }

    #[test]
    fn a_walk_rests_and_goes_on_at_its_pace() {
        const REST: u64 = 46;
        let (mut swept, mut most) = (0, 0);
        for tick in 1..=300 {
            let resting = (100..200).contains(&tick);
            let before = swept;
            swept = swept.max(upto(tick, 1, swept, resting.then_some(REST)));
            assert!(swept <= tick && swept - before <= 1, "no burst at {tick}");
            assert_eq!(upto(tick, 0, swept, None), swept, "nor in the rounds of one tick");
            most = most.max(tick - swept);
            let behind = match tick {
                0..100 => 0,
                100..200 => (tick - 99).min(REST),
                _ => REST,
            };
            assert_eq!(tick - swept, behind, "at {tick}");
        }
        assert_eq!(most, REST);
    }

    #[test]
    fn a_stop_is_no_time_of_the_walk() {
        const SWEEP: u64 = 40;
        let (mut swept, mut tick, mut walked) = (0, 0, 0);
        for passed in [1, 10, 11, 9_000, 1, 3, 1] {
            tick += passed;
            let held_up = held_up(passed, SWEEP);
            swept += held_up;
            let upto = upto(tick, passed - held_up, swept, None);
            walked += upto - swept;
            swept = upto;
            assert_eq!(swept, tick, "what was left out isn't made up for later");
        }
        assert_eq!(walked, 1 + 10 + 10 + 10 + 1 + 3 + 1);
        assert_eq!(held_up(2, 3), 1, "a short walk goes on with each round");
    }
}
