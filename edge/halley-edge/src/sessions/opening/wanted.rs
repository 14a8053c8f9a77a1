//! Requests for a session, read by their kind.

use halley_wire::HttpError;
use halley_wire::http1::body::Framing;
use halley_wire::http1::head::Request;
use halley_wire::http1::response::ResponseOptions;
use halley_wire::target as wire;
use halley_wire::websocket::extension::Agreement;
use halley_wire::websocket::handshake::{self, Agreed};

use crate::sessions::base::io::Io;
use crate::sessions::opening::Stream;
use crate::sessions::opening::head::Head;
use crate::sessions::request::cursor;
use crate::sessions::request::newest;
use crate::sessions::request::parameters;
use crate::sessions::request::status;
use crate::sessions::request::timeout;
use crate::sessions::subscriptions::target;
use crate::sessions::users::identity::Principal;
use crate::sessions::users::tokens::Tokens;
use crate::sessions::ws::compression;
use crate::transport::Transport;

/// How a WebSocket is opened.
const OPEN_PARAMETER: &str = "open";

const NOT_ACCEPTABLE: HttpError = HttpError::new(
    406,
    "not_acceptable",
    "A stream comes as text/event-stream or as application/x-ndjson: accept one of them.",
);

/// What a request wants.
pub struct Wanted<'r> {
    /// How its events shall look.
    pub transport: Transport,
    /// Whose events.
    pub principal: Principal<'r>,
    /// Behind what; empty for what comes from now on.
    pub cursor: Vec<u8>,
    /// What it is subscribed to, packed.
    pub subjects: Vec<u8>,
    /// What its client reads first.
    pub head: Head,
    /// Of a poll: until when its answer waits, by the worker's clock.
    pub until_ms: Option<u64>,
}

impl<'r> Wanted<'r> {
    /// Reads a request.
    ///
    /// # Errors
    /// What the client is answered.
    pub fn read(
        io: &mut Io,
        tokens: &Tokens,
        req: &Request<'r>,
        stream: Stream,
    ) -> Result<Wanted<'r>, HttpError> {
        match stream {
            Stream::Events => events(io, tokens, req),
            Stream::WebSocket => websocket(io, tokens, req),
            Stream::Message(deflate) => by_message(io, tokens, req, deflate),
            Stream::Article => article(io, tokens, req),
            Stream::Poll => poll(io, tokens, req),
            Stream::Status => status_of(io, req),
        }
    }
}

/// `GET /v1/stream`
fn events<'r>(io: &mut Io, tokens: &Tokens, req: &Request<'r>) -> Result<Wanted<'r>, HttpError> {
    parameters::check(req.target)?;
    let subjects = target::of_target(req.target)?;
    let principal = tokens.principal_of_session(&mut io.conns, req, !subjects.is_empty())?;
    let cursor = newest::or_newest(io, req.target, cursor::of_request(req)?, &subjects)?;
    let (transport, head) = if accepts(req, "application/x-ndjson") {
        (Transport::ndjson(req.version), Head::Ndjson)
    } else if req.header("accept").is_none()
        || accepts(req, "text/event-stream")
        || accepts(req, "*/*")
    {
        (Transport::sse(req.version), Head::Sse)
    } else {
        return Err(NOT_ACCEPTABLE);
    };
    Ok(Wanted { transport, principal, cursor, subjects, head, until_ms: None })
}

/// `GET /v1/status/stream` at the API listener: a session without a user, whose server key the
/// brain judges.
fn status_of<'r>(io: &mut Io, req: &Request<'r>) -> Result<Wanted<'r>, HttpError> {
    let subjects = status::subjects();
    let cursor = newest::or_newest(io, req.target, cursor::of_request(req)?, &subjects)?;
    let (principal, transport) = (status::principal(req), Transport::sse(req.version));
    Ok(Wanted { transport, principal, cursor, subjects, head: Head::Sse, until_ms: None })
}

