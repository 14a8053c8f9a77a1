//! Requests for a session: each gets it, waits for it, or is sent away. `opening/` has what a
//! request wants, and when it has its turn.

use halley_link::CloseReason;
use halley_wire::HttpError;
use halley_wire::http1::head::Request;

use crate::conns::table::Phase;
use crate::sessions::Sessions;
use crate::sessions::base::errors::{
    BUSY_STREAMS, SESSION_LATE, STREAM_WITHOUT_BRAIN, StreamError,
};
use crate::sessions::base::io::Io;
use crate::sessions::opening::admission::{Late, Turn, late};
use crate::sessions::opening::wanted::Wanted;
use crate::sessions::opening::{Opened, Stream, enter, refusals};
use crate::sessions::poll;
use crate::stats::Stat;

impl Sessions {
    /// A request for a session, with GET or HEAD.
    ///
    /// # Errors
    /// What the client is answered.
    pub fn open(
        &mut self,
        io: &mut Io,
        index: u32,
        req: &Request<'_>,
        stream: Stream,
    ) -> Result<Opened, HttpError> {
        let wanted = Wanted::read(io, &self.tokens, req, stream)?;
        if let Some(answer) = enter(io, index, req, &wanted)? {
            return Ok(Opened::Answer(answer));
        }
        let Wanted { transport, principal, cursor, subjects, until_ms, .. } = wanted;
        self.tokens.take(index, transport, &principal);
        self.subscriptions.begin(io, index, &subjects, &principal.rights);
        if !cursor.is_empty() {
            self.delivery.hold(&mut io.conns, index, &cursor);
        }
        self.admit(io, index);
        if let Some(until_ms) = until_ms {
            poll::begins(&mut io.conns, index, until_ms);
        }
        Ok(Opened::Session)
    }

    /// A stream, or a poll, asks for its session: it is in phase Waiting, with what it needs in its
    /// slot.
    pub fn admit(&mut self, io: &mut Io, index: u32) {
        match self.admission.turn(io, index) {
            Turn::Now => self.admitted(io, index),
            Turn::Later => {
                let ms = io.conns.settings.brain_away_ms_max;
                self.tokens.set_deadline(&mut io.conns, index, ms);
            }
            Turn::Never(spread_ms) => self.busy(io, index, spread_ms),
        }
    }

    /// Lets those through whose turn it is.
    pub fn admit_waiting(&mut self, io: &mut Io) {
        while let Some(index) = self.admission.next(io) {
            self.admitted(io, index);
        }
    }

    fn admitted(&mut self, io: &mut Io, index: u32) {
        io.conns.become_of(index, Phase::Opening);
        self.announce(io, index);
    }

    /// The deadline of a stream that waits, or of one that the brain opens, has come.
    pub fn opening_is_late(&mut self, io: &mut Io, index: u32) {
        let spread_ms = io.conns.settings.admission_wait_ms_max;
        match late(io, index) {
            Late::Waits(ms) => self.tokens.set_deadline(&mut io.conns, index, ms),
            Late::Unopened => self.refuse_stream(io, index, &SESSION_LATE),
            Late::Busy => self.busy(io, index, spread_ms),
            Late::Brainless => {
                io.conns.stats.count(Stat::BrainAway);
                self.send_away(io, index, spread_ms, &STREAM_WITHOUT_BRAIN);
            }
        }
    }

    /// Tells a stream to come back later, at random within `spread_ms`.
    pub fn busy(&mut self, io: &mut Io, index: u32, spread_ms: u64) {
        io.conns.stats.count(Stat::Busy);
        self.send_away(io, index, spread_ms, &BUSY_STREAMS);
    }

    fn send_away(&mut self, io: &mut Io, index: u32, spread_ms: u64, error: &StreamError<'_>) {
        let retry_ms = self.admission.retry_ms(spread_ms);
        let answer = refusals::later(io, index, retry_ms, error);
        self.last_words(io, index, answer, CloseReason::Client);
    }

    /// The stream doesn't come about: an HTTP error instead of its answer. There is no session that
    /// could have ended for a reason of its own.
    pub fn refuse_stream(&mut self, io: &mut Io, index: u32, error: &StreamError<'_>) {
        let answer = refusals::refusal(io, index, error);
        self.last_words(io, index, answer, CloseReason::Client);
    }
}
