//! Streams: from the request to the session, and what their clients send.
//!
//! The answer's head is made with the request and waits in [`Opening`] until the brain has the
//! session. Then comes the welcome, with the cursor that the brain gave: a client that has read it
//! misses nothing that is published from then on (6.2).

use std::rc::Rc;

use halley_link::CloseReason;
use halley_wire::HttpError;
use halley_wire::http1::body::Framing;
use halley_wire::http1::head::Request;
use halley_wire::http1::response::{ResponseOptions, json_error};
use halley_wire::websocket::handshake;
use halley_wire::{article, ndjson, sse, target};

use crate::conns::table::Phase;
use crate::sessions::Sessions;
use crate::sessions::base::detail::Detail;
use crate::sessions::base::errors::StreamError;
use crate::sessions::base::exchange::Reply;
use crate::sessions::base::groups;
use crate::sessions::base::io::Io;
use crate::sessions::base::opening::Opening;
use crate::sessions::request::cursor;
use crate::sessions::request::newest;
use crate::sessions::request::parameters;
use crate::sessions::request::status;
use crate::sessions::subscriptions;
use crate::sessions::users::identity::{self, Principal};
use crate::sessions::ws::compression;
use crate::stats::Stat;
use crate::transport::Transport;

/// What came of a request for a session.
pub enum Opened {
    /// The connection is the session's, once the brain has it.
    Session,
    /// There is none, only an answer (to HEAD).
    Answer(Vec<u8>),
}

/// What a request wants.
pub struct SessionRequest<'a> {
    /// How its events shall look.
    pub transport: Transport,
    /// Whose events.
    pub principal: &'a Principal<'a>,
    /// Behind what; empty for what comes from now on.
    pub cursor: &'a [u8],
    /// What it is subscribed to, packed.
    pub subjects: &'a [u8],
}

const NOT_ACCEPTABLE: HttpError = HttpError::new(
    406,
    "not_acceptable",
    "A stream comes as text/event-stream or as application/x-ndjson: accept one of them.",
);
const BRAIN_BUSY: HttpError = HttpError::new(
    503,
    "brain_busy",
    "The brain behind this edge is overloaded: open the stream again.",
);

impl Sessions {
    /// `GET /v1/stream`
    pub fn open_events(
        &mut self,
        io: &mut Io,
        index: u32,
        req: &Request<'_>,
    ) -> Result<Opened, HttpError> {
        parameters::check(req.target)?;
        let subjects = &subscriptions::target::of_target(req.target)?;
        let principal =
            &self.tokens.principal_of_session(&mut io.conns, req, !subjects.is_empty())?;
        let cursor = &newest::or_newest(io, req.target, cursor::of_request(req)?, subjects)?;
        if accepts(req, "application/x-ndjson") {
            let transport = Transport::ndjson(req.version);
            let wanted = SessionRequest { transport, principal, cursor, subjects };
            self.open_session(io, index, req, &wanted, ndjson::head)
        } else if req.header("accept").is_none()
            || accepts(req, "text/event-stream")
            || accepts(req, "*/*")
        {
            let transport = Transport::sse(req.version);
            let wanted = SessionRequest { transport, principal, cursor, subjects };
            self.open_session(io, index, req, &wanted, sse::head)
        } else {
            Err(NOT_ACCEPTABLE)
        }
    }

    /// `GET /v1/status/stream` at the API listener: a session without a user, whose server key the
    /// brain judges.
    pub fn open_status(
        &mut self,
        io: &mut Io,
        index: u32,
        req: &Request<'_>,
    ) -> Result<Opened, HttpError> {
        let subjects = &status::subjects();
        let cursor = &newest::or_newest(io, req.target, cursor::of_request(req)?, subjects)?;
        let principal = &status::principal(req);
        let transport = Transport::sse(req.version);
        let wanted = SessionRequest { transport, principal, cursor, subjects };
        self.open_session(io, index, req, &wanted, sse::head)
    }

    /// `GET /test/<user>`
    pub fn open_article(
        &mut self,
        io: &mut Io,
        index: u32,
        req: &Request<'_>,
    ) -> Result<Opened, HttpError> {
        let (path, _) = target::split(req.target);
        let encoded = path.strip_prefix("/test/").unwrap_or_default();
        let principal = &self
            .tokens
            .principal_by_path(&io.conns, target::decode(encoded, target::Plus::Literal)?)?;
        let transport = Transport::article(req.version);
        let framing = Framing::of(req.version);
        let path = path.to_owned();
        let wanted = SessionRequest { transport, principal, cursor: b"", subjects: b"" };
        self.open_session(io, index, req, &wanted, |out, options| {
            article::head(out, options);
            if !options.head_only {
                article::welcome(out, framing, &path, &principal.user);
            }
        })
    }

