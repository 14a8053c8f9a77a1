//! Chunked request bodies (RFC 9112 section 7.1), read as they arrive.

use std::ops::Range;

use memchr::memchr2;

use super::headers::is_tchar;
use crate::HttpError;

/// Bytes of chunk extensions in one body, which this server ignores.
pub const EXTENSION_BYTES_MAX: u32 = 4_096;

/// Bytes of the trailer section, which this server ignores.
pub const TRAILER_BYTES_MAX: u32 = 8_192;

/// Digits of a chunk's size: as many as 64 bits have.
pub const SIZE_DIGITS_MAX: u8 = 16;

/// Reads one chunked body. The size of the whole body is the caller's to bound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChunkedDecoder {
    state: State,
    extension_bytes: u32,
    trailer_bytes: u32,
}

/// What one call of [`ChunkedDecoder::decode`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// So many bytes of the input were used, `data` included.
    pub consumed: usize,
    /// Where in the input the next bytes of the body are; empty if there are none.
    pub data: Range<usize>,
    /// The body has ended: what follows `consumed` is the next request.
    pub done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size {
        size: u64,
        digits: u8,
    },
    /// White space after the size, which only an extension may follow.
    BeforeExtension {
        size: u64,
    },
    Extension {
        size: u64,
        part: Part,
    },
    SizeLf {
        size: u64,
    },
    Data {
        rest: u64,
    },
    DataCr,
    DataLf,
    TrailerLineStart,
    TrailerName,
    TrailerLine,
    TrailerLineLf,
    LastLf,
    Done,
}

/// Where in `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )` an extension is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Value,
    Quoted,
    /// Behind the backslash of a quoted pair.
    Escaped,
    /// Behind the closing quote.
    AfterQuoted,
    /// White space behind a value, which only another extension may follow.
    AfterValue,
}

impl Part {
    /// What follows when this byte comes; `None` for a byte that can't.
    fn step(self, byte: u8) -> Option<Part> {
        let blank = matches!(byte, b' ' | b'\t');
        Some(match (self, byte) {
            (Part::BeforeName, _) if blank => Part::BeforeName,
            (Part::BeforeName | Part::Name, _) if is_tchar(byte) => Part::Name,
            (Part::Name | Part::AfterName, _) if blank => Part::AfterName,
            (Part::Name | Part::AfterName, b'=') => Part::BeforeValue,
            (Part::BeforeValue, _) if blank => Part::BeforeValue,
            (Part::BeforeValue, b'"') => Part::Quoted,
            (Part::BeforeValue | Part::Value, _) if is_tchar(byte) => Part::Value,
            (Part::Quoted, b'"') => Part::AfterQuoted,
            (Part::Quoted, b'\\') => Part::Escaped,
            (Part::Quoted | Part::Escaped, _) if blank || !byte.is_ascii_control() => Part::Quoted,
            (Part::Value | Part::AfterQuoted | Part::AfterValue, _) if blank => Part::AfterValue,
            (
                Part::Name | Part::AfterName | Part::Value | Part::AfterQuoted | Part::AfterValue,
                b';',
            ) => Part::BeforeName,
            _ => return None,
        })
    }

    /// Whether the line may end here.
    fn may_end(self) -> bool {
        matches!(self, Part::Name | Part::Value | Part::AfterQuoted)
    }
}

impl Default for State {
    fn default() -> State {
        State::NEXT_CHUNK
    }
}

impl State {
    const NEXT_CHUNK: State = State::Size { size: 0, digits: 0 };
}

impl ChunkedDecoder {
    /// A decoder at the beginning of a body.
    pub fn new() -> ChunkedDecoder {
        ChunkedDecoder::default()
    }

