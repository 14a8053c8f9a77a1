//! Admission (`protocol/http.md` 13.1, 13.2): how many streams and polls a second become sessions.
//!
//! After a fault everyone comes back at once. A stream that is admitted costs the brain a look-up
//! and perhaps a replay, so the worker lets them through at a pace, in their order, and tells those
//! who would wait too long when to come again. Sessions that are there already have no part in
//! this, nor has the sync with a new brain.
//!
//! Bound: `admission_per_s_max * admission_wait_ms_max` streams wait, each in phase Waiting; the
//! queue holds their ids, and at most as many of streams that have left.

use std::collections::VecDeque;
use std::rc::Rc;

use halley_link::CloseReason;
use halley_wire::http1::response::ResponseOptions;
use halley_wire::sse;

use crate::conns::table::Phase;
use crate::conns::table::wheel::TICK_MS;
use crate::sessions::detail::Detail;
use crate::sessions::stream::StreamError;
use crate::stats::Stat;
use crate::transport::Transport;
use crate::worker::Worker;

/// What may pass at once after a quiet time: as much as comes together between two looks of an idle
/// worker.
const BURST_MS: u64 = TICK_MS;
/// A token, in the unit in which they are counted.
const TOKEN: u64 = 1_000;
/// Who is told to come back is not told to come sooner.
const RETRY_MS_MIN: u64 = 1_000;

/// The worker's gate: a token bucket, and who waits for a token.
#[derive(Default)]
pub struct Admission {
    tokens: u64,
    filled_ms: u64,
    /// Connection ids; one whose stream has left is skipped.
    waiting: VecDeque<u64>,
}

impl Admission {
    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.waiting.shrink_to(2 * self.waiting.len());
    }

    /// Takes a token, if there is one by now.
    fn take(&mut self, now_ms: u64, per_s: u32) -> bool {
        let per_s = u64::from(per_s);
        // A rate of n a second is n thousandths of a token in a millisecond.
        let added = now_ms.saturating_sub(self.filled_ms).saturating_mul(per_s);
        self.filled_ms = now_ms;
        self.tokens = self.tokens.saturating_add(added).min(TOKEN + per_s * BURST_MS);
        let some = self.tokens >= TOKEN;
        if some {
            self.tokens -= TOKEN;
        }
        some
    }
}

impl Worker {
    /// A stream, or a poll, asks for its session: it is in phase Waiting, with what it needs in its
    /// slot.
    pub(crate) fn admit(&mut self, index: u32) {
        self.stats.add(Stat::Waiting, 1);
        if self.stopping.is_some() {
            return self.busy(index, self.settings.stream_retry_ms.into());
        }
        let per_s = self.settings.admission_per_s_max;
        // Who waits already comes first, and is counted with this one.
        let waiting = self.stats.get(Stat::Waiting) - 1;
        if waiting == 0 && self.admission.take(self.now_ms, per_s) {
            return self.admitted(index);
        }
        let wait_ms = self.settings.admission_wait_ms_max;
        let most = u64::from(per_s).saturating_mul(wait_ms) / 1_000;
        if waiting >= most {
            // 13.2: they come back while those who wait have their turn.
            let need_ms = waiting.saturating_mul(1_000) / u64::from(per_s);
            return self.busy(index, need_ms);
        }
        if self.admission.waiting.len() as u64 >= 2 * most {
            self.forget_who_left();
        }
        let conn = self.table.conn(index);
        self.admission.waiting.push_back(conn);
        self.set_deadline(index, wait_ms + self.settings.stream_open_ms_max);
    }

    /// Lets those through whose turn it is.
    pub(crate) fn admit_waiting(&mut self) {
        while let Some(conn) = self.admission.waiting.front().copied() {
            let found = self.table.find(conn);
            if let Some((index, _)) = found.filter(|(_, slot)| slot.phase == Phase::Waiting) {
                if !self.admission.take(self.now_ms, self.settings.admission_per_s_max) {
                    return;
                }
                self.admitted(index);
            }
            self.admission.waiting.pop_front();
        }
    }

    fn forget_who_left(&mut self) {
        let table = &mut self.table;
        self.admission
            .waiting
            .retain(|conn| table.find(*conn).is_some_and(|(_, slot)| slot.phase == Phase::Waiting));
    }

    fn admitted(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        slot.phase = Phase::Opening;
        self.stats.sub(Stat::Waiting, 1);
        self.stats.add(Stat::Opening, 1);
        self.set_deadline(index, self.settings.stream_open_ms_max);
        self.announce_session(index);
    }

    /// Tells a stream to come back later, at random within `spread_ms`.
    pub(crate) fn busy(&mut self, index: u32, spread_ms: u64) {
        let retry_ms = RETRY_MS_MIN + self.random.up_to(spread_ms);
        self.stats.count(Stat::Busy);
        // Nothing may come before the head of the answer.
        self.strike(index);
        let Some(slot) = self.table.get(index) else { return };
        let transport = slot.transport;
        if !matches!(transport, Transport::SseChunked | Transport::SsePlain) {
            let retry_after_s = u16::try_from(retry_ms.div_ceil(1_000)).unwrap_or(u16::MAX);
            return self.refuse_stream(index, &StreamError { retry_after_s, ..BUSY });
        }
        let (date, origins) = (self.clock.date, Rc::clone(&self.settings.origins));
        if let Detail::Opening(opening) = self.table.take_detail(index) {
            let framing = transport.framing();
            let reply = opening.reply.last();
            let options: ResponseOptions<'_> = reply.options(&origins, date);
            let mut out = Vec::new();
            sse::head(&mut out, &options);
            sse::busy(&mut out, framing, retry_ms);
            self.push(index, out.into());
        }
        self.close_after_flush(index, CloseReason::Client);
    }
}

/// Answer to a stream that would wait for too long.
const BUSY: StreamError<'static> = StreamError {
    status: 503,
    retry_after_s: 1,
    code: "busy",
    message: "This edge has more streams to open than it may, or is about to stop: come back \
              as Retry-After says.",
};

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(admission: &mut Admission, now_ms: u64, per_s: u32) -> u64 {
        (0..1_000_000).take_while(|_| admission.take(now_ms, per_s)).count() as u64
    }

    /// http.md 13.1: "A worker admits at most `admission_per_s_max` streams and polls in a second."
    #[test]
    fn the_rate_is_kept_however_often_it_is_asked() {
        for per_s in [1, 3, 100, 10_000] {
            for step_ms in [1, 7, 64, 500, 5_000] {
                let mut admission = Admission::default();
                let spans =
                    (1..=60_000 / step_ms).map(|n| taken(&mut admission, n * step_ms, per_s));
                let all: u64 = spans.sum();
                let most = 60 * u64::from(per_s) + u64::from(per_s) * BURST_MS / TOKEN + 1;
                assert!(all <= most, "{all} at {per_s}/s every {step_ms} ms");
                if step_ms <= BURST_MS {
                    assert!(all * 100 >= 60 * u64::from(per_s) * 98, "{all} at {per_s}/s");
                }
            }
        }
    }

    /// After any rest no more than a burst passes at once.
    #[test]
    fn a_rest_is_not_saved_up() {
        let mut admission = Admission::default();
        assert_eq!(taken(&mut admission, 3_600_000, 1_000), 65);
        assert_eq!(taken(&mut admission, 3_600_001, 1_000), 1);
        assert_eq!(taken(&mut Admission::default(), 3_600_000, 2), 1);
    }
}
