//! Cuts a byte stream into frames (2.1).

use crate::{Error, FRAME_BYTES_MAX};

/// How much room a read is offered at least.
const READ_BYTES: usize = 65_536;

/// A frame as it lies in the buffer, for [`crate::Frame::decode`].
#[derive(Clone, Copy, Debug)]
pub struct RawFrame<'a> {
    /// Type byte.
    pub kind: u8,
    /// What follows the type byte.
    pub payload: &'a [u8],
    /// What it costs of the window: the whole frame with its length prefix.
    pub cost: usize,
}

/// A growing buffer between the socket and the frames.
/// Invariant: `start <= end <= buffer.len()`, and `buffer[start..end]` is what was read and not yet
/// handed out.
/// It never grows beyond a frame of the largest size and one read.
#[derive(Default)]
pub struct Deframer {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Deframer {
    /// An empty one; allocates with the first [`Deframer::space`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for the next read, at least 64 KiB.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        if self.buffer.len() - self.end < READ_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.buffer.len() - self.end < READ_BYTES {
                self.buffer.resize(self.end + READ_BYTES, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// `n` bytes of [`Deframer::space`] were filled.
    pub fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.buffer.len());
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// 2.1 when the length is out of bounds; the stream can't be read on.
    #[allow(clippy::should_implement_trait, reason = "lends from self, which Iterator can't")]
    pub fn next(&mut self) -> Result<Option<RawFrame<'_>>, Error> {
        let pending = &self.buffer[self.start..self.end];
        let Some((prefix, rest)) = pending.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length == 0 || length > FRAME_BYTES_MAX {
            return Err(Error::new("2.1", "frame length is out of bounds"));
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.start += 4 + length;
        let split = rest[..length].split_first();
        Ok(split.map(|(kind, payload)| RawFrame { kind: *kind, payload, cost: 4 + length }))
    }
}
