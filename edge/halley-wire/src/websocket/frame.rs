//! Frame headers and masking (RFC 6455 sections 5.2 and 5.3).

use super::{Failure, close_code};

/// Two bytes, a 64-bit length, a masking key.
pub(super) const HEADER_BYTES_MAX: usize = 14;

/// Largest payload of a control frame (RFC 6455 section 5.5).
pub(super) const CONTROL_BYTES_MAX: usize = 125;

/// Who sends the frames that are read: clients mask theirs, servers don't (section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A client sends, a server reads.
    Client,
    /// A server sends, a client reads.
    Server,
}

/// What is accepted on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whose frames are read.
    pub sender: Sender,
    /// Bytes of the largest message, all fragments together.
    pub message_bytes_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation = 0x0,
    Text = 0x1,
    Binary = 0x2,
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xa,
}

impl Opcode {
    fn of(nibble: u8) -> Option<Opcode> {
        match nibble {
            0x0 => Some(Opcode::Continuation),
            0x1 => Some(Opcode::Text),
            0x2 => Some(Opcode::Binary),
            0x8 => Some(Opcode::Close),
            0x9 => Some(Opcode::Ping),
            0xa => Some(Opcode::Pong),
            _ => None,
        }
    }

    pub(super) fn is_control(self) -> bool {
        self as u8 >= 0x8
    }
}

/// A header that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub fin: bool,
    /// The first frame of a compressed message.
    pub compressed: bool,
    pub opcode: Opcode,
    /// Zero for an unmasked frame, so that unmasking changes nothing.
    pub key: [u8; 4],
    pub payload_bytes: usize,
    pub header_bytes: usize,
}

impl Header {
    /// Reads a header at the beginning of `bytes`; `None` if more are needed. `message_bytes` is
    /// the length of the fragments so far, if a message is incomplete; `deflate` says whether
    /// permessage-deflate was agreed on.
    ///
    /// What is wrong is said at the first byte that shows it, so a bad frame is refused before its
    /// payload is waited for.
    pub fn parse(
        bytes: &[u8],
        rules: &Rules,
        message_bytes: Option<usize>,
        deflate: bool,
    ) -> Result<Option<Header>, Failure> {
        let Some(&first) = bytes.first() else {
            return Ok(None);
        };
        let (fin, compressed, opcode) = first_byte(first, message_bytes.is_some(), deflate)?;
        let Some(&second) = bytes.get(1) else {
            return Ok(None);
        };
        let masked = second & 0x80 != 0;
        match (rules.sender, masked) {
            (Sender::Client, false) => return Err(Failure::protocol("frame is not masked")),
            (Sender::Server, true) => return Err(Failure::protocol("frame is masked")),
            _ => {}
        }
        let short_length = second & 0x7f;
        if opcode.is_control() && usize::from(short_length) > CONTROL_BYTES_MAX {
            return Err(Failure::protocol("control frame is longer than 125 bytes"));
        }
        let Some((payload_bytes, key_start)) = length(bytes, short_length)? else {
            return Ok(None);
        };
        let before = message_bytes.unwrap_or_default() as u64;
        let message_bytes_max = rules.message_bytes_max as u64;
        if !opcode.is_control() && before.saturating_add(payload_bytes) > message_bytes_max {
            return Err(TOO_BIG);
        }
        let payload_bytes = usize::try_from(payload_bytes).map_err(|_| TOO_BIG)?;
        let (key, header_bytes) = ([0; 4], key_start);
        let unmasked = Header { fin, compressed, opcode, key, payload_bytes, header_bytes };
        if !masked {
            return Ok(Some(unmasked));
        }
        let key = bytes.get(key_start..).and_then(<[u8]>::first_chunk);
        Ok(key.map(|&key| Header { key, header_bytes: key_start + key.len(), ..unmasked }))
    }
}

const TOO_BIG: Failure = Failure {
    code: close_code::MESSAGE_TOO_BIG,
    reason: "message is larger than this server reads",
};

/// The first frame of a compressed message has this bit set (RFC 7692 section 6).
pub(super) const RSV1: u8 = 0x40;

/// FIN, RSV1 and the opcode, if they fit what came before.
fn first_byte(byte: u8, in_message: bool, deflate: bool) -> Result<(bool, bool, Opcode), Failure> {
    let reserved = byte & 0x70;
    if reserved != 0 && !(deflate && reserved == RSV1) {
        return Err(Failure::protocol("reserved bits are set, no extension was agreed on"));
    }
    let opcode = Opcode::of(byte & 0x0f).ok_or(Failure::protocol("reserved opcode"))?;
    let (fin, compressed) = (byte & 0x80 != 0, reserved != 0);
    if compressed && !matches!(opcode, Opcode::Text | Opcode::Binary) {
        return Err(Failure::protocol(
            "only the first frame of a message says that it is compressed",
        ));
    }
    match (opcode, in_message) {
        (Opcode::Continuation, false) => {
            Err(Failure::protocol("continuation without a message to continue"))
        }
        (Opcode::Text | Opcode::Binary, true) => {
            Err(Failure::protocol("new message inside of a fragmented one"))
        }
        _ if opcode.is_control() && !fin => Err(Failure::protocol("control frame is fragmented")),
        _ => Ok((fin, compressed, opcode)),
    }
}

/// The payload's length and how many bytes of the header tell it.
fn length(bytes: &[u8], short: u8) -> Result<Option<(u64, usize)>, Failure> {
    const NOT_MINIMAL: Failure = Failure::protocol("length is not in its shortest form");
    let extended = bytes.get(2..).unwrap_or_default();
    match short {
        126 => match extended.first_chunk().map(|&length| u16::from_be_bytes(length)) {
            None => Ok(None),
            Some(0..=125) => Err(NOT_MINIMAL),
            Some(length) => Ok(Some((u64::from(length), 4))),
        },
        127 => match extended.first_chunk().map(|&length| u64::from_be_bytes(length)) {
            None => Ok(None),
            Some(0..=0xffff) => Err(NOT_MINIMAL),
            Some(length) if length > i64::MAX as u64 => {
                Err(Failure::protocol("length has its highest bit set"))
            }
            Some(length) => Ok(Some((length, 10))),
        },
        _ => Ok(Some((u64::from(short), 2))),
    }
}

/// Masks or unmasks `data`, of which the first byte is the payload's byte `offset`.
pub(super) fn mask(data: &mut [u8], mut key: [u8; 4], offset: usize) {
    key.rotate_left(offset % 4);
    let mut words = data.chunks_exact_mut(4);
    for word in &mut words {
        for (byte, key) in word.iter_mut().zip(key) {
            *byte ^= key;
        }
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(key) {
        *byte ^= key;
    }
}

/// Appends a header; `first` is its first byte, without FIN.
pub(super) fn write_header(
    out: &mut Vec<u8>,
    first: u8,
    payload_bytes: usize,
    key: Option<[u8; 4]>,
) {
    let mask_bit = if key.is_some() { 0x80 } else { 0 };
    out.push(0x80 | first);
    match payload_bytes {
        0..=125 => out.push(mask_bit | payload_bytes as u8),
        126..=0xffff => {
            out.push(mask_bit | 126);
            out.extend_from_slice(&(payload_bytes as u16).to_be_bytes());
        }
        _ => {
            out.push(mask_bit | 127);
            out.extend_from_slice(&(payload_bytes as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&key.unwrap_or_default()[..key.map_or(0, |key| key.len())]);
}
