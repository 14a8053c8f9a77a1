//! The framing of streams: chunks (RFC 9112, 7.1) and frames (RFC 6455, 5.2). No I/O, no memory.

use memchr::memchr;

use super::stream::StreamError;

/// The size line of a chunk, extensions included.
const CHUNK_LINE_BYTES_MAX: usize = 256;

/// The next chunk's payload and its length with framing (RFC 9112, 7.1); `None` if it isn't whole.
pub fn chunk(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, StreamError> {
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
pub fn frame_header(bytes: &[u8]) -> Result<Option<(usize, usize)>, StreamError> {
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
