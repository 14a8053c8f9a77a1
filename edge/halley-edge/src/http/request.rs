//! Which side answers a request: the edge itself (streams, preflights) or the brain (everything
//! else).
//!
//! A public client's request goes to the brain without its token. Under `/v1/me/` it goes with the
//! user that the edge verified (link.md 12.6, 12.9).

use std::borrow::Cow;

use halley_link::{FLAG_END, FLAG_EXPECT, Frame, Item, List, Pair};
use halley_wire::HttpError;
use halley_wire::http1::chunked::ChunkedDecoder;
use halley_wire::http1::cors;
use halley_wire::http1::head::{BodyFraming, Request, parse_request};
use halley_wire::http1::response::CONTINUE;
use halley_wire::target;

use crate::conns::table::flag;
use crate::http::read::body_came;
use crate::http::respond::{stream_methods, takes_form};
use crate::http::routes::{API_HEADERS, API_METHODS, ME_METHODS, PUBLIC_HEADERS, STATUS_STREAM};
use crate::http::state::Http;
use crate::limits::places::{Place, Whose};
use crate::limits::sketch::Key;
use crate::sessions::Sessions;
use crate::sessions::base::detail::{exchange_of, exchange_or_new};
use crate::sessions::base::errors::{BUSY, NO_BRAIN, no_place};
use crate::sessions::base::exchange::{Reply, Stage};
use crate::sessions::base::form::{FORMS_FULL, Form};
use crate::sessions::base::io::Io;
use crate::sessions::opening::wanted::is_by_message;
use crate::sessions::opening::{Opened, Stream};
use crate::sessions::users::identity::{FOREVER, Principal, TOKEN_PARAMETER};
use crate::stats::Stat;

/// Which stream a path of the public listener is.
fn stream_of_public(path: &str) -> Option<Stream> {
    match path {
        "/v1/stream" => Some(Stream::Events),
        "/v1/poll" => Some(Stream::Poll),
        "/v1/ws" => Some(Stream::WebSocket),
        _ => path.starts_with("/test/").then_some(Stream::Article),
    }
}

/// The same of the API listener. Everything but GET is the brain's to judge, which has the keys.
fn stream_of_api(path: &str, status: bool) -> Option<Stream> {
    (status && path == STATUS_STREAM).then_some(Stream::Status)
}

const WRONG_METHOD: HttpError = HttpError::new(
    405,
    "method_not_allowed",
    "Streams and polls are requested with GET, or with POST and a form; WebSockets with GET.",
);
pub(in crate::http) const BODY_NOT_ALLOWED: HttpError = HttpError::new(
    400,
    "body_not_allowed",
    "A GET request for a stream or a poll has no body: send its parameters in the address, or a \
     form with POST.",
);
/// Is the path one of what users do themselves, however it is written?
fn is_me(path: &str) -> bool {
    let mut segments = target::segments(path).map(Result::unwrap_or_default);
    segments.next().is_some_and(|first| first == "v1")
        && segments.next().is_some_and(|second| second == "me")
}

/// Appends the headers that travel on, as items; gives their number.
fn write_headers(
    items: &mut Vec<u8>,
    req: &Request<'_>,
    api: bool,
    principal: Option<&Principal<'_>>,
) -> u16 {
    let mut count = 0;
    for (name, value) in principal.into_iter().flat_map(headers_of) {
        Pair { name: name.as_bytes(), value }.write(items);
        count += 1;
    }
    for (name, value) in req.headers.end_to_end() {
        if let Some(name) = travels(name, api) {
            Pair { name: name.as_bytes(), value }.write(items);
            count += 1;
        }
    }
    count
}

/// The name with which a header travels on, if the brain reads it: others are work without a use.
fn travels(name: &str, api: bool) -> Option<&'static str> {
    let read = if api { API_HEADERS } else { PUBLIC_HEADERS };
    read.iter().find(|read| name.eq_ignore_ascii_case(read)).copied()
}

/// The target as it travels on.
fn target_of<'r>(req: &Request<'r>, api: bool) -> Cow<'r, str> {
    if api { target::with_path(req.target) } else { target::without(req.target, TOKEN_PARAMETER) }
}

/// Who asks, for the brain (link.md 12.6).
fn headers_of<'a>(principal: &'a Principal<'_>) -> [(&'static str, &'a [u8]); 2] {
    [("halley-user", principal.user.as_bytes()), ("halley-rights", principal.rights.as_bytes())]
}

