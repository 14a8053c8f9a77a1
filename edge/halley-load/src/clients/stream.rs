//! The framing of a stream of events, whatever is spoken inside, as cheaply as it can be read.
//!
//! Purpose: bytes in, items out ([`Item`]): that the welcome came, that an event came and which
//! time it was stamped with, its cursor, a gap, that a ping wants its pong. No I/O, no clock. Here
//! stands what all servers share: the head of a response, then chunks (RFC 9112, 7.1), a body
//! without any, or WebSocket frames (RFC 6455). A [`Protocol`] reads the inside.
//!
//! Invariants: a stream that stands between two events holds no memory but its [`Stream`] of two
//! words. Incomplete bytes are kept in it and put before the next bytes by [`Stream::lend`], so the
//! decoder always works on one piece of one shared buffer.
//!
//! It shares no code with the edge's encoder on purpose: a mistake there shall show here. What
//! inflates messages is the library that the edge compresses by.

use std::cell::RefCell;

use halley_wire::websocket::Inflater;
use memchr::memchr;

use super::event::{self, Event};
use super::framing::{RSV1, WS_ACCEPT, chunk, frame_header};
use super::protocol::{Framing, Prompt, Protocol, Sink};

/// The head of a response may have this many headers.
const HEADERS_MAX: usize = 64;
/// A line or message that comes in pieces: more than the largest event that a server sends by
/// default.
const PART_BYTES_MAX: usize = 256 * 1024;
/// What is kept of what a server says when it ends a stream.
const SAID_CHARS_MAX: usize = 200;

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
    /// The server waits for what [`Protocol::push_reply`] says.
    Prompt(Prompt),
}

/// Why a stream can't be read further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamError {
    /// The server answered with another status.
    Refused(u16),
    /// The server ended the stream in order.
    Ended,
    /// The server said why it ends the stream.
    Said(String),
    /// The server broke the transport's rules.
    Malformed(&'static str),
}

impl StreamError {
    /// The server's own words, as far as they are of use.
    #[must_use]
    pub fn said(what: &[u8]) -> Self {
        Self::Said(String::from_utf8_lossy(what).chars().take(SAID_CHARS_MAX).collect())
    }
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
    greeted: bool,
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
        Self { stage: Stage::Head, welcomed: false, greeted: false, held: None }
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

    /// Whether anything incomplete is held in memory.
    #[cfg(test)]
    pub fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Whether there is an incomplete line or message.
    #[must_use]
    pub fn has_part(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.part.is_empty())
    }

    /// Adds to the incomplete line or message.
    ///
    /// # Errors
    /// If it becomes longer than any should be.
    pub fn add_part(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let part = &mut self.held.get_or_insert_default().part;
        if part.len() + bytes.len() > PART_BYTES_MAX {
            return Err(StreamError::Malformed("a line or message too long to read"));
        }
        part.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes the incomplete line or message, to be completed.
    #[must_use]
    pub fn take_part(&mut self) -> Vec<u8> {
        self.held.as_mut().map_or_else(Vec::new, |held| std::mem::take(&mut held.part))
    }

    /// Calls `line` with each line that has come to its end, the part before it included, and keeps
    /// what is left.
    ///
    /// # Errors
    /// Those of [`Stream::add_part`].
    pub fn lines(
        &mut self,
        piece: &[u8],
        mut line: impl FnMut(&mut Self, &[u8]),
    ) -> Result<(), StreamError> {
        let mut rest = piece;
        while let Some(end) = memchr(b'\n', rest) {
            if self.has_part() {
                self.add_part(&rest[..end])?;
                let part = self.take_part();
                line(self, &part);
            } else {
                line(self, &rest[..end]);
            }
            rest = &rest[end + 1..];
        }
        self.add_part(rest)
    }

    /// Keeps an `id:` for the empty line, which may come with other bytes.
    pub fn keep_id(&mut self, id: &[u8]) {
        let kept = &mut self.held.get_or_insert_default().id;
        kept.clear();
        kept.extend_from_slice(&id[..id.len().min(event::CURSOR_BYTES_MAX + 1)]);
    }

    /// Takes what [`Stream::keep_id`] kept; empty if that was nothing.
    #[must_use]
    pub fn take_id(&mut self) -> Vec<u8> {
        self.held.as_mut().map_or_else(Vec::new, |held| std::mem::take(&mut held.id))
    }

    /// Whether the welcome has come.
    #[must_use]
    pub fn is_welcomed(&self) -> bool {
        self.welcomed
    }

    /// The welcome has come; a second one is none.
    pub fn welcome(&mut self, sink: Sink<'_>) {
        if !self.welcomed {
            self.welcomed = true;
            sink(Item::Welcome);
        }
    }

    /// The server's greeting has come. Says whether it is the first.
    pub fn greeted(&mut self) -> bool {
        !std::mem::replace(&mut self.greeted, true)
    }
}

