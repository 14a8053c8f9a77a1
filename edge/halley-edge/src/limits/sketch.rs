//! Numbers by the hash of an address or user, for all workers together, in a table that doesn't
//! grow.
//!
//! Each hash has two cells, one in each of two rows, by two parts of the hash: two hashes that
//! share one cell rarely share the other. Its users define the meaning of a cell (`address.rs`,
//! `rates.rs`). Bound: 256 KB, taken at the first look-up.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

/// Sketch in each of the two rows.
const ROW: usize = 1 << Key::BITS;

/// Somebody's hash, of as many bits as name two cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub(crate) u32);

impl Key {
    /// Bits of a place in a row.
    pub const BITS: u32 = 15;
    /// Those of a key.
    pub const MASK: u32 = (1 << (2 * Key::BITS)) - 1;

    /// The places, one in each row.
    pub fn places(self) -> [usize; 2] {
        let place = |shift: u32| (self.0 >> shift) as usize % ROW;
        [place(0), ROW + place(Key::BITS)]
    }
}

/// See the module; a cell is 0 at first.
#[derive(Default)]
pub struct Sketch(OnceLock<Box<[AtomicU32]>>);

impl Sketch {
    /// All of them.
    pub fn all(&self) -> &[AtomicU32] {
        self.0.get_or_init(|| (0..2 * ROW).map(|_| AtomicU32::new(0)).collect())
    }

    /// Somebody's two.
    pub fn of(&self, key: Key) -> [&AtomicU32; 2] {
        let all = self.all();
        key.places().map(|place| &all[place])
    }
}
