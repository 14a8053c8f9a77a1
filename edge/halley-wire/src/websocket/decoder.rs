//! The decoder of what the other side sends: frames in pieces of any size, messages out.
//!
//! Between frames of an idle connection it is one empty pointer. A frame that lies whole in the
//! input, which is nearly every one, is unmasked where it lies and handed out as a borrow; only
//! what is cut by a read or fragmented by its sender is gathered in memory, as it arrives and not
//! as it is announced, and never beyond the message limit. A compressed message is gathered as it
//! travels and inflated when it is whole, within the same limit, by an inflater that is the
//! caller's: nothing of it is kept afterwards.

use std::borrow::Cow;

use super::deflate::Inflater;
use super::frame::{HEADER_BYTES_MAX, Header, Opcode, Rules, mask};
use super::{Failure, close_code};

/// One thing that the other side said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'i> {
    /// A whole text message.
    Text(Cow<'i, str>),
    /// A whole binary message.
    Binary(Cow<'i, [u8]>),
    /// To be answered by a pong with the same bytes, at most 125.
    Ping(Cow<'i, [u8]>),
    /// An answer to a ping, or a sign of life.
    Pong(Cow<'i, [u8]>),
    /// The last frame, with its status code if it has one. What follows must not be decoded.
    Close(Option<u16>),
}

/// What one call of [`Decoder::decode`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded<'i> {
    /// So many bytes of the input were used.
    pub consumed: usize,
    /// `None`: all of the input was used, and more is needed.
    pub event: Option<Event<'i>>,
}

/// The state of one direction of one connection.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Here only while a frame or a message is incomplete.
    partial: Option<Box<Partial>>,
}

/// Invariant: a header is either awaited (`header`) or read (`frame`), not both.
#[derive(Debug, Default)]
struct Partial {
    header: [u8; HEADER_BYTES_MAX],
    header_bytes: usize,
    frame: Option<Frame>,
    message: Option<Message>,
}

/// A frame whose payload is incomplete.
#[derive(Debug)]
struct Frame {
    header: Header,
    read_bytes: usize,
    /// The payload of a control frame, which may stand between the fragments of a message.
    control: Vec<u8>,
}

/// A message that lacks fragments.
#[derive(Debug)]
struct Message {
    opcode: Opcode,
    compressed: bool,
    data: Vec<u8>,
    /// Up to here `data` is UTF-8, if it is a text that is not compressed.
    checked: usize,
}

impl Decoder {
    /// A decoder at the beginning of a connection.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Whether no frame or message is incomplete, so that no memory is held.
    pub fn is_idle(&self) -> bool {
        self.partial.is_none()
    }

    /// Reads on in `input`, up to the first event or the end. Call it again with what follows
    /// `consumed` until there is no event. `input` is unmasked in place.
    ///
    /// # Errors
    /// 1002 for what breaks RFC 6455, 1007 for text that is not UTF-8, 1009 for a message over the
    /// limit. The decoder is not to be used after it, nor after [`Event::Close`].
    pub fn decode<'i>(
        &mut self,
        input: &'i mut [u8],
        rules: &Rules,
    ) -> Result<Decoded<'i>, Failure> {
        self.decode_with(input, rules, None)
    }

    /// The same on a connection where permessage-deflate was agreed on, if there is an inflater.
    ///
    /// # Errors
    /// Also 1007 for a message that is no compressed data though it says so.
    pub fn decode_with<'i>(
        &mut self,
        input: &'i mut [u8],
        rules: &Rules,
        mut inflater: Option<&mut Inflater>,
    ) -> Result<Decoded<'i>, Failure> {
        let (mut at, deflate) = (0, inflater.is_some());
        while at < input.len() {
            if let Some((header, end)) = self.whole_frame(&input[at..], rules, deflate)? {
                let start = at + header.header_bytes;
                let payload = &mut input[start..at + end];
                mask(payload, header.key, 0);
                let event = match inflater.filter(|_| header.compressed) {
                    Some(inflater) => {
                        owned(header.opcode, inflater.inflate(payload, rules.message_bytes_max)?)?
                    }
                    None => borrowed(header.opcode, payload)?,
                };
                return Ok(Decoded { consumed: at + end, event: Some(event) });
            }
            let inflater = inflater.as_deref_mut();
            let (consumed, event) = self.gather(&mut input[at..], rules, inflater)?;
            at += consumed;
            if event.is_some() {
                return Ok(Decoded { consumed: at, event });
            }
        }
        Ok(Decoded { consumed: at, event: None })
    }

    /// The header and the end of the frame that `input` begins with, if it lies there whole and
    /// makes an event by itself.
    fn whole_frame(
        &self,
        input: &[u8],
        rules: &Rules,
        deflate: bool,
    ) -> Result<Option<(Header, usize)>, Failure> {
        let partial = self.partial.as_deref();
        if partial.is_some_and(|partial| partial.header_bytes > 0 || partial.frame.is_some()) {
            return Ok(None);
        }
        let Some(header) = Header::parse(input, rules, self.message_bytes(), deflate)? else {
            return Ok(None);
        };
        let by_itself = header.fin && header.opcode != Opcode::Continuation;
        // Neither side is near the end of what a usize holds: both are bounded by the limit.
        let end = header.header_bytes.saturating_add(header.payload_bytes);
        Ok((by_itself && end <= input.len()).then_some((header, end)))
    }

    /// Takes what `input`, which is not empty, has of one frame.
    fn gather(
        &mut self,
        input: &mut [u8],
        rules: &Rules,
        inflater: Option<&mut Inflater>,
    ) -> Result<(usize, Option<Event<'static>>), Failure> {
        let partial = self.partial.get_or_insert_default();
        let header_bytes = partial.read_header(input, rules, inflater.is_some())?;
        let payload = input.get_mut(header_bytes..).unwrap_or_default();
        let payload_bytes = partial.read_payload(payload)?;
        let event = partial.end_frame(rules, inflater)?;
        if partial.is_idle() {
            self.partial = None;
        }
        Ok((header_bytes + payload_bytes, event))
    }

    fn message_bytes(&self) -> Option<usize> {
        self.partial.as_deref().and_then(Partial::message_bytes)
    }
}

