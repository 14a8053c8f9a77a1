//! Response bodies of unknown length: chunks (RFC 9112 section 7.1), or bytes until the close.

use super::head::Version;

/// How the bytes of a stream are framed in the response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// No framing: the close of the connection ends the body (HTTP/1.0).
    Plain,
}

impl Framing {
    /// The framing that a client of this version understands.
    pub const fn of(version: Version) -> Framing {
        match version {
            Version::Http10 => Framing::Plain,
            Version::Http11 => Framing::Chunked,
        }
    }
}

/// Appends the concatenation of `parts` as one chunk. Nothing is written for an empty one: a chunk
/// of length zero would end the body.
pub fn write(out: &mut Vec<u8>, framing: Framing, parts: &[&[u8]]) {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    if bytes == 0 {
        return;
    }
    out.reserve(bytes + CHUNK_OVERHEAD_BYTES_MAX);
    if framing == Framing::Chunked {
        write_hex(out, bytes);
        out.extend_from_slice(b"\r\n");
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    if framing == Framing::Chunked {
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends what ends the body: the last chunk, or nothing where the close does.
pub fn write_end(out: &mut Vec<u8>, framing: Framing) {
    if framing == Framing::Chunked {
        out.extend_from_slice(b"0\r\n\r\n");
    }
}

/// Sixteen digits and two line ends.
const CHUNK_OVERHEAD_BYTES_MAX: usize = 20;

fn write_hex(out: &mut Vec<u8>, value: usize) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - value.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(HEX[(value >> (4 * digit)) & 0xf]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_sizes_are_hexadecimal_without_leading_zeros() {
        for value in [0, 1, 9, 15, 16, 255, 256, 65_535, 65_536, usize::MAX] {
            let mut out = Vec::new();
            write_hex(&mut out, value);
            assert_eq!(out, format!("{value:x}").into_bytes());
        }
    }

    #[test]
    fn an_empty_chunk_is_not_written() {
        let mut out = Vec::new();
        write(&mut out, Framing::Chunked, &[b"", b""]);
        assert!(out.is_empty(), "RFC 9112 7.1: a chunk of size zero is the last");
        write(&mut out, Framing::Chunked, &[b"abc", b"de"]);
        write_end(&mut out, Framing::Chunked);
        assert_eq!(out, b"5\r\nabcde\r\n0\r\n\r\n");
        out.clear();
        write(&mut out, Framing::Plain, &[b"abc", b"de"]);
        write_end(&mut out, Framing::Plain);
        assert_eq!(out, b"abcde");
    }
}
