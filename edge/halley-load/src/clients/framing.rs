//! The framing of streams: chunks (RFC 9112, 7.1) and frames (RFC 6455, 5.2). No I/O, no memory.

use memchr::memchr;

/// The header lines that ask for a WebSocket. The key is that of RFC 6455's own example (1.3): the
/// server's answer to it is known without computing. A client that guarded against caches would
/// draw a key per connection.
pub const UPGRADE: [&str; 2] = [
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
];
/// What the server must answer to that key.
pub const WS_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The first byte of a whole text message.
pub const TEXT: u8 = 0x81;
/// The first byte of a whole binary message.
pub const BINARY: u8 = 0x82;
/// The first byte of a pong.
pub const PONG: u8 = 0x8a;
/// Set in the first byte of a compressed message (RFC 7692, 6).
pub const RSV1: u8 = 0x40;
/// The header line that offers compression as a browser does.
pub const DEFLATE: &str =
    "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
/// What a client sends in one frame: the length is then in two bytes at most.
const SENT_BYTES_MAX: usize = u16::MAX as usize;

/// The size line of a chunk, extensions included.
const CHUNK_LINE_BYTES_MAX: usize = 256;

/// The next chunk's payload and its length with framing (RFC 9112, 7.1); `None` if it isn't whole.
pub fn chunk(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, &'static str> {
    const BAD: &str = "a bad chunk";
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
pub fn frame_header(bytes: &[u8]) -> Result<Option<(usize, usize)>, &'static str> {
    let &[first, second, ..] = bytes else { return Ok(None) };
    if first & 0x70 & !RSV1 != 0 {
        return Err("a WebSocket extension nobody asked for");
    }
    if second & 0x80 != 0 {
        return Err("a masked frame from a server");
    }
    let big_endian = |digits: &[u8]| digits.iter().fold(0usize, |n, &b| n << 8 | usize::from(b));
    Ok(match second {
        126 => bytes.get(2..4).map(|digits| (4, big_endian(digits))),
        127 if bytes.get(2).is_some_and(|&byte| byte != 0) => {
            return Err("a frame of impossible length");
        }
        127 => bytes.get(2..10).map(|digits| (10, big_endian(digits))),
        short => Some((2, usize::from(short))),
    })
}

/// Appends a frame. The mask is zero: legal, and no work for either side. A longer payload than a
/// client ever sends is cut; that of a control frame has 125 bytes at most (RFC 6455, 5.5).
pub fn push_frame(first: u8, payload: &[u8], out: &mut Vec<u8>) {
    let length_max = if first & 0x08 == 0 { SENT_BYTES_MAX } else { 125 };
    let payload = &payload[..payload.len().min(length_max)];
    let length = payload.len() as u16;
    if length < 126 {
        out.extend_from_slice(&[first, 0x80 | length as u8]);
    } else {
        let [high, low] = length.to_be_bytes();
        out.extend_from_slice(&[first, 0x80 | 126, high, low]);
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sends_is_masked_and_has_its_length() {
        let framed = |first, payload: &[u8]| {
            let mut out = Vec::new();
            push_frame(first, payload, &mut out);
            out
        };
        assert_eq!(framed(PONG, b"hi"), b"\x8a\x82\0\0\0\0hi");
        assert_eq!(framed(PONG, &[7; 300]).len(), 6 + 125);
        assert_eq!(framed(TEXT, &[7; 300])[..8], [0x81, 0xfe, 1, 44, 0, 0, 0, 0]);
        assert_eq!(framed(BINARY, &[7; 70_000]).len(), 8 + 65_535);
    }
}
