//! Streams: from the request to the session, and what their clients send.
//!
//! The answer's head is made with the request and waits in [`Opening`] until the brain has the
//! session. Then comes the welcome, with the cursor that the brain gave: who reads it misses
//! nothing that is published from then on (6.2).

use std::rc::Rc;

use halley_link::CloseReason;
use halley_wire::HttpError;
use halley_wire::http1::body::Framing;
use halley_wire::http1::head::Request;
use halley_wire::http1::response::{ResponseOptions, json_error};
use halley_wire::websocket::handshake;
use halley_wire::{article, ndjson, sse, target};

use crate::conns::table::{Phase, flag};
use crate::http::read::READS_PER_TURN;
use crate::sessions::compression::{self, INFLATED_PER_TURN};
use crate::sessions::cursor;
use crate::sessions::detail::Detail;
use crate::sessions::exchange::Reply;
use crate::sessions::poll::Poll;
use crate::sessions::who::{self, Asker};
use crate::stats::Stat;
use crate::transport::Transport;
use crate::worker::Worker;

/// What a stream holds until its session is there, and a poll until it is answered.
pub struct Opening {
    answer: Vec<u8>,
    /// Of the request.
    pub reply: Reply,
    /// What the answer to a poll is going to be.
    pub poll: Option<Poll>,
}

/// What a request wants.
pub struct SessionRequest<'a> {
    /// How its events shall look.
    pub transport: Transport,
    /// Whose events.
    pub asker: &'a Asker<'a>,
    /// Behind what; empty for what comes from now on.
    pub cursor: &'a [u8],
}

const NOT_ACCEPTABLE: HttpError = HttpError::new(
    406,
    "not_acceptable",
    "A stream comes as text/event-stream or as application/x-ndjson: accept one of them.",
);
const BRAIN_BUSY: HttpError = HttpError::new(
    503,
    "brain_busy",
    "The brain behind this edge has more to do than it can at the moment: open the stream again.",
);

impl Worker {
    /// `GET /v1/stream`
    pub(crate) fn open_events(&mut self, index: u32, req: &Request<'_>) -> Result<(), HttpError> {
        let (asker, cursor) = (&self.asker(req)?, &cursor::of_request(req)?);
        if accepts(req, "application/x-ndjson") {
            let transport = Transport::ndjson(req.version);
            let wanted = SessionRequest { transport, asker, cursor };
            self.open_session(index, req, &wanted, ndjson::head)
        } else if req.header("accept").is_none()
            || accepts(req, "text/event-stream")
            || accepts(req, "*/*")
        {
            let transport = Transport::sse(req.version);
            let wanted = SessionRequest { transport, asker, cursor };
            self.open_session(index, req, &wanted, sse::head)
        } else {
            Err(NOT_ACCEPTABLE)
        }
    }

    /// `GET /test/<user>`
    pub(crate) fn open_article(&mut self, index: u32, req: &Request<'_>) -> Result<(), HttpError> {
        let (path, _) = target::split(req.target);
        let encoded = path.strip_prefix("/test/").unwrap_or_default();
        let asker = &self.asker_by_path(target::decode(encoded, target::Plus::Literal)?)?;
        let transport = Transport::article(req.version);
        let framing = Framing::of(req.version);
        let path = path.to_owned();
        let wanted = SessionRequest { transport, asker, cursor: b"" };
        self.open_session(index, req, &wanted, |out, options| {
            article::head(out, options);
            if !options.head_only {
                article::welcome(out, framing, &path, &asker.user);
            }
        })
    }

    /// `GET /v1/ws`
    pub(crate) fn open_websocket(
        &mut self,
        index: u32,
        req: &Request<'_>,
    ) -> Result<(), HttpError> {
        let accept = handshake::accept(req)?;
        self.origin_may_enter(req, false)?;
        let asker = &self.asker(req)?;
        let cursor = cursor::of_target(req)?;
        let agreement = self.agree(req);
        let transport = Transport::websocket(agreement);
        let wanted = SessionRequest { transport, asker, cursor: &cursor };
        self.open_session(index, req, &wanted, |out, options| {
            handshake::response_with(out, &accept, agreement, options);
        })?;
        self.stats.add(Stat::DeflateAgreed, u64::from(agreement.is_some()));
        Ok(())
    }

