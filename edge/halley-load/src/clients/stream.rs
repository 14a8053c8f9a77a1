//! Reads a stream of events, whatever its transport, as cheaply as it can be done.
//!
//! Purpose: bytes in, items out ([`Item`]): that the welcome came, that an event came and which
//! time it was stamped with, the cursor behind it, a gap, that a ping wants its pong. No I/O, no
//! clock.
//!
//! Protocol, per transport (the outside contract, "Client side"):
//!
//! | transport | framing | welcome | event |
//! | --- | --- | --- | --- |
//! | SSE | lines in chunks | `: welcome` | a `data:` line |
//! | NDJSON | lines in chunks | the response's head | a line that isn't empty |
//! | WebSocket | frames (RFC 6455) | the response's head | a text or binary message |
//! | `/test/<user>` | chunks | the first chunk | every other that isn't blank |
//!
//! What the JSON texts say is [`super::event`]'s. In SSE an `id:` counts from the empty line behind
//! it (HTML standard, 9.2.6); a refusal's `Retry-After` and a stream's `retry:` are the same item.
//!
//! Invariants: a stream that stands between two events holds no memory but its [`Stream`] of two
//! words. What is incomplete is kept in it and put before the next bytes by [`Stream::lend`], so
//! the decoder always works on one piece of one shared buffer.
//!
//! It shares no code with the edge's encoder on purpose: a mistake there shall show here.

use memchr::memchr;

use super::event::{self, Event, Message};
use super::framing::{chunk, frame_header};

/// The head of a response may have this many headers.
const HEADERS_MAX: usize = 64;

/// How events are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// `GET /v1/stream`, `text/event-stream`
    Sse,
    /// `GET /v1/stream`, `application/x-ndjson`
    Ndjson,
    /// `GET /v1/ws`
    Ws,
    /// `GET /test/<user>`
    Test,
}

/// What a stream brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// The server has a session for this stream: events flow from here on.
    Welcome,
    /// An event.
    Event(Event<'a>),
    /// All that came before is behind this cursor.
    Cursor(&'a [u8]),
    /// The server says that events are missing here.
    Gap,
    /// The server says when to come back after a loss, in milliseconds.
    Retry(u32),
    /// The server admits nobody more at the moment and ends the stream.
    Busy,
    /// A WebSocket ping and what the pong must carry.
    Ping(&'a [u8]),
}

/// Why a stream can't be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamError {
    /// The server answered with another status.
    Refused(u16),
    /// The server ended the stream in order.
    Ended,
    /// The server broke the transport's rules.
    Malformed(&'static str),
}

/// What the bytes at hand are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Head,
    Chunks,
    /// A body without chunks, until the connection closes.
    Plain,
    Frames,
}

/// One stream's state.
#[derive(Debug)]
pub struct Stream {
    stage: Stage,
    welcomed: bool,
    held: Option<Box<Held>>,
}

/// What is incomplete.
#[derive(Debug, Default)]
struct Held {
    /// Undecoded: part of a head, a chunk or a frame.
    raw: Vec<u8>,
    /// Decoded: part of a line or of a fragmented message.
    part: Vec<u8>,
    /// An `id:` whose empty line hasn't come.
    id: Vec<u8>,
}

impl Stream {
    /// A stream whose response hasn't begun.
    #[must_use]
    pub fn new() -> Self {
        Self { stage: Stage::Head, welcomed: false, held: None }
    }

    /// Puts what is held undecoded at the start of `buffer` and returns its length: the next bytes
    /// are to be read behind it.
    ///
    /// # Errors
    /// If that leaves no room: something in the stream is longer than any buffer for it.
    pub fn lend(&mut self, buffer: &mut [u8]) -> Result<usize, StreamError> {
        let Some(held) = &mut self.held else { return Ok(0) };
        let length = held.raw.len();
        if length >= buffer.len() {
            return Err(StreamError::Malformed("a chunk or frame too long to read"));
        }
        buffer[..length].copy_from_slice(&held.raw);
        held.raw.clear();
        Ok(length)
    }

    /// Keeps what wasn't decoded, and no memory if there is nothing to keep.
    fn hold(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.held.get_or_insert_default().raw.extend_from_slice(rest);
        } else if self.held.as_ref().is_some_and(|held| held.part.is_empty() && held.id.is_empty())
        {
            self.held = None;
        }
    }

    fn has_part(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.part.is_empty())
    }

    /// Adds to the incomplete line or message; refuses to let it grow over `limit`.
    fn add_part(&mut self, bytes: &[u8], limit: usize) -> Result<(), StreamError> {
        let part = &mut self.held.get_or_insert_default().part;
        if part.len() + bytes.len() > limit {
            return Err(StreamError::Malformed("a line or message too long to read"));
        }
        part.extend_from_slice(bytes);
        Ok(())
    }

    fn take_part(&mut self) -> Vec<u8> {
        self.held.as_mut().map_or_else(Vec::new, |held| std::mem::take(&mut held.part))
    }

    /// Keeps an `id:` for the empty line, which may come with other bytes.
    fn keep_id(&mut self, id: &[u8]) {
        let kept = &mut self.held.get_or_insert_default().id;
        kept.clear();
        kept.extend_from_slice(&id[..id.len().min(event::CURSOR_BYTES_MAX + 1)]);
    }

    fn take_id(&mut self) -> Vec<u8> {
        self.held.as_mut().map_or_else(Vec::new, |held| std::mem::take(&mut held.id))
    }

    fn welcome(&mut self, sink: &mut impl FnMut(Item<'_>)) {
        if !self.welcomed {
            self.welcomed = true;
            sink(Item::Welcome);
        }
    }
}