impl Partial {
    fn is_idle(&self) -> bool {
        self.header_bytes == 0 && self.frame.is_none() && self.message.is_none()
    }

    fn message_bytes(&self) -> Option<usize> {
        self.message.as_ref().map(|message| message.data.len())
    }

    /// Takes what `input` has of a header, if one is awaited.
    fn read_header(
        &mut self,
        input: &[u8],
        rules: &Rules,
        deflate: bool,
    ) -> Result<usize, Failure> {
        if self.frame.is_some() {
            return Ok(0);
        }
        let before = self.header_bytes;
        let free = &mut self.header[before..];
        let copied = free.len().min(input.len());
        free[..copied].copy_from_slice(&input[..copied]);
        let bytes = &self.header[..before + copied];
        let Some(header) = Header::parse(bytes, rules, self.message_bytes(), deflate)? else {
            self.header_bytes += copied;
            return Ok(copied);
        };
        self.header_bytes = 0;
        if matches!(header.opcode, Opcode::Text | Opcode::Binary) {
            let Header { opcode, compressed, .. } = header;
            self.message = Some(Message { opcode, compressed, data: Vec::new(), checked: 0 });
        }
        self.frame = Some(Frame { header, read_bytes: 0, control: Vec::new() });
        Ok(header.header_bytes - before)
    }

