//! Writing answers: the edge's own and the brain's.

use std::rc::Rc;

use halley_link::{CloseReason, FLAG_CLOSE, FLAG_END, Pair};
use halley_wire::HttpError;
use halley_wire::http1::head::{BodyFraming, Request};
use halley_wire::http1::headers::{is_tchar, stays_at_edge};
use halley_wire::http1::response::{Head, ResponseOptions, http_error};
use halley_wire::target;

use crate::http::read::body_came;
use crate::http::state::Http;
use crate::sessions::Sessions;
use crate::sessions::base::answer::Answer;
use crate::sessions::base::detail::{exchange_of, exchange_or_new};
use crate::sessions::base::exchange::{Exchange, Stage};
use crate::sessions::base::io::Io;
use crate::sessions::base::refusal::of_websocket;
use crate::sessions::base::requests;
use crate::sessions::users::identity;

/// The `Retry-After` of an edge that waits for its brain.
const RETRY_AFTER_S: u32 = 1;
/// Methods of the paths that the edge answers itself.
const STREAM_METHODS: &str = "GET, HEAD, OPTIONS";
/// Of those that take a form as well.
const FORM_METHODS: &str = "GET, HEAD, POST, OPTIONS";

/// Methods of one of these paths.
pub fn stream_methods(path: &str) -> &'static str {
    if takes_form(path) { FORM_METHODS } else { STREAM_METHODS }
}

/// May the parameters of this path stand in a body (http.md 28.2)?
pub fn takes_form(path: &str) -> bool {
    matches!(path, "/v1/stream" | "/v1/poll")
}

