//! The second reader of what a WebSocket client sends: http.md 9, over whole inputs.

use super::Verdict::{self, Is, Refused, Unfinished};
use super::inflate::inflate;

/// A frame.
struct Frame {
    fin: bool,
    compressed: bool,
    opcode: u8,
    payload: Vec<u8>,
    /// Where the next one begins.
    end: usize,
}

/// What the frames said: each event as text, and the code of the failure if there is one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub events: Vec<Event>,
    pub failure: Option<u16>,
    /// All of the input was used.
    pub finished: bool,
}

/// One message or control frame; the opcode says which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub opcode: u8,
    pub payload: Vec<u8>,
}

/// Reads frames, masked or not, until the end, a failure, or a close.
pub fn frames(input: &[u8], masked: bool, message_bytes_max: usize) -> Read {
    frames_with(input, masked, message_bytes_max, false)
}

/// The same where `permessage-deflate` was agreed on (http.md 8.5, 9.8), or not.
pub fn frames_with(input: &[u8], masked: bool, message_bytes_max: usize, deflate: bool) -> Read {
    let (mut read, mut at) = (Read::default(), 0);
    let mut message: Option<(Event, bool)> = None;
    while at < input.len() {
        let before = message.as_ref().map(|(message, _)| message.payload.len());
        let frame = match frame(&input[at..], masked, message_bytes_max, before, deflate) {
            Ok(Is(frame)) => frame,
            Ok(Unfinished | Refused) => return read,
            Err(code) => {
                read.failure = Some(code);
                return read;
            }
        };
        at += frame.end;
        let event = if frame.opcode >= 8 {
            Event { opcode: frame.opcode, payload: frame.payload }
        } else {
            let first = Event { opcode: frame.opcode, payload: Vec::new() };
            let (mut whole, compressed) = message.take().unwrap_or((first, frame.compressed));
            whole.payload.extend(frame.payload);
            if !frame.fin {
                if whole.opcode == 1 && !compressed && is_broken(&whole.payload) {
                    read.failure = Some(1007);
                    return read;
                }
                message = Some((whole, compressed));
                continue;
            }
            if compressed {
                match inflate(&whole.payload, message_bytes_max) {
                    Ok(payload) => whole.payload = payload,
                    Err(code) => {
                        read.failure = Some(code);
                        return read;
                    }
                }
            }
            whole
        };
        if let Some(code) = wrong_with(&event) {
            read.failure = Some(code);
            return read;
        }
        let closes = event.opcode == 8;
        read.events.push(event);
        if closes {
            read.finished = true;
            return read;
        }
    }
    read.finished = message.is_none();
    read
}

/// Clauses 9.1 and 9.4; `before` is the length of the fragments so far.
fn frame(
    input: &[u8],
    masked: bool,
    message_bytes_max: usize,
    before: Option<usize>,
    deflate: bool,
) -> Result<Verdict<Frame>, u16> {
    let (Some(&first), Some(&second)) = (input.first(), input.get(1)) else {
        return Ok(Unfinished);
    };
    let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
    let known = matches!(opcode, 0..=2 | 8..=10);
    let fits = match opcode {
        0 => before.is_some(),
        1 | 2 => before.is_none(),
        _ => fin && second & 0x7f <= 125,
    };
    let compressed = deflate && first & 0x70 == 0x40 && matches!(opcode, 1 | 2);
    if first & 0x70 != 0 && !compressed || !known || !fits || (second & 0x80 != 0) != masked {
        return Err(1002);
    }
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
    let (length, mut at) = match second & 0x7f {
        126 => (input.get(2..4).map(number), 4),
        127 => (input.get(2..10).map(number), 10),
        short => (Some(u64::from(short)), 2),
    };
    let Some(length) = length else { return Ok(Unfinished) };
    let shortest = match at {
        4 => length > 125,
        10 => length > 65_535 && length >> 63 == 0,
        _ => true,
    };
    if !shortest {
        return Err(1002);
    }
    let sum = u128::from(length) + before.unwrap_or(0) as u128;
    if opcode < 8 && sum > message_bytes_max as u128 {
        return Err(1009);
    }
    let mut key = [0; 4];
    if masked {
        let Some(bytes) = input.get(at..at + 4) else { return Ok(Unfinished) };
        key.copy_from_slice(bytes);
        at += 4;
    }
    let end = at + length as usize;
    let Some(payload) = input.get(at..end) else { return Ok(Unfinished) };
    let payload = payload.iter().enumerate().map(|(i, byte)| byte ^ key[i % 4]).collect();
    Ok(Is(Frame { fin, compressed, opcode, payload, end }))
}

/// Clauses 9.1 to 9.3, of a whole message or control frame.
fn wrong_with(event: &Event) -> Option<u16> {
    let text = match event.opcode {
        1 => &event.payload[..],
        8 => match event.payload.len() {
            0 => &[],
            1 => return Some(1002),
            _ => {
                let code = u16::from_be_bytes([event.payload[0], event.payload[1]]);
                if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                    return Some(1002);
                }
                &event.payload[2..]
            }
        },
        _ => &[],
    };
    std::str::from_utf8(text).is_err().then_some(1007)
}

/// Can no further byte make UTF-8 of it?
fn is_broken(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_err_and(|error| error.error_len().is_some())
}
