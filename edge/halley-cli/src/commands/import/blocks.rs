//! A file of lines in blocks that end where a line ends, each with its place.

use std::io::Read;

use super::state::Mark;
use crate::failure::{Failure, Result};

/// Bytes of a block at most: the longest body that nginx passes on by default. The server takes no
/// line that is as long (`line_too_long` is 4,096 bytes).
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Some lines.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Their text.
    pub bytes: Vec<u8>,
    /// Where they are.
    pub place: Place,
}

/// Where a block is in the input.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// Its end, in bytes.
    pub end: u64,
    /// The mark of the input up to there.
    pub mark: String,
    /// Number of the first line, from 1 on; blank lines count.
    pub first_line: u64,
    /// How many lines.
    pub lines: u64,
}

/// Cuts an input into blocks.
pub struct Blocks<R> {
    input: R,
    /// Of a line whose end wasn't read yet.
    rest: Vec<u8>,
    end: u64,
    mark: Mark,
    line: u64,
}

impl<R: Read> Blocks<R> {
    /// Of an input that begins at this byte, behind so many lines, with the mark up to there.
    pub fn new(input: R, offset: u64, mark: Mark, lines: u64) -> Self {
        Self { input, rest: Vec::new(), end: offset, mark, line: lines + 1 }
    }

    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// If the input can't be read, or a line is longer than any that the server takes.
    pub fn next(&mut self) -> Result<Option<Block>> {
        let mut bytes = std::mem::take(&mut self.rest);
        let room = BLOCK_BYTES_MAX - bytes.len();
        let mut part = (&mut self.input).take(room as u64);
        let read = part.read_to_end(&mut bytes).map_err(Failure::io("can't read the input"))?;
        // The last line of the input needs no line end.
        let end = if read < room { Some(bytes.len()) } else { after_line_end(&bytes) };
        let Some(end) = end else {
            return Err(Failure::Usage(format!(
                "line {} is longer than 1 MiB: this is no list of follows",
                self.line
            )));
        };
        self.rest = bytes.split_off(end);
        if bytes.is_empty() {
            return Ok(None);
        }
        let ends = memchr::memchr_iter(b'\n', &bytes).count() as u64;
        let lines = ends + u64::from(bytes.last() != Some(&b'\n'));
        self.mark.add(&bytes);
        self.end += bytes.len() as u64;
        let place = Place { end: self.end, mark: self.mark.text(), first_line: self.line, lines };
        self.line += lines;
        Ok(Some(Block { bytes, place }))
    }
}

/// Behind the last line end.
fn after_line_end(bytes: &[u8]) -> Option<usize> {
    memchr::memrchr(b'\n', bytes).map(|at| at + 1)
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
        let mut blocks = Blocks::new(Slow(text.as_bytes()), 0, Mark::new(), 0);
        let (mut joined, mut lines, mut mark) = (Vec::new(), 0, Mark::new());
        while let Some(Block { bytes, place }) = blocks.next().unwrap() {
            assert_eq!(place.first_line, lines + 1);
            assert!(bytes.len() <= BLOCK_BYTES_MAX);
            joined.extend_from_slice(&bytes);
            mark.add(&bytes);
            lines += place.lines;
            assert_eq!((place.end, place.mark), (joined.len() as u64, mark.text()));
            assert!(bytes.ends_with(b"\n") || joined.len() == text.len());
        }
        assert!(joined == text.as_bytes());
        assert_eq!(lines, 60_000);
    }

    #[test]
    fn an_input_without_a_line_end_is_one_line() {
        let mut blocks = Blocks::new(&b"a b"[..], 10, Mark::new(), 5);
        let mut mark = Mark::new();
        mark.add(b"a b");
        let place = Place { end: 13, mark: mark.text(), first_line: 6, lines: 1 };
        assert_eq!(blocks.next().unwrap(), Some(Block { bytes: b"a b".to_vec(), place }));
        assert_eq!(blocks.next().unwrap(), None);
        assert_eq!(Blocks::new(&b""[..], 0, Mark::new(), 0).next().unwrap(), None);
    }

    #[test]
    fn what_has_no_lines_is_refused() {
        let text = vec![b'x'; 3 << 20];
        let mut blocks = Blocks::new(&text[..], 0, Mark::new(), 0);
        assert!(matches!(blocks.next(), Err(Failure::Usage(_))));
    }
}
