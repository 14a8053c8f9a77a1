//! Names of connections and workers on a trunk (`protocol/link.md` 13).

use crate::wire::Reader;
use crate::{CONN_LIMIT, Error, Item};

const CONN_BITS: u32 = CONN_LIMIT.trailing_zeros();

/// A connection of any worker: the worker's slot, and the connection's id there (13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word(u64);

impl Word {
    /// The connection with this id at the worker with this slot; of an id only the bits that one
    /// may have.
    #[must_use]
    pub fn new(slot: u16, conn: u64) -> Word {
        Word(u64::from(slot) << CONN_BITS | conn & (CONN_LIMIT - 1))
    }

    /// The worker's slot.
    #[must_use]
    pub fn slot(self) -> u16 {
        (self.0 >> CONN_BITS) as u16
    }

    /// The connection's id.
    #[must_use]
    pub fn conn(self) -> u64 {
        self.0 & (CONN_LIMIT - 1)
    }
}

impl<'a> Item<'a> for Word {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Word(from.u64()?))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_be_bytes());
    }
}

/// What the brain calls a worker on this trunk (13.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u16);

impl<'a> Item<'a> for Slot {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Slot(from.u16()?))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_its_slot_and_its_connection() {
        for slot in [0, 1, 1_023, u16::MAX] {
            for conn in [0, 7, CONN_LIMIT - 1] {
                let word = Word::new(slot, conn);
                assert_eq!((word.slot(), word.conn()), (slot, conn));
            }
        }
        assert_eq!(Word::new(5, CONN_LIMIT | 3), Word::new(5, 3));
    }
}
