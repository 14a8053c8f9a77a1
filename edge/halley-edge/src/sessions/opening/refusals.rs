//! The answer of a stream or a poll that doesn't get its session: it is taken out of its slot, for
//! the caller to write.

use std::rc::Rc;

use halley_wire::http1::response::{ResponseOptions, json_error};
use halley_wire::sse;

use crate::sessions::base::detail::Detail;
use crate::sessions::base::errors::StreamError;
use crate::sessions::base::groups;
use crate::sessions::base::io::Io;
use crate::sessions::base::refusal::of_websocket;
use crate::sessions::users::identity;
use crate::transport::Transport;

/// An HTTP error instead of its answer; nothing if it has no answer to wait for.
pub fn refusal(io: &mut Io, index: u32, error: &StreamError<'_>) -> Option<Vec<u8>> {
    io.conns.stats.count_error(error.status);
    // Nothing may come before the head of the answer.
    groups::remove(io, index);
    let (date, origins) = (io.conns.clock.date, Rc::clone(&io.conns.settings.origins));
    let Detail::Opening(opening) = io.conns.table.take_detail(index) else { return None };
    let reply = opening.reply.last();
    let retry_after_s = Some(error.retry_after_s.into()).filter(|s| *s > 0);
    if reply.is_websocket() {
        let StreamError { status, code, message, .. } = *error;
        return Some(of_websocket(status, code, message, retry_after_s));
    }
    let challenge = identity::challenge(error.status, error.code, error.message);
    let challenge = challenge.as_deref();
    let options = reply.options(&origins, date);
    let options = ResponseOptions { retry_after_s, challenge, ..options };
    let mut out = Vec::new();
    json_error(&mut out, error.status, error.code, error.message, &options);
    Some(out)
}

/// The same, where the client is to come back in `retry_ms`: server-sent events say so in a stream
/// that ends.
pub fn later(io: &mut Io, index: u32, retry_ms: u64, error: &StreamError<'_>) -> Option<Vec<u8>> {
    let transport = io.conns.slot(index)?.transport;
    if !matches!(transport, Transport::SseChunked | Transport::SsePlain) {
        let retry_after_s = u16::try_from(retry_ms.div_ceil(1_000)).unwrap_or(u16::MAX);
        return refusal(io, index, &StreamError { retry_after_s, ..*error });
    }
    groups::remove(io, index);
    let (date, origins) = (io.conns.clock.date, Rc::clone(&io.conns.settings.origins));
    let Detail::Opening(opening) = io.conns.table.take_detail(index) else { return None };
    let reply = opening.reply.last();
    let mut out = Vec::new();
    sse::head(&mut out, &reply.options(&origins, date));
    sse::busy(&mut out, transport.framing(), retry_ms);
    Some(out)
}