/// Decodes `bytes`: what [`Stream::lend`] put there and what was read behind it.
///
/// # Errors
/// When the stream is at its end, for one reason or another.
pub fn feed(
    protocol: &dyn Protocol,
    stream: &mut Stream,
    bytes: &[u8],
    sink: Sink<'_>,
) -> Result<(), StreamError> {
    let mut rest = bytes;
    loop {
        let step = match stream.stage {
            Stage::Head => head(protocol, stream, rest, sink)?,
            Stage::Chunks => match chunk(rest).map_err(StreamError::Malformed)? {
                Some(([], _)) => return Err(StreamError::Ended),
                Some((payload, length)) => {
                    protocol.read(stream, payload, sink)?;
                    Some(length)
                }
                None => None,
            },
            Stage::Plain if rest.is_empty() => None,
            Stage::Plain => {
                protocol.read(stream, rest, sink)?;
                Some(rest.len())
            }
            Stage::Frames => frame(protocol, stream, rest, sink)?,
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
    protocol: &dyn Protocol,
    stream: &mut Stream,
    bytes: &[u8],
    sink: Sink<'_>,
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
    let upgrade = protocol.framing() != Framing::Body;
    if status != if upgrade { 101 } else { 200 } {
        if let Some(seconds) = header("retry-after").and_then(event::digits) {
            sink(Item::Retry(seconds.saturating_mul(1000).try_into().unwrap_or(u32::MAX)));
        }
        return Err(StreamError::Refused(status));
    }
    stream.stage = if upgrade {
        if header("sec-websocket-accept") != Some(WS_ACCEPT.as_bytes()) {
            return Err(StreamError::Malformed("a wrong Sec-WebSocket-Accept"));
        }
        if protocol.is_deflate() && header("sec-websocket-extensions").is_none() {
            return Err(StreamError::Malformed("no permessage-deflate, which was asked for"));
        }
        Stage::Frames
    } else if header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case(b"chunked")) {
        Stage::Chunks
    } else {
        Stage::Plain
    };
    protocol.begin(stream, sink);
    Ok(Some(length))
}

thread_local! {
    /// What inflates for all streams of a thread: no message refers to another.
    static INFLATER: RefCell<Inflater> = RefCell::default();
}

/// Reads one frame (RFC 6455, 5.2); returns its length once it is whole.
fn frame(
    protocol: &dyn Protocol,
    stream: &mut Stream,
    bytes: &[u8],
    sink: Sink<'_>,
) -> Result<Option<usize>, StreamError> {
    let header = frame_header(bytes).map_err(StreamError::Malformed)?;
    let Some((header, length)) = header else { return Ok(None) };
    let Some(payload) = bytes.get(header..).and_then(|rest| rest.get(..length)) else {
        return Ok(None);
    };
    let last = bytes[0] & 0x80 != 0;
    if bytes[0] & RSV1 != 0 {
        if !protocol.is_deflate() || !last || stream.has_part() {
            return Err(StreamError::Malformed("a compressed frame where none may be"));
        }
        INFLATER.with_borrow_mut(|inflater| {
            let message = inflater.inflate(payload, PART_BYTES_MAX);
            let message = message.map_err(|failure| StreamError::Malformed(failure.reason))?;
            protocol.read(stream, &message, sink)
        })?;
        return Ok(Some(header + length));
    }
    match bytes[0] & 0x0f {
        0x0..=0x2 if protocol.framing() == Framing::Bytes => {
            protocol.read(stream, payload, sink)?;
        }
        0x0..=0x2 if last && !stream.has_part() => protocol.read(stream, payload, sink)?,
        0x0..=0x2 => {
            stream.add_part(payload)?;
            if last {
                let message = stream.take_part();
                protocol.read(stream, &message, sink)?;
            }
        }
        0x8 => return Err(StreamError::Ended),
        0x9 => sink(Item::Ping(payload)),
        0xa => {}
        _ => return Err(StreamError::Malformed("an unknown WebSocket opcode")),
    }
    Ok(Some(header + length))
}