/// Decodes the streams of one transport.
#[derive(Debug)]
pub struct Decoder {
    transport: Transport,
    cursors: bool,
    part_bytes_max: usize,
}

impl Decoder {
    /// A decoder that holds at most `part_bytes_max` of a line or message that came in pieces, and
    /// looks for the cursors of SSE only where somebody wants them.
    #[must_use]
    pub fn new(transport: Transport, cursors: bool, part_bytes_max: usize) -> Self {
        Self { transport, cursors, part_bytes_max }
    }

    /// Decodes `bytes`: what [`Stream::lend`] put there and what was read behind it.
    ///
    /// # Errors
    /// When the stream is at its end, for one reason or another.
    pub fn feed(
        &self,
        stream: &mut Stream,
        bytes: &[u8],
        sink: &mut impl FnMut(Item<'_>),
    ) -> Result<(), StreamError> {
        let mut rest = bytes;
        loop {
            let step = match stream.stage {
                Stage::Head => self.head(stream, rest, sink)?,
                Stage::Chunks => match chunk(rest)? {
                    Some(([], _)) => return Err(StreamError::Ended),
                    Some((payload, length)) => {
                        self.payload(stream, payload, sink)?;
                        Some(length)
                    }
                    None => None,
                },
                Stage::Plain if rest.is_empty() => None,
                Stage::Plain => {
                    self.payload(stream, rest, sink)?;
                    Some(rest.len())
                }
                Stage::Frames => self.frame(stream, rest, sink)?,
            };
            match step {
                Some(used) => rest = rest.get(used..).unwrap_or_default(),
                None => break,
            }
        }
        stream.hold(rest);
        Ok(())
    }

    /// Reads the response's head; returns its length once it is whole.
    fn head(
        &self,
        stream: &mut Stream,
        bytes: &[u8],
        sink: &mut impl FnMut(Item<'_>),
    ) -> Result<Option<usize>, StreamError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(StreamError::Malformed("not an HTTP/1.1 response")),
        };
        let header = |name: &str| {
            let found = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
            found.map(|h| h.value)
        };
        let status = response.code.unwrap_or(0);
        let wanted = if self.transport == Transport::Ws { 101 } else { 200 };
        if status != wanted {
            if let Some(seconds) = header("retry-after").and_then(event::digits) {
                sink(Item::Retry(seconds.saturating_mul(1000).try_into().unwrap_or(u32::MAX)));
            }
            return Err(StreamError::Refused(status));
        }
        stream.stage = if self.transport == Transport::Ws {
            if header("sec-websocket-accept") != Some(super::request::WS_ACCEPT.as_bytes()) {
                return Err(StreamError::Malformed("a wrong Sec-WebSocket-Accept"));
            }
            Stage::Frames
        } else if header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case(b"chunked")) {
            Stage::Chunks
        } else {
            Stage::Plain
        };
        if matches!(self.transport, Transport::Ws | Transport::Ndjson) {
            stream.welcome(sink);
        }
        Ok(Some(length))
    }

    /// The bytes of one chunk: lines, or for `/test/<user>` one event.
    fn payload(
        &self,
        stream: &mut Stream,
        payload: &[u8],
        sink: &mut impl FnMut(Item<'_>),
    ) -> Result<(), StreamError> {
        if self.transport == Transport::Test {
            if payload.iter().all(u8::is_ascii_whitespace) {
                return Ok(());
            }
            if stream.welcomed {
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
                stream.add_part(&rest[..end], self.part_bytes_max)?;
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
        if rest.is_empty() { Ok(()) } else { stream.add_part(rest, self.part_bytes_max) }
    }

    /// One line; `id` is that of the SSE event that the line belongs to.
    fn line<'a>(
        &self,
        stream: &mut Stream,
        line: &'a [u8],
        id: &mut Option<&'a [u8]>,
        sink: &mut impl FnMut(Item<'_>),
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

    /// Reads one frame (RFC 6455, 5.2); returns its length once it is whole.
    fn frame(
        &self,
        stream: &mut Stream,
        bytes: &[u8],
        sink: &mut impl FnMut(Item<'_>),
    ) -> Result<Option<usize>, StreamError> {
        let Some((header, length)) = frame_header(bytes)? else { return Ok(None) };
        let Some(payload) = bytes.get(header..).and_then(|rest| rest.get(..length)) else {
            return Ok(None);
        };
        let last = bytes[0] & 0x80 != 0;
        match bytes[0] & 0x0f {
            0x0..=0x2 if last && !stream.has_part() => message(payload, sink),
            0x0..=0x2 => {
                stream.add_part(payload, self.part_bytes_max)?;
                if last {
                    message(&stream.take_part(), sink);
                }
            }
            0x8 => return Err(StreamError::Ended),
            0x9 => sink(Item::Ping(payload)),
            0xa => {}
            _ => return Err(StreamError::Malformed("an unknown WebSocket opcode")),
        }
        Ok(Some(header + length))
    }
}

/// One JSON text.
fn message(json: &[u8], sink: &mut impl FnMut(Item<'_>)) {
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
#[path = "stream_tests.rs"]
mod tests;