    /// `GET /v1/ws`
    pub fn open_websocket(
        &mut self,
        io: &mut Io,
        index: u32,
        req: &Request<'_>,
    ) -> Result<Opened, HttpError> {
        let accept = handshake::accept(req)?;
        io.conns.origin_may_enter(req, false)?;
        let protocol = handshake::protocol(req)?;
        parameters::check(req.target)?;
        let subjects = &subscriptions::target::of_target(req.target)?;
        // A visitor may say later what it wants to see.
        let principal = &self.tokens.principal_of_session(&mut io.conns, req, true)?;
        let cursor = newest::or_newest(io, req.target, cursor::of_target(req)?, subjects)?;
        let agreement = compression::agree(req, &io.conns.settings, &mut io.conns.stats);
        let transport = Transport::websocket(agreement);
        let wanted = SessionRequest { transport, principal, cursor: &cursor, subjects };
        let opened = self.open_session(io, index, req, &wanted, |out, options| {
            let agreed = handshake::Agreed { deflate: agreement, protocol };
            handshake::response_with(out, &accept, agreed, options);
        })?;
        io.conns.stats.add(Stat::DeflateAgreed, u64::from(agreement.is_some()));
        Ok(opened)
    }

    /// Asks for a session; `answer` writes what the client reads before the welcome.
    pub fn open_session(
        &mut self,
        io: &mut Io,
        index: u32,
        req: &Request<'_>,
        wanted: &SessionRequest<'_>,
        answer: impl FnOnce(&mut Vec<u8>, &ResponseOptions<'_>),
    ) -> Result<Opened, HttpError> {
        let SessionRequest { transport, principal, cursor, subjects } = *wanted;
        if !principal.is_nobody() {
            let user = io.conns.table.limits.hasher.name(principal.user.as_bytes());
            io.conns.user_may_ask(user)?;
        }
        io.conns.stream_may_open()?;
        subscriptions::target::may_have(io, subjects)?;
        // 4.6. Without a link the stream may wait for one; behind a full queue it would wait in it.
        if io.link.is_up() && !io.link_has_room() {
            return Err(BRAIN_BUSY);
        }
        if req.method == "HEAD" {
            let reply = Reply::to(req, io.conns.is_foreign(req, false));
            let mut out = Vec::new();
            answer(&mut out, &reply.options(&io.conns.settings.origins, io.conns.clock.date));
            return Ok(Opened::Answer(out));
        }
        io.conns.stream_comes_from(index, req)?;
        let reply = Reply::to(req, io.conns.is_foreign(req, false));
        let mut out = Vec::new();
        answer(&mut out, &reply.options(&io.conns.settings.origins, io.conns.clock.date));
        io.conns.become_of(index, Phase::Waiting);
        if let Some(slot) = io.conns.slot(index) {
            slot.transport = transport;
        }
        io.conns.table.set_user(index, principal.user.as_bytes());
        self.tokens.take(index, transport, principal);
        let judged = principal.is_nobody() || !subjects.is_empty();
        let rights = if judged { principal.rights.as_ref() } else { "" }.into();
        self.subscriptions.begin(io, index, subjects, &principal.rights);
        let since_ms = io.conns.clock.now_ms;
        let opening = Box::new(Opening { answer: out, reply, rights, since_ms, poll: None });
        io.conns.table.set_detail(index, Detail::Opening(opening));
        if !cursor.is_empty() {
            self.delivery.hold(&mut io.conns, index, cursor);
        }
        self.admit(io, index);
        Ok(Opened::Session)
    }

    /// The stream doesn't come about: an HTTP error instead of its answer.
    pub fn refuse_stream(&mut self, io: &mut Io, index: u32, error: &StreamError<'_>) {
        io.conns.stats.count_error(error.status);
        groups::remove(io, index);
        let (date, origins) = (io.conns.clock.date, Rc::clone(&io.conns.settings.origins));
        if let Detail::Opening(opening) = io.conns.table.take_detail(index) {
            let reply = opening.reply.last();
            let retry_after_s = Some(error.retry_after_s.into()).filter(|s| *s > 0);
            let challenge = identity::challenge(error.status, error.code, error.message);
            let challenge = challenge.as_deref();
            let options = reply.options(&origins, date);
            let options = ResponseOptions { retry_after_s, challenge, ..options };
            let mut out = Vec::new();
            json_error(&mut out, error.status, error.code, error.message, &options);
            self.writer(io).push(index, out.into());
        }
        // There is no session that could have ended for a reason of its own.
        self.close_after_flush(io, index, CloseReason::Client);
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