    /// Asks for a session; `answer` writes what the client reads before the welcome.
    pub(crate) fn open_session(
        &mut self,
        index: u32,
        req: &Request<'_>,
        wanted: &SessionRequest<'_>,
        answer: impl FnOnce(&mut Vec<u8>, &ResponseOptions<'_>),
    ) -> Result<(), HttpError> {
        let SessionRequest { transport, asker, cursor } = *wanted;
        self.user_may_ask(self.shared.doors.hasher.name(asker.user.as_bytes()))?;
        self.stream_may_open()?;
        // 4.6. Without a link the stream may wait for one; behind a full queue it would wait in it.
        if self.link.is_up() && !self.link_has_room() {
            return Err(BRAIN_BUSY);
        }
        if req.method == "HEAD" {
            self.local(index, req, answer);
            return Ok(());
        }
        self.stream_comes_from(index, req)?;
        let reply = Reply::to(req);
        let mut out = Vec::new();
        answer(&mut out, &reply.options(&self.settings.origins, self.clock.date));
        if let Some(slot) = self.table.get(index) {
            slot.phase = Phase::Waiting;
            slot.transport = transport;
        }
        self.table.set_user(index, asker.user.as_bytes());
        self.take_token(index, transport, asker);
        let opening = Box::new(Opening { answer: out, reply, poll: None });
        self.table.set_detail(index, Detail::Opening(opening));
        if !cursor.is_empty() {
            self.hold(index, cursor);
        }
        self.admit(index);
        Ok(())
    }

    /// The session is there: the client may know (6.2), and what it goes on behind.
    pub(crate) fn welcome(&mut self, index: u32, cursor: &[u8]) {
        let Some(slot) = self.table.get(index) else { return };
        // A poll says nothing before it has an answer, so it can wait for OPENED.
        if slot.phase != Phase::Opening || slot.transport == Transport::Poll {
            return;
        }
        let transport = slot.transport;
        let detail = self.table.take_detail(index);
        self.begin_session(index);
        if let Detail::Opening(opening) = detail {
            let mut out = opening.answer;
            let retry_ms = self.random.around(self.settings.stream_retry_ms);
            transport.welcome(&mut out, retry_ms, cursor);
            // Nothing comes before it.
            self.put(index, out.into());
        }
    }

    /// From Opening to Live.
    pub(crate) fn begin_session(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        slot.phase = Phase::Live;
        slot.deadline = 0;
        self.stats.sub(Stat::Opening, 1);
        self.stats.add(Stat::Sessions, 1);
        self.stats.count(Stat::Streams);
        self.watch_session(index);
    }

    /// The stream doesn't come about: an HTTP error instead of its answer.
    pub(crate) fn refuse_stream(&mut self, index: u32, error: &StreamError<'_>) {
        self.count_error(error.status);
        self.strike(index);
        let (date, origins) = (self.clock.date, Rc::clone(&self.settings.origins));
        if let Detail::Opening(opening) = self.table.take_detail(index) {
            let reply = opening.reply.last();
            let retry_after_s = Some(error.retry_after_s.into()).filter(|s| *s > 0);
            let challenge = who::challenge(error.status, error.code, error.message);
            let challenge = challenge.as_deref();
            let options = reply.options(&origins, date);
            let options = ResponseOptions { retry_after_s, challenge, ..options };
            let mut out = Vec::new();
            json_error(&mut out, error.status, error.code, error.message, &options);
            self.push(index, out.into());
        }
        // There is no session that could have ended for a reason of its own.
        self.close_after_flush(index, CloseReason::Client);
    }

    /// Reads what a stream's client sends: messages of a WebSocket, nothing of interest otherwise.
    pub(crate) fn stream_readable(&mut self, index: u32) {
        let inflated_max = self.compression.inflated() + INFLATED_PER_TURN;
        for _ in 0..READS_PER_TURN {
            let Some(slot) = self.table.get(index) else { return };
            if slot.transport == Transport::Poll {
                return self.poll_readable(index);
            }
            let (websocket, room) =
                (slot.transport.is_websocket(), compression::read_bytes(slot.transport));
            let early = matches!(slot.phase, Phase::Waiting | Phase::Opening);
            if websocket && (early || self.has_much_to_say(index)) {
                // Frames may come right behind the request; they wait in the socket for the
                // decoder. Later ones wait until the client has taken its answers.
                if let Some(slot) = self.table.get(index) {
                    slot.set(flag::UNREAD);
                }
                return;
            }
            let Some(slot) = self.table.get(index) else { return };
            if !matches!(slot.phase, Phase::Waiting | Phase::Opening | Phase::Live) {
                return;
            }
            let mut scratch = std::mem::take(&mut self.scratch);
            let read = self.read(index, &mut scratch, room);
            if let (Some(n), true) = (read, websocket) {
                self.messages(index, &mut scratch[..n]);
            }
            self.scratch = scratch;
            if read.is_none() {
                return;
            }
            if self.compression.inflated() > inflated_max {
                break;
            }
        }
        self.turn_is_over(index);
    }
}

/// Why a stream doesn't come about.
pub struct StreamError<'a> {
    /// HTTP status.
    pub status: u16,
    /// Seconds for `Retry-After`; 0 for none.
    pub retry_after_s: u16,
    /// The contract's code.
    pub code: &'a str,
    /// The contract's message.
    pub message: &'a str,
}

impl StreamError<'static> {
    /// Of an error that nobody has to wait for.
    pub fn of(error: &HttpError) -> StreamError<'static> {
        let HttpError { status, code, message, .. } = *error;
        StreamError { status, retry_after_s: 0, code, message }
    }
}

/// Does the request accept this media type by name?
fn accepts(req: &Request<'_>, media_type: &str) -> bool {
    req.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("accept")).any(|(_, value)| {
        value.split(|b| *b == b',').any(|range| {
            let range = range.split(|b| *b == b';').next().unwrap_or_default();
            range.trim_ascii().eq_ignore_ascii_case(media_type.as_bytes())
        })
    })
}