/// `GET /test/<user>`
fn article<'r>(io: &mut Io, tokens: &Tokens, req: &Request<'r>) -> Result<Wanted<'r>, HttpError> {
    let (path, _) = wire::split(req.target);
    let encoded = path.strip_prefix("/test/").unwrap_or_default();
    let user = wire::decode(encoded, wire::Plus::Literal)?;
    let principal = tokens.principal_by_path(&io.conns, user)?;
    let head = Head::Article { path: path.to_owned(), framing: Framing::of(req.version) };
    let (transport, cursor, subjects) = (Transport::article(req.version), Vec::new(), Vec::new());
    Ok(Wanted { transport, principal, cursor, subjects, head, until_ms: None })
}

/// `GET /v1/ws`
fn websocket<'r>(io: &mut Io, tokens: &Tokens, req: &Request<'r>) -> Result<Wanted<'r>, HttpError> {
    let accept = handshake::accept(req)?;
    io.conns.origin_may_enter(req, false)?;
    let protocol = handshake::protocol(req)?;
    let wanted = talk(io, tokens, req)?;
    let deflate = compression::agree(req, &io.conns.settings, &mut io.conns.stats);
    let head = Head::WebSocket { accept, agreed: Agreed { deflate, protocol } };
    Ok(Wanted { transport: Transport::websocket(deflate), head, ..wanted })
}

/// What the target says of a WebSocket.
fn talk<'r>(io: &mut Io, tokens: &Tokens, req: &Request<'r>) -> Result<Wanted<'r>, HttpError> {
    parameters::check(req.target)?;
    let subjects = target::of_target(req.target)?;
    // A visitor may say later what it wants to see.
    let principal = tokens.principal_of_session(&mut io.conns, req, true)?;
    let cursor = cursor::of_target(req)?;
    let head = Head::Message { has_cursor: !cursor.is_empty() };
    let cursor = newest::or_newest(io, req.target, cursor, &subjects)?;
    let transport = Transport::WebSocket;
    Ok(Wanted { transport, principal, cursor, subjects, head, until_ms: None })
}

/// The upgrade of a WebSocket that is opened by its first message (28.3): its answer, and what was
/// agreed on about compression. Nothing is known yet of its user.
///
/// # Errors
/// What the client is answered.
pub fn upgrade(
    io: &mut Io,
    req: &Request<'_>,
    options: &ResponseOptions<'_>,
) -> Result<(Vec<u8>, Option<Agreement>), HttpError> {
    let accept = handshake::accept(req)?;
    io.conns.origin_may_enter(req, false)?;
    let protocol = handshake::protocol(req)?;
    io.conns.stream_may_open()?;
    let deflate = compression::agree(req, &io.conns.settings, &mut io.conns.stats);
    let mut out = Vec::new();
    handshake::response_with(&mut out, &accept, Agreed { deflate, protocol }, options);
    Ok((out, deflate))
}

/// Such a WebSocket, whose target has the message behind it.
fn by_message<'r>(
    io: &mut Io,
    tokens: &Tokens,
    req: &Request<'r>,
    deflate: Option<Agreement>,
) -> Result<Wanted<'r>, HttpError> {
    // A message that says how it is to be opened has that twice.
    wire::query_value(req.target, OPEN_PARAMETER)?;
    Ok(Wanted { transport: Transport::websocket(deflate), ..talk(io, tokens, req)? })
}

/// Is it opened by its first message?
pub fn is_by_message(target: &str) -> bool {
    matches!(wire::query_value(target, OPEN_PARAMETER), Ok(Some(how)) if how == "message")
}

/// `GET /v1/poll`
fn poll<'r>(io: &mut Io, tokens: &Tokens, req: &Request<'r>) -> Result<Wanted<'r>, HttpError> {
    parameters::check(req.target)?;
    let timeout_ms = timeout::of_target(req.target)?;
    let subjects = target::of_poll(req.target, timeout_ms > 0)?;
    let principal = tokens.principal_of_session(&mut io.conns, req, !subjects.is_empty())?;
    let until_ms = io.conns.clock.now_ms + timeout_ms.min(io.conns.settings.poll_ms_max);
    let cursor = newest::or_newest(io, req.target, cursor::of_target(req)?, &subjects)?;
    let (transport, head) = (Transport::Poll, Head::Poll);
    Ok(Wanted { transport, principal, cursor, subjects, head, until_ms: Some(until_ms) })
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