    /// Takes what `input` has of the payload, if a frame is incomplete.
    fn read_payload(&mut self, input: &mut [u8]) -> Result<usize, Failure> {
        let Some(frame) = &mut self.frame else {
            return Ok(0);
        };
        let taken = input.len().min(frame.header.payload_bytes - frame.read_bytes);
        let payload = input.get_mut(..taken).unwrap_or_default();
        mask(payload, frame.header.key, frame.read_bytes);
        frame.read_bytes += taken;
        match &mut self.message {
            Some(message) if !frame.header.opcode.is_control() => message.append(payload)?,
            _ => frame.control.extend_from_slice(payload),
        }
        Ok(taken)
    }

    /// Ends the frame if its payload is complete.
    fn end_frame(
        &mut self,
        rules: &Rules,
        inflater: Option<&mut Inflater>,
    ) -> Result<Option<Event<'static>>, Failure> {
        let complete = |frame: &mut Frame| frame.read_bytes == frame.header.payload_bytes;
        let Some(frame) = self.frame.take_if(complete) else {
            return Ok(None);
        };
        if frame.header.opcode.is_control() {
            return owned(frame.header.opcode, frame.control).map(Some);
        }
        let Some(message) = self.message.take_if(|_| frame.header.fin) else { return Ok(None) };
        let data = match inflater.filter(|_| message.compressed) {
            Some(inflater) => inflater.inflate(&message.data, rules.message_bytes_max)?,
            None => message.data,
        };
        owned(message.opcode, data).map(Some)
    }
}

impl Message {
    /// Appends unmasked bytes; a text fails at the first byte that can't be UTF-8 (section 8.1), a
    /// compressed one only when it is whole.
    fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.data.extend_from_slice(bytes);
        if self.opcode == Opcode::Text && !self.compressed {
            let new = self.data.get(self.checked..).unwrap_or_default();
            match std::str::from_utf8(new) {
                Ok(_) => self.checked = self.data.len(),
                // A character that the next bytes may complete.
                Err(error) if error.error_len().is_none() => self.checked += error.valid_up_to(),
                Err(_) => return Err(NOT_UTF8),
            }
        }
        Ok(())
    }
}

const NOT_UTF8: Failure = Failure { code: close_code::INVALID_DATA, reason: "text is not UTF-8" };

fn borrowed(opcode: Opcode, payload: &[u8]) -> Result<Event<'_>, Failure> {
    Ok(match opcode {
        Opcode::Text => {
            let text = std::str::from_utf8(payload).map_err(|_| NOT_UTF8)?;
            Event::Text(Cow::Borrowed(text))
        }
        Opcode::Binary | Opcode::Continuation => Event::Binary(Cow::Borrowed(payload)),
        Opcode::Ping => Event::Ping(Cow::Borrowed(payload)),
        Opcode::Pong => Event::Pong(Cow::Borrowed(payload)),
        Opcode::Close => Event::Close(close(payload)?),
    })
}

fn owned(opcode: Opcode, payload: Vec<u8>) -> Result<Event<'static>, Failure> {
    Ok(match opcode {
        Opcode::Text => {
            let text = String::from_utf8(payload).map_err(|_| NOT_UTF8)?;
            Event::Text(Cow::Owned(text))
        }
        Opcode::Binary | Opcode::Continuation => Event::Binary(Cow::Owned(payload)),
        Opcode::Ping => Event::Ping(Cow::Owned(payload)),
        Opcode::Pong => Event::Pong(Cow::Owned(payload)),
        Opcode::Close => Event::Close(close(&payload)?),
    })
}

/// The status code of a close frame (RFC 6455 sections 5.5.1 and 7.4).
fn close(payload: &[u8]) -> Result<Option<u16>, Failure> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() {
            Ok(None)
        } else {
            Err(Failure::protocol("close code is cut off"))
        };
    };
    let code = u16::from_be_bytes(*code);
    if !close_code::may_travel(code) {
        return Err(Failure::protocol("close code must not be sent"));
    }
    std::str::from_utf8(reason).map_err(|_| NOT_UTF8)?;
    Ok(Some(code))
}
