//! The bytes that wait to be written to one connection.
//!
//! An outbox holds shared bytes: an event is encoded once and every outbox holds a reference.
//! Outboxes are lent from a pool for as long as something waits; an idle connection has none.
//! `pieces.rs` encodes events for them, `slow.rs` says what is dropped for a slow client.
//!
//! Bounds: `outbox_bytes_max` per connection and `outboxes_bytes_max` in all, kept by
//! `conns/write.rs`, which fills them.

pub mod pieces;
pub mod slow;

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::rc::Rc;

use crate::outbox::slow::ToldGap;
pub use crate::slab::NONE;
use crate::slab::Slab;

/// Most pieces in one write; more than the kernel takes at once (`IOV_MAX`) can't be useful.
const PIECES_MAX: usize = 64;
/// An outbox that grew beyond this many places is freed, not kept.
const SPARE_PLACES_MAX: usize = 16;

/// What is known of an event that waits, so that a slow consumer's outbox can be relieved of it.
/// Made once per event, and only when `slow_consumer` asks for more than a disconnect.
#[derive(Debug, PartialEq, Eq)]
pub struct EventMark {
    /// The event's time, in milliseconds since 1970.
    pub at: u64,
    /// What it is about.
    pub subject: Box<[u8]>,
}

/// Bytes that are written together.
#[derive(Clone, Debug)]
pub struct Piece {
    /// As they go to the socket.
    pub bytes: Rc<[u8]>,
    /// The event that they are, if they are one that may be dropped.
    pub event: Option<Rc<EventMark>>,
}

impl Piece {
    /// Its bytes' number.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl From<Rc<[u8]>> for Piece {
    fn from(bytes: Rc<[u8]>) -> Piece {
        Piece { bytes, event: None }
    }
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Piece {
        Rc::<[u8]>::from(bytes).into()
    }
}

impl From<&[u8]> for Piece {
    fn from(bytes: &[u8]) -> Piece {
        Rc::<[u8]>::from(bytes).into()
    }
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// All was written.
    Empty,
    /// The socket is full; the rest waits.
    Blocked,
}

/// The end of a write, the bytes written and the number of writes.
pub type Flushed = io::Result<(Flush, usize, u64)>;

/// One connection's outbox. Invariant: `done < pieces[0].len()` unless empty, and `bytes` is the
/// sum of the pieces without `done`.
#[derive(Default)]
pub struct Outbox {
    pub(crate) pieces: VecDeque<Piece>,
    pub(crate) done: usize,
    pub(crate) bytes: usize,
    /// When the socket took something last, or didn't for the first time; 0 before that.
    moved_ms: u64,
    /// See [`Outbox::force`].
    forced: bool,
    pub(crate) gap: Option<Box<ToldGap>>,
}

impl Outbox {
    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Pieces that wait.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// For how long the socket has taken nothing of what waits.
    pub fn stalled_ms(&self, now_ms: u64) -> u64 {
        if self.moved_ms == 0 { 0 } else { now_ms.saturating_sub(self.moved_ms) }
    }

    /// Did the socket not take all of what waits?
    pub fn was_full(&self) -> bool {
        self.moved_ms != 0
    }

    /// The socket was full, after it took `bytes`.
    pub fn blocked(&mut self, bytes: usize, now_ms: u64) {
        if bytes > 0 || self.moved_ms == 0 {
            self.moved_ms = now_ms.max(1);
        }
    }

    /// Nobody waits any more, until it is empty, for room in it (`groups/fan_out.rs`).
    pub fn force(&mut self) {
        self.forced = true;
    }

    /// See [`Outbox::force`].
    pub fn is_forced(&self) -> bool {
        self.forced
    }