    /// Whether the body has ended.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Reads on in `input`, up to the end of the first run of data or of the body.
    ///
    /// Call it again with what follows `consumed` until `done`, or until the input is used up.
    /// Something is consumed whenever `input` is not empty and the body has not ended.
    ///
    /// # Errors
    /// 400 for what breaks the grammar or a bound of this module. The decoder is not to be used
    /// after it.
    pub fn decode(&mut self, input: &[u8]) -> Result<Chunk, HttpError> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            match self.state {
                State::Done => break,
                State::Data { rest } => return Ok(self.data(rest, at, input.len())),
                State::Extension { size, part } => {
                    self.state = self.extension(size, part, byte)?;
                    at += 1;
                }
                State::TrailerLine => at += self.trailer(&input[at..])?,
                _ => {
                    self.state = self.step(byte)?;
                    at += 1;
                }
            }
        }
        Ok(Chunk { consumed: at, data: at..at, done: self.is_done() })
    }

    /// Reads on in all of `input`, or up to the end of the body, and appends the data to `data`.
    /// Gives how many bytes were used, and whether the body has ended.
    ///
    /// # Errors
    /// See [`ChunkedDecoder::decode`].
    pub fn decode_all(
        &mut self,
        input: &[u8],
        data: &mut Vec<u8>,
    ) -> Result<(usize, bool), HttpError> {
        let mut at = 0;
        while !self.is_done() && at < input.len() {
            let rest = &input[at..];
            // Behind a chunk that was cut: back to where the next one begins.
            if self.state == State::DataCr && rest.starts_with(b"\r\n") {
                self.state = State::NEXT_CHUNK;
                at += 2;
                continue;
            }
            let begins = self.state == State::NEXT_CHUNK;
            if let Some(small) = small_chunk(rest).filter(|_| begins) {
                data.extend_from_slice(small);
                at += small.len() + SMALL_CHUNK_FRAMING_BYTES;
                continue;
            }
            let chunk = self.decode(rest)?;
            data.extend_from_slice(rest.get(chunk.data).unwrap_or_default());
            at += chunk.consumed;
        }
        Ok((at, self.is_done()))
    }

    /// There is at least one byte at `at`, and `rest` is not 0.
    fn data(&mut self, rest: u64, at: usize, input_bytes: usize) -> Chunk {
        let there = input_bytes - at;
        let taken = usize::try_from(rest).map_or(there, |rest| rest.min(there));
        let rest = rest - taken as u64;
        self.state = if rest == 0 { State::DataCr } else { State::Data { rest } };
        Chunk { consumed: at + taken, data: at..at + taken, done: false }
    }

    fn step(&mut self, byte: u8) -> Result<State, HttpError> {
        match (self.state, byte) {
            (State::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == SIZE_DIGITS_MAX {
                    return Err(BAD_SIZE);
                }
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                let size = size << 4 | u64::from(digit);
                Ok(State::Size { size, digits: digits + 1 })
            }
            (State::Size { digits: 0, .. }, _) => Err(BAD_SIZE),
            (State::Size { size, .. }, b'\r') => Ok(State::SizeLf { size }),
            (State::Size { size, .. } | State::BeforeExtension { size }, b';') => {
                Ok(State::Extension { size, part: Part::BeforeName })
            }
            (State::Size { size, .. } | State::BeforeExtension { size }, b' ' | b'\t') => {
                self.extension_bytes += 1;
                within(self.extension_bytes, EXTENSION_BYTES_MAX)?;
                Ok(State::BeforeExtension { size })
            }
            (State::SizeLf { size: 0 }, b'\n') => Ok(State::TrailerLineStart),
            (State::SizeLf { size }, b'\n') => Ok(State::Data { rest: size }),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::NEXT_CHUNK),
            (State::TrailerLineStart, b'\r') => Ok(State::LastLf),
            // What has no name and colon is no field: another reader could see a request in it.
            (State::TrailerLineStart, _) if is_tchar(byte) => Ok(State::TrailerName),
            (State::TrailerName, _) if byte == b':' || is_tchar(byte) => {
                self.trailer_bytes += 1;
                within(self.trailer_bytes, TRAILER_BYTES_MAX)?;
                Ok(if byte == b':' { State::TrailerLine } else { State::TrailerName })
            }
            (State::TrailerLineLf, b'\n') => Ok(State::TrailerLineStart),
            (State::LastLf, b'\n') => Ok(State::Done),
            (State::Size { .. } | State::BeforeExtension { .. }, _) => Err(BAD_SIZE),
            _ => Err(BAD_LINE),
        }
    }

    /// Takes one byte of the extensions of a chunk of `size`. They are rare, so this need not be
    /// fast.
    fn extension(&mut self, size: u64, part: Part, byte: u8) -> Result<State, HttpError> {
        self.extension_bytes += 1;
        within(self.extension_bytes, EXTENSION_BYTES_MAX)?;
        match part.step(byte) {
            Some(part) => Ok(State::Extension { size, part }),
            None if byte == b'\r' && part.may_end() => Ok(State::SizeLf { size }),
            None => Err(BAD_EXTENSION),
        }
    }

    /// Takes what `input` has of a trailer line's value, up to the CR.
    fn trailer(&mut self, input: &[u8]) -> Result<usize, HttpError> {
        let (taken, ended) = line(input, self.trailer_bytes, TRAILER_BYTES_MAX)?;
        self.trailer_bytes += taken;
        if ended {
            self.state = State::TrailerLineLf;
        }
        Ok(taken as usize)
    }
}

