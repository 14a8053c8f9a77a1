//! Admission at work: a stream is admitted, waits, or is sent away for a while. `admission.rs` has
//! the pace and the queue.

use std::rc::Rc;

use halley_link::CloseReason;
use halley_wire::http1::response::ResponseOptions;
use halley_wire::sse;

use crate::conns::table::Phase;
use crate::sessions::detail::Detail;
use crate::sessions::errors::StreamError;
use crate::sessions::state::{Io, Sessions};
use crate::stats::Stat;
use crate::transport::Transport;

/// The shortest time after which a client is told to come back.
const RETRY_MS_MIN: u64 = 1_000;

/// Answer to a stream that would wait for too long.
const BUSY: StreamError<'static> = StreamError {
    status: 503,
    retry_after_s: 1,
    code: "busy",
    message: "Too many streams are being opened, or this edge is about to stop: come back after \
              Retry-After.",
};

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
        if waiting == 0 && self.admission.take(io.conns.clock.now_ms, per_s) {
            return self.admitted(io, index);
        }
        let wait_ms = io.conns.settings.admission_wait_ms_max;
        let most = u64::from(per_s).saturating_mul(wait_ms) / 1_000;
        if waiting >= most {
            // 13.2: they come back when those that wait now have been admitted.
            let need_ms = waiting.saturating_mul(1_000) / u64::from(per_s);
            return self.busy(io, index, need_ms);
        }
        if self.admission.waiting.len() as u64 >= 2 * most {
            self.forget_who_left(io);
        }
        let conn = io.conns.table.conn(index);
        self.admission.waiting.push_back(conn);
        let ms = wait_ms + io.conns.settings.stream_open_ms_max;
        self.set_deadline(&mut io.conns, index, ms);
    }

    /// Lets those through whose turn it is.
    pub fn admit_waiting(&mut self, io: &mut Io) {
        while let Some(conn) = self.admission.waiting.front().copied() {
            let found = io.conns.find(conn);
            if let Some((index, _)) = found.filter(|(_, slot)| slot.phase() == Phase::Waiting) {
                if !self
                    .admission
                    .take(io.conns.clock.now_ms, io.conns.settings.admission_per_s_max)
                {
                    return;
                }
                self.admitted(io, index);
            }
            self.admission.waiting.pop_front();
        }
    }

    fn forget_who_left(&mut self, io: &mut Io) {
        let conns = &mut io.conns;
        let waits = |conn| conns.find(conn).is_some_and(|(_, slot)| slot.phase() == Phase::Waiting);
        self.admission.keep(waits);
    }

    fn admitted(&mut self, io: &mut Io, index: u32) {
        io.conns.become_of(index, Phase::Opening);
        let ms = io.conns.settings.stream_open_ms_max;
        self.set_deadline(&mut io.conns, index, ms);
        self.announce_session(io, index);
    }

    /// Tells a stream to come back later, at random within `spread_ms`.
    pub fn busy(&mut self, io: &mut Io, index: u32, spread_ms: u64) {
        let retry_ms = RETRY_MS_MIN + self.random.up_to(spread_ms);
        io.conns.stats.count(Stat::Busy);
        // Nothing may come before the head of the answer.
        self.remove_member(io, index);
        let Some(slot) = io.conns.slot(index) else { return };
        let transport = slot.transport;
        if !matches!(transport, Transport::SseChunked | Transport::SsePlain) {
            let retry_after_s = u16::try_from(retry_ms.div_ceil(1_000)).unwrap_or(u16::MAX);
            return self.refuse_stream(io, index, &StreamError { retry_after_s, ..BUSY });
        }
        let (date, origins) = (io.conns.clock.date, Rc::clone(&io.conns.settings.origins));
        if let Detail::Opening(opening) = io.conns.table.take_detail(index) {
            let framing = transport.framing();
            let reply = opening.reply.last();
            let options: ResponseOptions<'_> = reply.options(&origins, date);
            let mut out = Vec::new();
            sse::head(&mut out, &options);
            sse::busy(&mut out, framing, retry_ms);
            self.push(io, index, out.into());
        }
        self.close_after_flush(io, index, CloseReason::Client);
    }
}
