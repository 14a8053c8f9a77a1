//! A file of lines in blocks that end where a line ends, each with its place.

use std::io::Read;

use crate::failure::{Failure, Result};

/// Bytes of a block, but for the rest of its last line.
pub const BLOCK_BYTES: usize = 1 << 20;
/// The server takes no longer line (`line_too_long` is 4,096 bytes).
const LINE_BYTES_MAX: usize = 1 << 20;

/// Some lines.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Their text.
    pub bytes: Vec<u8>,
    /// Where they end in the input, in bytes.
    pub end: u64,
    /// Number of the first, from 1 on; blank lines count.
    pub first_line: u64,
    /// How many.
    pub lines: u64,
}

/// Cuts an input into blocks.
#[derive(Debug)]
pub struct Blocks<R> {
    input: R,
    /// Of a line whose end wasn't read yet.
    rest: Vec<u8>,
    end: u64,
    line: u64,
}

impl<R: Read> Blocks<R> {
    /// Of an input that begins at this byte, behind so many lines.
    pub fn new(input: R, offset: u64, lines: u64) -> Self {
        Self { input, rest: Vec::new(), end: offset, line: lines + 1 }
    }

    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// If the input can't be read, or a line is longer than any that the server takes.
    pub fn next(&mut self) -> Result<Option<Block>> {
        let mut bytes = std::mem::take(&mut self.rest);
        let mut is_end = false;
        let cut = loop {
            if bytes.len() >= BLOCK_BYTES || is_end {
                if let Some(at) = memchr::memrchr(b'\n', &bytes) {
                    // The last line of the input needs no line end.
                    break if is_end { bytes.len() } else { at + 1 };
                }
                if is_end {
                    break bytes.len();
                }
                if bytes.len() >= BLOCK_BYTES + LINE_BYTES_MAX {
                    return Err(Failure::Usage(format!(
                        "line {} is longer than 1 MiB: this is no list of follows",
                        self.line
                    )));
                }
            }
            let mut part = (&mut self.input).take(BLOCK_BYTES as u64);
            let read = part.read_to_end(&mut bytes);
            is_end = read.map_err(Failure::io("can't read the input"))? < BLOCK_BYTES;
        };
        self.rest = bytes.split_off(cut);
        if bytes.is_empty() {
            return Ok(None);
        }
        let ends = memchr::memchr_iter(b'\n', &bytes).count() as u64;
        let lines = ends + u64::from(bytes.last() != Some(&b'\n'));
        let block =
            Block { end: self.end + bytes.len() as u64, first_line: self.line, lines, bytes };
        (self.end, self.line) = (block.end, self.line + lines);
        Ok(Some(block))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Gives a few bytes at each read.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let length = out.len().min(self.0.len()).min(70_001);
            let (now, later) = self.0.split_at(length);
            out[..length].copy_from_slice(now);
            self.0 = later;
            Ok(length)
        }
    }

    #[test]
    fn blocks_end_where_lines_end_and_nothing_is_lost() {
        let line = |number: u64| format!("{number} {}\n", "x".repeat((number % 97) as usize));
        let mut text: String = (1..60_000).map(line).collect();
        text.push_str("the end");
        let mut blocks = Blocks::new(Slow(text.as_bytes()), 0, 0);
        let (mut joined, mut lines) = (Vec::new(), 0);
        while let Some(block) = blocks.next().unwrap() {
            assert_eq!(block.first_line, lines + 1);
            assert!(block.bytes.len() <= BLOCK_BYTES + 70_001 || block.end == text.len() as u64);
            joined.extend_from_slice(&block.bytes);
            lines += block.lines;
            assert_eq!(block.end, joined.len() as u64);
            assert!(block.bytes.ends_with(b"\n") || block.end == text.len() as u64);
        }
        assert!(joined == text.as_bytes());
        assert_eq!(lines, 60_000);
    }

    #[test]
    fn an_input_without_a_line_end_is_one_line() {
        let mut blocks = Blocks::new(&b"a b"[..], 10, 5);
        let block = Block { bytes: b"a b".to_vec(), end: 13, first_line: 6, lines: 1 };
        assert_eq!(blocks.next().unwrap(), Some(block));
        assert_eq!(blocks.next().unwrap(), None);
        assert_eq!(Blocks::new(&b""[..], 0, 0).next().unwrap(), None);
    }

    #[test]
    fn what_has_no_lines_is_refused() {
        let text = vec![b'x'; 3 << 20];
        assert!(matches!(Blocks::new(&text[..], 0, 0).next(), Err(Failure::Usage(_))));
    }
}
