//! From sockets to buffers, under TLS or not.

use std::io::Read;

use halley_link::CloseReason;

use crate::conns::table::{Phase, flag};
use crate::conns::{Conns, Hung, READ_BYTES};
use crate::outbox;
use crate::stats::Stat;

/// Reads of one connection before others have their turn.
pub const READS_PER_TURN: usize = 4;

impl<D: Hung> Conns<D> {
    /// Reads once into a buffer of [`READ_BYTES`]: `room` bytes at most, or those of a TLS record;
    /// `None` when there is nothing more now, or when that was the end of the connection.
    pub fn read(&mut self, index: u32, buffer: &mut [u8], room: usize) -> Option<usize> {
        if self.speaks_tls() && self.is_sealed(index) {
            return self.read_sealed(index, buffer, room);
        }
        self.read_socket(index, buffer.get_mut(..room)?)
    }

    /// Reads what the socket has; otherwise like [`Conns::read`].
    pub(in crate::conns) fn read_socket(&mut self, index: u32, buffer: &mut [u8]) -> Option<usize> {
        loop {
            let slot = self.table.get(index).filter(|slot| !slot.has(flag::DOOMED))?;
            match slot.socket.as_mut()?.read(buffer) {
                Ok(n) if n > 0 => return Some(n),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return None,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(_) => {
                    self.said_all(index);
                    return None;
                }
                Err(_) => {
                    self.stats.count(Stat::Vanished);
                    self.doom(index, CloseReason::Vanished);
                    return None;
                }
            }
        }
    }

    /// The client closed its side. One that asked may still wait for what is in the outbox.
    pub(in crate::conns) fn said_all(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        let waits = slot.outbox != outbox::NONE;
        match slot.phase() {
            Phase::Http if waits => self.doom_gently(index, CloseReason::Client),
            Phase::Closing if waits => {}
            _ => self.doom(index, CloseReason::Client),
        }
    }

    /// Throws away what a closing connection still sends.
    pub fn discard(&mut self, index: u32) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let more =
            (0..READS_PER_TURN).all(|_| self.read(index, &mut scratch, READ_BYTES).is_some());
        self.scratch = scratch;
        if more {
            self.turn_is_over(index);
        }
    }
}