/// What is around a chunk whose size has one digit: the digit and two line ends.
const SMALL_CHUNK_FRAMING_BYTES: usize = 5;

/// The data of a chunk of 1 to 15 bytes without extension, if it stands whole at the beginning of
/// `input`. A body may consist of nothing else, and a step for each byte takes seven times as long.
fn small_chunk(input: &[u8]) -> Option<&[u8]> {
    let size = match *input.first()? {
        digit @ b'1'..=b'9' => digit - b'0',
        digit @ (b'a'..=b'f' | b'A'..=b'F') => (digit | 0x20) - b'a' + 10,
        _ => return None,
    } as usize;
    let whole = input.get(1..size + SMALL_CHUNK_FRAMING_BYTES)?;
    whole.strip_prefix(b"\r\n")?.strip_suffix(b"\r\n")
}

/// How many bytes of `input` belong to a line of which `before` bytes were counted, and whether a
/// CR, which is one of them, ended it.
fn line(input: &[u8], before: u32, max: u32) -> Result<(u32, bool), HttpError> {
    let allowed = (max.saturating_sub(before) as usize).min(input.len());
    let end = memchr2(b'\r', b'\n', &input[..allowed]);
    let text = &input[..end.unwrap_or(allowed)];
    if text.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t') {
        return Err(BAD_LINE);
    }
    match end {
        Some(end) if input[end] == b'\r' => Ok((end as u32 + 1, true)),
        Some(_) => Err(BAD_LINE),
        None if allowed < input.len() => Err(TOO_MUCH),
        None => Ok((allowed as u32, false)),
    }
}

fn within(bytes: u32, max: u32) -> Result<(), HttpError> {
    if bytes > max { Err(TOO_MUCH) } else { Ok(()) }
}

const BAD_SIZE: HttpError = HttpError::new(
    400,
    "bad_chunk",
    "A chunk must begin with its size in 1 to 16 hexadecimal digits, then CR LF or ';'.",
);
const BAD_EXTENSION: HttpError = HttpError::new(
    400,
    "bad_chunk",
    "A chunk's extension must be a name, or a name, '=' and a value, which may be in quotes; leave \
     extensions out.",
);
const BAD_LINE: HttpError = HttpError::new(
    400,
    "bad_chunk",
    "A chunk's size, its data and the trailer's lines must each end in CR LF, without other \
     control characters before it; a trailer's line is a name, a colon and a value.",
);
const TOO_MUCH: HttpError = HttpError::new(
    400,
    "bad_chunk",
    "The chunk extensions or the trailer are longer than this server reads; leave them out.",
);