impl Http {
    /// An answer of the edge's own to a request of which nothing has been passed on. The
    /// connection stays if the request has no body.
    pub fn local(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        req: &Request<'_>,
        write: impl FnOnce(&mut Vec<u8>, &ResponseOptions<'_>),
    ) -> Option<usize> {
        let (date, origins) = (io.conns.clock.date, Rc::clone(&io.conns.settings.origins));
        let exchange = exchange_or_new(&mut io.conns, index)?;
        exchange.reply.keep_alive &= req.body == BodyFraming::None;
        let keep_alive = exchange.reply.keep_alive;
        let mut out = Vec::new();
        write(&mut out, &exchange.reply.options(&origins, date));
        io.conns.push(index, out.into());
        if keep_alive {
            finish(io, index);
            Some(0)
        } else {
            sessions.close_after_flush(io, index, CloseReason::Client);
            None
        }
    }

    /// An answer of the edge's own that is written already.
    pub fn answer(&mut self, io: &mut Io, sessions: &mut Sessions, index: u32, out: Vec<u8>) {
        let Some(exchange) = exchange_or_new(&mut io.conns, index) else { return };
        let keep_alive = exchange.reply.keep_alive;
        io.conns.push(index, out.into());
        if keep_alive {
            finish(io, index);
        } else {
            sessions.close_after_flush(io, index, CloseReason::Client);
        }
    }

    /// An error of the edge's own, see [`Http::local`].
    pub fn local_error(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        req: &Request<'_>,
        error: &HttpError,
    ) -> Option<usize> {
        if exchange_of(&mut io.conns, index).is_some_and(|e| e.reply.is_websocket()) {
            self.refuse(io, sessions, index, error);
            return None;
        }
        io.conns.stats.count_error(error.status);
        let error = *error;
        let challenge = identity::challenge(error.status, error.code, error.message);
        self.local(io, sessions, index, req, |out, options| {
            let challenge = challenge.as_deref();
            let retry_after_s = (error.status == 503).then_some(RETRY_AFTER_S);
            let (path, _) = target::split(req.target);
            let allow = (error.status == 405).then_some(stream_methods(path));
            let options = ResponseOptions { retry_after_s, allow, challenge, ..*options };
            http_error(out, &error, &options);
        })
    }

    /// Answers what can't be read on with, and closes.
    pub fn refuse(&mut self, io: &mut Io, sessions: &mut Sessions, index: u32, error: &HttpError) {
        io.conns.stats.count_error(error.status);
        requests::gone(io, index);
        let (date, origins) = (io.conns.clock.date, Rc::clone(&io.conns.settings.origins));
        let begun = exchange_of(&mut io.conns, index).is_some_and(|e| e.answer_left.is_some());
        if !begun {
            let reply = exchange_of(&mut io.conns, index)
                .map(|e| std::mem::take(&mut e.reply))
                .unwrap_or_default();
            let reply = reply.last();
            let retry_after_s = (error.status == 503).then_some(RETRY_AFTER_S);
            let challenge = identity::challenge(error.status, error.code, error.message);
            let challenge = challenge.as_deref();
            let options =
                ResponseOptions { retry_after_s, challenge, ..reply.options(&origins, date) };
            let mut out = Vec::new();
            if reply.is_websocket() {
                let retry_after_s = error.retry_after_s.or(retry_after_s);
                out = of_websocket(error.status, error.code, error.message, retry_after_s);
            } else {
                http_error(&mut out, error, &options);
            }
            io.conns.push(index, out.into());
        }
        sessions.close_after_flush(io, index, CloseReason::Client);
    }

    /// RESPONSE: the brain's answer, or its beginning.
    pub fn response(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        conn: u64,
        answer: Answer<'_>,
    ) {
        let Some((index, _)) = io.conns.find(conn) else { return };
        let Some(answer) = sessions.talk(io).answer(index, answer) else { return };
        let (date, origins) = (io.conns.clock.date, Rc::clone(&io.conns.settings.origins));
        let Some(exchange) = exchange_of(&mut io.conns, index)
            .filter(|e| e.is_in_flight() && e.answer_left.is_none())
        else {
            return;
        };
        // 8.5: what is left of the body is not read, so the next request can't be found.
        let unread = !matches!(exchange.stage, Stage::Answer);
        exchange.reply.keep_alive &= !unread && answer.flags & FLAG_CLOSE == 0;
        exchange.stage = Stage::Answer;
        if unread {
            exchange.unparsed = Vec::new();
        }
        let bodyless = matches!(answer.status, 204 | 304);
        exchange.reply.head_only |= bodyless;
        exchange.answer_left = Some(answer.body_bytes - answer.body.len() as u64);
        let head_only = exchange.reply.head_only;
        let mut out = Vec::with_capacity(256 + answer.body.len());
        let mut head =
            Head::begin(&mut out, answer.status, &exchange.reply.options(&origins, date));
        for Pair { name, value } in answer.headers.iter() {
            if let Ok(name) = std::str::from_utf8(name) {
                let cors = name.starts_with("access-control-");
                if !stays_at_edge(name) && !cors && name.bytes().all(is_tchar) {
                    head.header(name, value);
                }
            }
        }
        if bodyless {
            head.bodyless();
        } else {
            head.length(answer.body_bytes);
        }
        if !head_only {
            out.extend_from_slice(answer.body);
        }
        io.conns.push(index, out.into());
        self.answered(io, sessions, index, answer.flags);
    }

    /// RESPONSE_BODY: more of an answer.
    pub fn response_body(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        conn: u64,
        flags: u8,
        body: &[u8],
    ) {
        let Some((index, _)) = io.conns.find(conn) else { return };
        if sessions.talk(io).answer_body(index, flags, body) {
            return;
        }
        let Some(exchange) = exchange_of(&mut io.conns, index).filter(|e| e.is_in_flight()) else {
            return;
        };
        let Some(left) = exchange.answer_left else { return };
        let head_only = exchange.reply.head_only;
        match left.checked_sub(body.len() as u64) {
            Some(left) if flags & FLAG_END == 0 || left == 0 => exchange.answer_left = Some(left),
            // The head has promised another length: only a close can tell the client.
            _ => return io.conns.doom(index, CloseReason::Client),
        }
        if head_only {
            // Nothing is written whose end would wake it, and the client may have asked again.
            io.conns.ready.push(index);
        } else {
            io.conns.push(index, body.into());
        }
        self.answered(io, sessions, index, flags);
    }

    fn answered(&mut self, io: &mut Io, sessions: &mut Sessions, index: u32, flags: u8) {
        // The connection may have gone in `push`, and its request with it.
        let Some(exchange) = exchange_of(&mut io.conns, index).filter(|e| e.is_in_flight()) else {
            return;
        };
        if flags & FLAG_END == 0 {
            let ms = io.conns.settings.response_ms_max;
            return io.conns.set_deadline(index, ms);
        }
        let place = exchange.in_flight.take();
        io.conns.request_is_over(place);
        let Some(exchange) = exchange_of(&mut io.conns, index) else { return };
        if exchange.reply.keep_alive {
            finish(io, index);
        } else {
            sessions.close_after_flush(io, index, CloseReason::Client);
        }
    }

    /// REQUEST_CREDIT: the brain takes more of a body (8.3).
    pub fn request_credit(&mut self, io: &mut Io, sessions: &mut Sessions, conn: u64, bytes: u32) {
        let Some((index, _)) = io.conns.find(conn) else { return };
        let most = io.conns.settings.request_window_bytes;
        let Some(exchange) = exchange_of(&mut io.conns, index) else { return };
        exchange.window = exchange.window.saturating_add(bytes as usize).min(most);
        if std::mem::take(&mut exchange.expects) && exchange.answer_left.is_none() {
            io.conns.push(index, halley_wire::http1::response::CONTINUE.into());
        }
        body_came(io, index, 0);
        self.resume_http(io, sessions, index);
    }
}

/// The answer is in the outbox: the connection is ready for the next request, and holds
/// nothing if none has begun.
pub fn finish(io: &mut Io, index: u32) {
    let ms = io.conns.answer_ms(index);
    io.conns.set_deadline(index, ms);
    let Some(exchange) = exchange_of(&mut io.conns, index) else { return };
    // What is known of this request must not colour an error of the next one.
    let unparsed = std::mem::take(&mut exchange.unparsed);
    if unparsed.is_empty() {
        io.conns.table.take_detail(index);
    } else {
        *exchange = Exchange { unparsed, ..Exchange::default() };
    }
}
