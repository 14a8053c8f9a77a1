//! Halley's own streams (the outside contract, "Client side").
//!
//! | transport | framing | welcome | event |
//! | --- | --- | --- | --- |
//! | SSE | lines in chunks | `: welcome` | a `data:` line |
//! | NDJSON | lines in chunks | the response's head | a line that isn't empty |
//! | WebSocket | frames (RFC 6455, 7692) | the response's head | a text or binary message |
//! | `/test/<user>` | chunks | the first chunk | every other that isn't blank |
//!
//! [`super::event`] reads the JSON texts. In SSE an `id:` counts from the empty line after it (HTML
//! standard, 9.2.6); a refusal's `Retry-After` and a stream's `retry:` are the same item.

use memchr::memchr;

use super::event::{self, Event, Message};
use super::framing::{DEFLATE, UPGRADE};
use super::protocol::{Framing, Protocol, Sink, Who};
use super::stream::{Item, Stream, StreamError};
use crate::target::push_encoded;

/// How events are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// `GET /v1/stream`, `text/event-stream`
    Sse,
    /// `GET /v1/stream`, `application/x-ndjson`
    Ndjson,
    /// `GET /v1/ws`
    Ws,
    /// The same with permessage-deflate
    WsDeflate,
    /// `GET /test/<user>`
    Test,
}

impl Transport {
    fn is_websocket(self) -> bool {
        matches!(self, Transport::Ws | Transport::WsDeflate)
    }
}

/// Streams of one transport.
#[derive(Debug)]
pub struct Halley {
    transport: Transport,
    cursors: bool,
    subjects: u32,
}

impl Halley {
    /// Streams of this transport; the cursors of SSE are looked for only where somebody wants them.
    #[must_use]
    pub fn new(transport: Transport, cursors: bool) -> Self {
        Self { transport, cursors, subjects: 0 }
    }

    /// Each session is subscribed to so many subjects: its channel, and others that the same users
    /// share.
    #[must_use]
    pub fn subscribed(self, subjects: u32) -> Self {
        Self { subjects, ..self }
    }

    /// One line; `id` is that of the SSE event that the line belongs to.
    fn line<'a>(
        &self,
        stream: &mut Stream,
        line: &'a [u8],
        id: &mut Option<&'a [u8]>,
        sink: Sink<'_>,
    ) {
        if self.transport != Transport::Sse {
            if !line.is_empty() && line != b"\r" {
                message(line, sink);
            }
            return;
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            message(data.trim_ascii_start(), sink);
        } else if line.is_empty() && self.cursors {
            let kept = stream.take_id();
            let id = id.take().unwrap_or(&kept);
            if !id.is_empty() {
                sink(Item::Cursor(id));
            }
        } else if let Some(value) = line.strip_prefix(b"id:") {
            *id = self.cursors.then_some(value.trim_ascii_start());
        } else if let Some(ms) = line.strip_prefix(b"retry:").and_then(event::digits) {
            sink(Item::Retry(ms.try_into().unwrap_or(u32::MAX)));
        } else if line.starts_with(b": welcome") {
            stream.welcome(sink);
        } else if line.starts_with(b": busy") {
            sink(Item::Busy);
        }
    }
}

impl Protocol for Halley {
    fn framing(&self) -> Framing {
        if self.transport.is_websocket() { Framing::Messages } else { Framing::Body }
    }

    fn is_deflate(&self) -> bool {
        self.transport == Transport::WsDeflate
    }

    /// With a cursor the stream goes on behind it, said in the way that is usual for the transport.
    fn push_request(&self, host: &str, who: &Who<'_>, out: &mut Vec<u8>) {
        let transport = self.transport;
        out.extend_from_slice(match transport {
            Transport::Sse | Transport::Ndjson => b"GET /v1/stream",
            Transport::Ws | Transport::WsDeflate => b"GET /v1/ws",
            Transport::Test => b"GET /test/",
        });
        // A user who has a token is named by it.
        if transport != Transport::Test && who.token.is_none() {
            out.extend_from_slice(b"?user=");
        }
        if transport == Transport::Test || who.token.is_none() {
            push_encoded(who.user, out);
        }
        // Cursors are of characters that a target can have (link.md 7.2).
        let in_target = transport == Transport::Ndjson || transport.is_websocket();
        let mut before = if who.token.is_none() { b'&' } else { b'?' };
        if let Some(cursor) = who.cursor.filter(|_| in_target) {
            out.push(before);
            out.extend_from_slice(b"cursor=");
            out.extend_from_slice(cursor);
            before = b'&';
        }
        for number in 0..self.subjects {
            out.push(before);
            out.extend_from_slice(b"subject=");
            push_encoded(who.channel, out);
            if number > 0 {
                out.extend_from_slice(format!("-{number}").as_bytes());
            }
            before = b'&';
        }
        out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        out.extend_from_slice(host.as_bytes());
        out.extend_from_slice(b"\r\n");
        if let Some(token) = who.token {
            out.extend_from_slice(b"Authorization: Bearer ");
            out.extend_from_slice(token.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        match transport {
            Transport::Sse => {
                out.extend_from_slice(b"Accept: text/event-stream\r\n");
                if let Some(cursor) = who.cursor {
                    out.extend_from_slice(b"Last-Event-ID: ");
                    out.extend_from_slice(cursor);
                    out.extend_from_slice(b"\r\n");
                }
            }
            Transport::Ndjson => out.extend_from_slice(b"Accept: application/x-ndjson\r\n"),
            Transport::Test => {}
            Transport::Ws | Transport::WsDeflate => {
                UPGRADE.iter().for_each(|text| out.extend_from_slice(text.as_bytes()));
                if self.is_deflate() {
                    out.extend_from_slice(DEFLATE.as_bytes());
                }
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn begin(&self, stream: &mut Stream, sink: Sink<'_>) {
        if self.transport == Transport::Ndjson || self.transport.is_websocket() {
            stream.welcome(sink);
        }
    }

    fn read(&self, stream: &mut Stream, payload: &[u8], sink: Sink<'_>) -> Result<(), StreamError> {
        if self.transport.is_websocket() {
            message(payload, sink);
            return Ok(());
        }
        if self.transport == Transport::Test {
            if payload.iter().all(u8::is_ascii_whitespace) {
                return Ok(());
            }
            if stream.is_welcomed() {
                sink(Item::Event(Event { json: payload }));
            }
            stream.welcome(sink);
            return Ok(());
        }
        let mut rest = payload;
        // An event's `id:` and its empty line are in one chunk as a rule: no copy then.
        let mut id = None;
        while let Some(end) = memchr(b'\n', rest) {
            if stream.has_part() {
                stream.add_part(&rest[..end])?;
                let line = stream.take_part();
                let mut part_id = id.take();
                self.line(stream, &line, &mut part_id, sink);
                if let Some(part_id) = part_id {
                    stream.keep_id(part_id);
                }
            } else {
                self.line(stream, &rest[..end], &mut id, sink);
            }
            rest = &rest[end + 1..];
        }
        if let Some(id) = id {
            stream.keep_id(id);
        }
        stream.add_part(rest)
    }
}

/// One JSON text.
fn message(json: &[u8], sink: Sink<'_>) {
    let (cursor, message) = event::read(json);
    match message {
        Message::Event(event) => sink(Item::Event(event)),
        Message::Gap => sink(Item::Gap),
        Message::Nothing => {}
    }
    if let Some(cursor) = cursor {
        sink(Item::Cursor(cursor));
    }
}

#[cfg(test)]
#[path = "halley_tests.rs"]
mod tests;