    /// Appends a piece.
    pub fn push(&mut self, piece: Piece) {
        if !piece.bytes.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Writes until empty or blocked.
    ///
    /// # Errors
    /// What the socket says; the connection is lost then.
    pub fn flush(&mut self, socket: &mut impl Write) -> Flushed {
        let (mut written, mut writes) = (0, 0);
        while self.bytes > 0 {
            writes += 1;
            let result = match (self.pieces.front(), self.pieces.len()) {
                (Some(piece), 1) => socket.write(&piece.bytes[self.done..]),
                _ => self.write_pieces(socket),
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    written += n;
                    self.advance(n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((Flush::Blocked, written, writes));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok((Flush::Empty, written, writes))
    }

    fn write_pieces(&self, socket: &mut impl Write) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            let skip = if count == 0 { self.done } else { 0 };
            *slice = IoSlice::new(&piece.bytes[skip..]);
            count += 1;
        }
        socket.write_vectored(&slices[..count])
    }

    /// Appends a copy of the first bytes that wait, `most` of them at most.
    pub fn copy(&self, out: &mut Vec<u8>, most: usize) {
        let mut skip = self.done;
        for piece in &self.pieces {
            let bytes = piece.bytes.get(skip..).unwrap_or_default();
            let room = most.saturating_sub(out.len());
            if room == 0 {
                return;
            }
            out.extend_from_slice(&bytes[..bytes.len().min(room)]);
            skip = 0;
        }
    }

    /// The first `n` bytes need wait no longer.
    pub fn advance(&mut self, n: usize) {
        let n = n.min(self.bytes);
        self.bytes -= n;
        self.done += n;
        while let Some(piece) = self.pieces.front() {
            if self.done < piece.len() {
                break;
            }
            self.done -= piece.len();
            self.pieces.pop_front();
        }
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.done = 0;
        self.bytes = 0;
        self.moved_ms = 0;
        self.forced = false;
        self.gap = None;
    }
}

/// The worker's outboxes. A connection holds a number; [`NONE`] when nothing waits.
#[derive(Default)]
pub struct Pool(Slab<Outbox>);

impl Pool {
    /// Lends an empty outbox.
    pub fn lend(&mut self) -> u32 {
        self.0.lend()
    }

    /// Gives memory back after many were lent at once.
    pub fn trim(&mut self) {
        self.0.trim();
    }

    /// The outbox that was lent as `number`.
    pub fn get(&mut self, number: u32) -> Option<&mut Outbox> {
        self.0.get(number)
    }

    /// Takes an outbox back; what is in it is dropped. Gives how many bytes that was.
    pub fn take_back(&mut self, number: u32) -> usize {
        let Some(outbox) = self.0.get(number) else { return 0 };
        let dropped = outbox.bytes;
        if outbox.pieces.capacity() <= SPARE_PLACES_MAX {
            outbox.clear();
        } else {
            *outbox = Outbox::default();
        }
        self.0.give_back(number);
        dropped
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A socket that takes `room` bytes and then blocks, at most `step` at once.
    struct Narrow {
        got: Vec<u8>,
        room: usize,
        step: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.room).min(self.step);
            if n == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.room -= n;
            self.got.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn order_is_kept_over_partial_writes() {
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for i in 0..200u8 {
            let piece: Rc<[u8]> = vec![i; usize::from(i % 7) + 1].into();
            expected.extend_from_slice(&piece);
            outbox.push(piece.into());
        }
        let mut socket = Narrow { got: Vec::new(), room: 0, step: 3 };
        assert_eq!(outbox.flush(&mut socket).unwrap(), (Flush::Blocked, 0, 1));
        for _ in 0..expected.len() {
            socket.room = 5;
            if outbox.flush(&mut socket).unwrap().0 == Flush::Empty {
                break;
            }
        }
        assert_eq!(outbox.bytes(), 0);
        assert_eq!(socket.got, expected);
    }

    #[test]
    fn an_outbox_comes_back_empty() {
        let mut pool = Pool::default();
        let index = pool.lend();
        pool.get(index).unwrap().push(vec![1, 2, 3].into());
        assert_eq!(pool.take_back(index), 3);
        assert_eq!(pool.lend(), index);
        assert_eq!(pool.get(index).unwrap().bytes(), 0);
    }
}
