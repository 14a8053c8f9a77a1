//! Reads a stream of events, whatever its transport, as cheaply as it can be done.
//!
//! Purpose: bytes in, items out ([`Item`]): that the welcome came, that an event came and which
//! time it was stamped with, that a ping wants its pong. No I/O, no clock.
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
//! A JSON text that begins with `{"welcome"` is never an event. The time stamp is the number after
//! the first `"t":`, which can't stand inside a JSON string: there its quotes are escaped.
//!
//! Invariants: a stream that stands between two events holds no memory but its [`Stream`] of two
//! words. What is incomplete is kept in it and put before the next bytes by [`Stream::lend`], so
//! the decoder always works on one piece of one shared buffer.
//!
//! It shares no code with the edge's encoder on purpose: a mistake there shall show here.

use memchr::{memchr, memmem};

/// The head of a response may have this many headers.
const HEADERS_MAX: usize = 64;
/// The size line of a chunk, extensions included.
const CHUNK_LINE_BYTES_MAX: usize = 256;

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
    /// An event, and the time at which its publisher meant to send it.
    Event(Option<u64>),
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
        } else if self.held.as_ref().is_some_and(|held| held.part.is_empty()) {
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
    stamp: memmem::Finder<'static>,
    part_bytes_max: usize,
}

impl Decoder {
    /// A decoder that holds at most `part_bytes_max` of a line or message that came in pieces.
    #[must_use]
    pub fn new(transport: Transport, part_bytes_max: usize) -> Self {
        Self { transport, stamp: memmem::Finder::new(b"\"t\":"), part_bytes_max }
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
        let status = response.code.unwrap_or(0);
        let wanted = if self.transport == Transport::Ws { 101 } else { 200 };
        if status != wanted {
            return Err(StreamError::Refused(status));
        }
        let header = |name: &str| {
            let found = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
            found.map(|h| h.value)
        };
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
                sink(Item::Event(self.stamp(payload)));
            }
            stream.welcome(sink);
            return Ok(());
        }
        let mut rest = payload;
        while let Some(end) = memchr(b'\n', rest) {
            if stream.has_part() {
                stream.add_part(&rest[..end], self.part_bytes_max)?;
                let line = stream.take_part();
                self.line(stream, &line, sink);
            } else {
                self.line(stream, &rest[..end], sink);
            }
            rest = &rest[end + 1..];
        }
        if rest.is_empty() { Ok(()) } else { stream.add_part(rest, self.part_bytes_max) }
    }

    fn line(&self, stream: &mut Stream, line: &[u8], sink: &mut impl FnMut(Item<'_>)) {
        if self.transport == Transport::Sse {
            if line.starts_with(b"data:") {
                sink(Item::Event(self.stamp(line)));
            } else if line.starts_with(b": welcome") {
                stream.welcome(sink);
            }
        } else if !line.is_empty() && line != b"\r" && !is_welcome(line) {
            sink(Item::Event(self.stamp(line)));
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
            0x0..=0x2 if last && !stream.has_part() => self.message(payload, sink),
            0x0..=0x2 => {
                stream.add_part(payload, self.part_bytes_max)?;
                if last {
                    self.message(&stream.take_part(), sink);
                }
            }
            0x8 => return Err(StreamError::Ended),
            0x9 => sink(Item::Ping(payload)),
            0xa => {}
            _ => return Err(StreamError::Malformed("an unknown WebSocket opcode")),
        }
        Ok(Some(header + length))
    }

    fn message(&self, message: &[u8], sink: &mut impl FnMut(Item<'_>)) {
        if !is_welcome(message) {
            sink(Item::Event(self.stamp(message)));
        }
    }

    /// The number after the first `"t":`.
    fn stamp(&self, event: &[u8]) -> Option<u64> {
        let digits = event.get(self.stamp.find(event)? + 4..)?.trim_ascii_start();
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let value = digits[..count.min(19)].iter();
        (count > 0).then(|| value.fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
    }
}

fn is_welcome(json: &[u8]) -> bool {
    json.starts_with(b"{\"welcome\"")
}

/// The next chunk's payload and its length with framing (RFC 9112, 7.1); `None` if it isn't whole.
fn chunk(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, StreamError> {
    const BAD: StreamError = StreamError::Malformed("a bad chunk");
    let Some(line) = memchr(b'\n', bytes) else {
        return if bytes.len() > CHUNK_LINE_BYTES_MAX { Err(BAD) } else { Ok(None) };
    };
    let mut size = 0usize;
    let mut digits = 0;
    for &byte in &bytes[..line] {
        let Some(digit) = (byte as char).to_digit(16) else { break };
        size = size.checked_mul(16).ok_or(BAD)? + digit as usize;
        digits += 1;
    }
    if digits == 0 {
        return Err(BAD);
    }
    let start = line + 1;
    let end = start.checked_add(size).ok_or(BAD)?;
    match bytes.get(end..).and_then(|rest| rest.get(..2)) {
        Some(b"\r\n") => Ok(Some((&bytes[start..end], end + 2))),
        Some(_) => Err(BAD),
        None => Ok(None),
    }
}

/// Lengths of a frame's header and payload; `None` if the header isn't whole.
fn frame_header(bytes: &[u8]) -> Result<Option<(usize, usize)>, StreamError> {
    let &[first, second, ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(StreamError::Malformed("a WebSocket extension nobody asked for"));
    }
    if second & 0x80 != 0 {
        return Err(StreamError::Malformed("a masked frame from a server"));
    }
    let big_endian = |digits: &[u8]| digits.iter().fold(0usize, |n, &b| n << 8 | usize::from(b));
    Ok(match second {
        126 => bytes.get(2..4).map(|digits| (4, big_endian(digits))),
        127 if bytes.get(2).is_some_and(|&byte| byte != 0) => {
            return Err(StreamError::Malformed("a frame of impossible length"));
        }
        127 => bytes.get(2..10).map(|digits| (10, big_endian(digits))),
        short => Some((2, usize::from(short))),
    })
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