impl Http {
    /// Answers a request, whose head is the beginning of `input`, or passes it on. Gives how many
    /// bytes of the body were used, `None` when the connection is no longer one for requests.
    pub fn request(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        req: &Request<'_>,
        input: &[u8],
    ) -> Option<usize> {
        let (head, body) = input.split_at_checked(req.head_bytes)?;
        let api = io.conns.slot(index)?.has(flag::API);
        let is_foreign = io.conns.is_foreign(req, api);
        let exchange = exchange_or_new(&mut io.conns, index)?;
        exchange.reply = Reply::to(req, is_foreign);
        exchange.answer_left = None;
        let (path, _) = target::split(req.target);
        let may_ask =
            may_ask(io, index, req, api).and_then(|()| io.conns.origin_may_change(req, is_foreign));
        if let Err(error) = may_ask {
            return self.local_error(io, sessions, index, req, &error);
        }
        if req.method == "OPTIONS" && req.header("access-control-request-method").is_some() {
            return self.preflight(io, sessions, index, req, api);
        }
        let status = req.method == "GET" && io.conns.settings.status_streams;
        let stream = if api { stream_of_api(path, status) } else { stream_of_public(path) };
        match (stream, req.method) {
            (None, _) => self.pass_on(io, sessions, index, req, api, body),
            (Some(Stream::WebSocket), "GET") if is_by_message(req.target) => {
                self.message_begins(io, sessions, index, req, head, body)
            }
            (Some(stream), "GET" | "HEAD") => self.stream_request(io, sessions, index, req, stream),
            (Some(_), "POST") if takes_form(path) => {
                self.form_begins(io, sessions, index, req, head, body)
            }
            (Some(_), "OPTIONS") => self.preflight(io, sessions, index, req, api),
            (Some(_), _) => self.local_error(io, sessions, index, req, &WRONG_METHOD),
        }
    }

    pub(in crate::http) fn stream_request(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        req: &Request<'_>,
        stream: Stream,
    ) -> Option<usize> {
        let opened = match req.body {
            BodyFraming::None => sessions.open(io, index, req, stream),
            _ => Err(BODY_NOT_ALLOWED),
        };
        match opened {
            // What comes behind the request is the next one.
            Ok(Opened::Session) if stream == Stream::Poll => Some(0),
            Ok(Opened::Session) => None,
            Ok(Opened::Answer(out)) => {
                self.answer(io, sessions, index, out);
                Some(0)
            }
            Err(error) => self.local_error(io, sessions, index, req, &error),
        }
    }

    /// A request whose parameters stand in its body.
    fn form_begins(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        req: &Request<'_>,
        head: &[u8],
        body: &[u8],
    ) -> Option<usize> {
        let form = match Form::of(req, head, &self.forms) {
            Ok(form) => form,
            Err(error) => return self.local_error(io, sessions, index, req, &error),
        };
        exchange_or_new(&mut io.conns, index)?.stage = Stage::Form(Box::new(form));
        let used = self.form_goes_on(io, sessions, index, body);
        // 3.3: not where there is no room for it, as that has its final response.
        if req.expect_continue && body.is_empty() && reads_form(io, index) {
            io.conns.push(index, CONTINUE.into());
        }
        used
    }

    /// More of such a body came, or its beginning. Gives how many bytes were used, `None` when the
    /// connection is no longer one for requests.
    pub fn form_goes_on(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        input: &[u8],
    ) -> Option<usize> {
        let exchange = exchange_or_new(&mut io.conns, index)?;
        let Stage::Form(mut form) = std::mem::take(&mut exchange.stage) else { return None };
        let read = form.read(input);
        if !matches!(read, Ok((_, false))) {
            io.conns.table.asked(index);
        }
        let (used, is_whole) = match read {
            Ok(read) => read,
            Err(error) => {
                drop(form);
                let error = if error == FORMS_FULL {
                    io.conns.stats.count(Stat::FormsFull);
                    error.after(sessions.admission().retry_after_s(io))
                } else {
                    error
                };
                self.refuse(io, sessions, index, &error);
                return None;
            }
        };
        if !is_whole {
            exchange_of(&mut io.conns, index)?.stage = Stage::Form(form);
            body_came(io, index, used);
            return Some(used);
        }
        let head = io.conns.settings.head;
        let Ok(Some(req)) = parse_request(&form.head, &head) else { return None };
        let (path, _) = target::split(req.target);
        let stream = stream_of_public(path)?;
        let more = match form.target(req.target) {
            // Nothing of the body is left.
            Ok(target) => {
                let req = Request { target: &target, body: BodyFraming::None, ..req };
                self.stream_request(io, sessions, index, &req, stream)
            }
            Err(error) => {
                let req = Request { body: BodyFraming::None, ..req };
                self.local_error(io, sessions, index, &req, &error)
            }
        };
        more.map(|_| used)
    }

