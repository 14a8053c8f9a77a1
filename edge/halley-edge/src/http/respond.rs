//! Writing answers: the edge's own and the brain's.

use std::rc::Rc;

use halley_link::{CloseReason, FLAG_CLOSE, FLAG_END, List, Pair};
use halley_wire::HttpError;
use halley_wire::http1::head::{BodyFraming, Request};
use halley_wire::http1::headers::{is_tchar, stays_at_edge};
use halley_wire::http1::response::{Head, ResponseOptions, http_error};

use crate::sessions::exchange::{Exchange, Stage};
use crate::sessions::who;
use crate::stats::Stat;
use crate::worker::Worker;

/// The `Retry-After` of an edge that waits for its brain.
const RETRY_AFTER_S: u32 = 1;
/// Methods of the paths that the edge answers itself.
pub const STREAM_METHODS: &str = "GET, HEAD, OPTIONS";

impl Worker {
    /// An answer of the edge's own to a request of which nothing has been passed on. The
    /// connection stays if the request has no body.
    pub(crate) fn local(
        &mut self,
        index: u32,
        req: &Request<'_>,
        write: impl FnOnce(&mut Vec<u8>, &ResponseOptions<'_>),
    ) -> Option<usize> {
        let (date, origins) = (self.clock.date, Rc::clone(&self.settings.origins));
        let exchange = self.exchange_or_new(index)?;
        exchange.reply.keep_alive &= req.body == BodyFraming::None;
        let keep_alive = exchange.reply.keep_alive;
        let mut out = Vec::new();
        write(&mut out, &exchange.reply.options(&origins, date));
        self.push(index, out.into());
        if keep_alive {
            self.finish(index);
            Some(0)
        } else {
            self.close_after_flush(index, CloseReason::Client);
            None
        }
    }

    /// An error of the edge's own, see [`Worker::local`].
    pub(crate) fn local_error(
        &mut self,
        index: u32,
        req: &Request<'_>,
        error: &HttpError,
    ) -> Option<usize> {
        self.count_error(error.status);
        let error = *error;
        let challenge = who::challenge(error.status, error.code, error.message);
        self.local(index, req, |out, options| {
            let challenge = challenge.as_deref();
            let retry_after_s = (error.status == 503).then_some(RETRY_AFTER_S);
            let allow = (error.status == 405).then_some(STREAM_METHODS);
            let options = ResponseOptions { retry_after_s, allow, challenge, ..*options };
            http_error(out, &error, &options);
        })
    }

    /// Answers what can't be read on with, and closes.
    pub(crate) fn refuse(&mut self, index: u32, error: &HttpError) {
        self.count_error(error.status);
        self.request_gone(index);
        let (date, origins) = (self.clock.date, Rc::clone(&self.settings.origins));
        let begun = self.exchange(index).is_some_and(|e| e.answer_left.is_some());
        if !begun {
            let reply =
                self.exchange(index).map(|e| std::mem::take(&mut e.reply)).unwrap_or_default();
            let reply = reply.last();
            let retry_after_s = (error.status == 503).then_some(RETRY_AFTER_S);
            let challenge = who::challenge(error.status, error.code, error.message);
            let challenge = challenge.as_deref();
            let options =
                ResponseOptions { retry_after_s, challenge, ..reply.options(&origins, date) };
            let mut out = Vec::new();
            http_error(&mut out, error, &options);
            self.push(index, out.into());
        }
        self.close_after_flush(index, CloseReason::Client);
    }

    /// Counts an error that the edge answers by itself.
    pub(crate) fn count_error(&mut self, status: u16) {
        match status {
            408 => self.stats.count(Stat::Timeouts),
            503 | 504 => self.stats.count(Stat::Unavailable),
            _ => self.stats.count(Stat::BadRequests),
        }
    }

    /// RESPONSE: the brain's answer, or its beginning.
    pub(crate) fn response(&mut self, conn: u64, answer: Answer<'_>) {
        let Some((index, _)) = self.table.find(conn) else { return };
        let Some(answer) = self.operation_answer(index, answer) else { return };
        let (date, origins) = (self.clock.date, Rc::clone(&self.settings.origins));
        let Some(exchange) =
            self.exchange(index).filter(|e| e.in_flight && e.answer_left.is_none())
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
        self.push(index, out.into());
        self.answered(index, answer.flags);
    }

    /// RESPONSE_BODY: more of an answer.
    pub(crate) fn response_body(&mut self, conn: u64, flags: u8, body: &[u8]) {
        let Some((index, _)) = self.table.find(conn) else { return };
        if self.operation_answer_body(index, flags, body) {
            return;
        }
        let Some(exchange) = self.exchange(index).filter(|e| e.in_flight) else { return };
        let Some(left) = exchange.answer_left else { return };
        let head_only = exchange.reply.head_only;
        match left.checked_sub(body.len() as u64) {
            Some(left) if flags & FLAG_END == 0 || left == 0 => exchange.answer_left = Some(left),
            // The head has promised another length: only a close can tell the client.
            _ => return self.drop_connection(index, CloseReason::Client),
        }
        if !head_only {
            self.push(index, body.into());
        }
        self.answered(index, flags);
    }

    fn answered(&mut self, index: u32, flags: u8) {
        // The connection may have gone in `push`, and its request with it.
        let Some(exchange) = self.exchange(index).filter(|e| e.in_flight) else { return };
        if flags & FLAG_END == 0 {
            self.set_deadline(index, self.settings.response_ms_max);
            return;
        }
        exchange.in_flight = false;
        self.stats.sub(Stat::RequestsInFlight, 1);
        let Some(exchange) = self.exchange(index) else { return };
        if exchange.reply.keep_alive {
            self.finish(index);
        } else {
            self.close_after_flush(index, CloseReason::Client);
        }
    }

    /// The answer is in the outbox: the connection is ready for the next request, and holds
    /// nothing if none has begun.
    pub(crate) fn finish(&mut self, index: u32) {
        let ms = self.answer_ms(index);
        self.set_deadline(index, ms);
        let Some(exchange) = self.exchange(index) else { return };
        // What is known of this request must not colour an error of the next one.
        let unparsed = std::mem::take(&mut exchange.unparsed);
        if unparsed.is_empty() {
            self.table.take_detail(index);
        } else {
            *exchange = Exchange { unparsed, ..Exchange::default() };
        }
    }

    /// REQUEST_CREDIT: the brain takes more of a body (8.3).
    pub(crate) fn request_credit(&mut self, conn: u64, bytes: u32) {
        let Some((index, _)) = self.table.find(conn) else { return };
        let most = self.settings.request_window_bytes;
        let Some(exchange) = self.exchange(index) else { return };
        exchange.window = exchange.window.saturating_add(bytes as usize).min(most);
        if std::mem::take(&mut exchange.expects) && exchange.answer_left.is_none() {
            self.push(index, halley_wire::http1::response::CONTINUE.into());
        }
        self.body_came(index, 0);
        self.resume_http(index);
    }
}

/// RESPONSE without its connection.
pub struct Answer<'a> {
    /// HTTP status.
    pub status: u16,
    /// END and CLOSE.
    pub flags: u8,
    /// Length of the whole body.
    pub body_bytes: u64,
    /// Headers by lower-case names.
    pub headers: List<'a, Pair<'a>>,
    /// The body or its beginning; not longer than `body_bytes` (8.4, checked by the codec).
    pub body: &'a [u8],
}
