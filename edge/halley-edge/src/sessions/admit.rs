//! Admission at work: a stream is admitted, waits, or is sent away for a while. `admission.rs` has
//! the pace and the queue.

use std::rc::Rc;

use halley_link::CloseReason;
use halley_wire::http1::response::ResponseOptions;
use halley_wire::sse;

use crate::conns::table::Phase;
use crate::sessions::Sessions;
use crate::sessions::base::detail::Detail;
use crate::sessions::base::errors::{
    BUSY_STREAMS, SESSION_LATE, STREAM_WITHOUT_BRAIN, StreamError,
};
use crate::sessions::base::groups;
use crate::sessions::base::io::Io;
use crate::stats::Stat;
use crate::transport::Transport;

/// The shortest time after which a client is told to come back.
const RETRY_MS_MIN: u64 = 1_000;

impl Sessions {
    /// A stream, or a poll, asks for its session: it is in phase Waiting, with what it needs in its
    /// slot.
    pub fn admit(&mut self, io: &mut Io, index: u32) {
        if self.stopping {
            let usual_ms = io.conns.settings.stream_retry_ms;
            return self.busy(io, index, usual_ms.into());
        }
        let per_s = io.conns.settings.admission_per_s_max;
        // Streams that wait already come first; the gauge counts this one, too.
        let waiting = io.conns.stats.get(Stat::Waiting) - 1;
        if waiting == 0 && self.admission.has_turn(io) {
            return self.admitted(io, index);
        }
        let wait_ms = io.conns.settings.admission_wait_ms_max;
        let most = u64::from(per_s).saturating_mul(wait_ms) / 1_000;
        if waiting >= most {
            // 13.2: they come back when those that wait now have been admitted.
            let need_ms = waiting.saturating_mul(1_000) / u64::from(per_s);
            return self.busy(io, index, need_ms);
        }
        if self.admission.len() as u64 >= 2 * most {
            self.admission.forget_who_left(&mut io.conns);
        }
        let conn = io.conns.table.conn(index);
        self.admission.wait(conn);
        io.conns.stats.add(Stat::BrainWaits, u64::from(!io.link.is_synced()));
        let ms = io.conns.settings.brain_away_ms_max;
        self.tokens.set_deadline(&mut io.conns, index, ms);
    }

    /// The deadline of a stream that waits, or of one that the brain opens, has come.
    pub fn opening_is_late(&mut self, io: &mut Io, index: u32) {
        let is_synced = io.link.is_synced();
        let waits = io.conns.is_in(index, Phase::Waiting);
        let since_ms = match io.conns.table.detail(index) {
            Some(Detail::Opening(opening)) => opening.since_ms,
            _ => 0,
        };
        let waited_ms = io.conns.clock.now_ms.saturating_sub(since_ms);
        if waits && is_synced {
            // 13.7: the brain is back, or there are many before this one, whose turn comes.
            let settings = &io.conns.settings;
            let most_ms = settings.brain_away_ms_max + settings.admission_wait_ms_max;
            if waited_ms < most_ms {
                return self.tokens.set_deadline(&mut io.conns, index, most_ms - waited_ms);
            }
        }
        if is_synced && !waits {
            return self.refuse_stream(io, index, &SESSION_LATE);
        }
        let spread_ms = io.conns.settings.admission_wait_ms_max;
        if is_synced {
            return self.busy(io, index, spread_ms);
        }
        io.conns.stats.count(Stat::BrainAway);
        self.send_away(io, index, spread_ms, &STREAM_WITHOUT_BRAIN);
    }

    /// The link has ended: a stream that the brain was to open waits for the next one.
    pub fn waits_for_brain(&mut self, io: &mut Io, index: u32) {
        let ms = io.conns.settings.brain_away_ms_max;
        self.tokens.set_deadline(&mut io.conns, index, ms);
    }

    /// Lets those through whose turn it is.
    pub fn admit_waiting(&mut self, io: &mut Io) {
        while let Some(conn) = self.admission.first() {
            let found = io.conns.find(conn);
            if let Some((index, _)) = found.filter(|(_, slot)| slot.phase() == Phase::Waiting) {
                if !self.admission.has_turn(io) {
                    return;
                }
                self.admitted(io, index);
            }
            self.admission.first_is_done();
        }
    }

    fn admitted(&mut self, io: &mut Io, index: u32) {
        io.conns.become_of(index, Phase::Opening);
        self.announce(io, index);
    }

    /// Tells a stream to come back later, at random within `spread_ms`.
    pub fn busy(&mut self, io: &mut Io, index: u32, spread_ms: u64) {
        io.conns.stats.count(Stat::Busy);
        self.send_away(io, index, spread_ms, &BUSY_STREAMS);
    }

    /// `Retry-After` of what is refused while all come at once: at random, as of streams.
    pub fn retry_after_s(&mut self, io: &Io) -> u32 {
        let retry_ms = RETRY_MS_MIN + self.random.up_to(io.conns.settings.admission_wait_ms_max);
        u32::try_from(retry_ms.div_ceil(1_000)).unwrap_or(u32::MAX)
    }

    fn send_away(&mut self, io: &mut Io, index: u32, spread_ms: u64, error: &StreamError<'_>) {
        let retry_ms = RETRY_MS_MIN + self.random.up_to(spread_ms);
        // Nothing may come before the head of the answer.
        groups::remove(io, index);
        let Some(slot) = io.conns.slot(index) else { return };
        let transport = slot.transport;
        if !matches!(transport, Transport::SseChunked | Transport::SsePlain) {
            let retry_after_s = u16::try_from(retry_ms.div_ceil(1_000)).unwrap_or(u16::MAX);
            return self.refuse_stream(io, index, &StreamError { retry_after_s, ..*error });
        }
        let (date, origins) = (io.conns.clock.date, Rc::clone(&io.conns.settings.origins));
        if let Detail::Opening(opening) = io.conns.table.take_detail(index) {
            let framing = transport.framing();
            let reply = opening.reply.last();
            let options: ResponseOptions<'_> = reply.options(&origins, date);
            let mut out = Vec::new();
            sse::head(&mut out, &options);
            sse::busy(&mut out, framing, retry_ms);
            self.writer(io).push(index, out.into());
        }
        self.close_after_flush(io, index, CloseReason::Client);
    }
}