    fn preflight(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        req: &Request<'_>,
        api: bool,
    ) -> Option<usize> {
        let methods = match target::split(req.target) {
            _ if api => API_METHODS,
            (path, _) if is_me(path) => ME_METHODS,
            (path, _) => stream_methods(path),
        };
        self.local(io, sessions, index, req, |out, options| cors::preflight(out, methods, options))
    }

    /// The principal of a request with its hash, if the brain needs it.
    fn principal_for_the_brain<'r>(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        req: &Request<'r>,
        api: bool,
    ) -> Result<Option<(Principal<'r>, Key)>, HttpError> {
        let (path, _) = target::split(req.target);
        if api || !is_me(path) {
            return Ok(None);
        }
        let principal = sessions.tokens().principal(&mut io.conns, req)?;
        let user = io.conns.table.limits.hasher.name(principal.user.as_bytes());
        io.conns.user_may_ask(user)?;
        Ok(Some((principal, user)))
    }

    /// The principal of a request to the brain, the number of headers that travel on, and the
    /// request's place, if there is a brain with room for it.
    fn may_pass_on<'r>(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        req: &Request<'r>,
        api: bool,
    ) -> Result<(Option<Principal<'r>>, u16, Place), HttpError> {
        let (principal, user) = self.principal_for_the_brain(io, sessions, req, api)?.unzip();
        if !io.link.is_up() {
            return Err(NO_BRAIN);
        }
        if !io.link_has_room() {
            return Err(BUSY);
        }
        self.items.clear();
        let count = write_headers(&mut self.items, req, api, principal.as_ref());
        let whose = if api { Whose::Server } else { io.conns.whose_request(index, req, user) };
        let place = io.conns.request_begins(whose).map_err(|full| no_place(&full))?;
        Ok((principal, count, place))
    }

    /// Passes a request on to the brain.
    fn pass_on(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        req: &Request<'_>,
        api: bool,
        body: &[u8],
    ) -> Option<usize> {
        let (principal, mut count, place) = match self.may_pass_on(io, sessions, index, req, api) {
            Ok(asked) => asked,
            Err(error) => return self.local_error(io, sessions, index, req, &error),
        };
        let mut items = std::mem::take(&mut self.items);
        let window = io.conns.settings.request_window_bytes;
        let whole = match req.body {
            BodyFraming::None => Some(0),
            BodyFraming::Length(n) if n <= body.len().min(window) as u64 => Some(n as usize),
            BodyFraming::Length(_) | BodyFraming::Chunked => None,
        };
        // 8.8: so the brain can refuse a body that it will not take before any of it came.
        if let (BodyFraming::Length(length), None) = (req.body, whole) {
            let value = length.to_string();
            Pair { name: b"halley-length", value: value.as_bytes() }.write(&mut items);
            count += 1;
        }
        let expects = whole.is_none() && req.expect_continue && body.is_empty();
        let until_s = principal.as_ref().map_or(FOREVER, |principal| principal.until_s);
        let target = target_of(req, api);
        let conn = io.conns.table.conn(index);
        io.link.send(&Frame::Request {
            conn,
            listener: if api { 2 } else { 1 },
            flags: if whole.is_some() { FLAG_END } else { 0 }
                | if expects { FLAG_EXPECT } else { 0 },
            method: req.method.as_bytes(),
            target: target.as_bytes(),
            headers: List::from_items(count, &items),
            body: &body[..whole.unwrap_or(0)],
        });
        self.items = items;
        io.conns.stats.count(Stat::PassedOn);
        let exchange = exchange_or_new(&mut io.conns, index)?;
        exchange.in_flight = Some(place);
        exchange.until_s = until_s;
        exchange.expects = expects;
        exchange.window = if expects { 0 } else { window };
        exchange.stage = match req.body {
            BodyFraming::Length(n) if whole.is_none() => Stage::Length(n),
            BodyFraming::Chunked => Stage::Chunked(ChunkedDecoder::new()),
            _ => Stage::Answer,
        };
        body_came(io, index, 0);
        Some(whole.unwrap_or(0))
    }
}

/// Is a form read on this connection, or the first message of a WebSocket, which isn't whole?
pub fn reads_form(io: &mut Io, index: u32) -> bool {
    exchange_of(&mut io.conns, index)
        .is_some_and(|e| matches!(e.stage, Stage::Form(_) | Stage::Message(_)))
}

/// The API's clients are known by their keys; there the brain counts.
fn may_ask(io: &mut Io, index: u32, req: &Request<'_>, api: bool) -> Result<(), HttpError> {
    if api { Ok(()) } else { io.conns.address_may_ask(index, req) }
}
