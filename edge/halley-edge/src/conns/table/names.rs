//! The ids of a worker's users, packed: places of the id's length and a byte, rounded up to four,
//! in chunks for each such size. An id is named by four bytes, the size and the place; an
//! allocation of its own would take a pointer, a length and an allocator's rounding for seven bytes
//! of text.
//!
//! Not interned: a user with several connections to one worker is rare, and finding it would cost
//! more than the bytes.

/// Sizes: 4, 8, … 256 bytes for ids of at most 3, 7, … 255.
const SIZES: usize = 64;
const STEP_BYTES: usize = 4;
const PLACES_PER_CHUNK: usize = 256;
const PLACE_BITS: u32 = 26;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
/// End of a list of free places.
const END: u32 = u32::MAX;

/// Names an id; [`Name::NONE`] the empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(u32);

impl Name {
    /// No id.
    pub const NONE: Name = Name(u32::MAX);
}

impl Default for Name {
    fn default() -> Name {
        Name::NONE
    }
}

/// Places of one size. Invariant: `free` begins a list of `places - used` places, each of which
/// holds the number of the next.
struct Size {
    chunks: Vec<Box<[u8]>>,
    free: u32,
    used: u32,
}

impl Default for Size {
    fn default() -> Self {
        Size { chunks: Vec::new(), free: END, used: 0 }
    }
}

impl Size {
    fn place(&mut self, place: u32, bytes: usize) -> Option<&mut [u8]> {
        let place = place as usize;
        let chunk = self.chunks.get_mut(place / PLACES_PER_CHUNK)?;
        chunk.chunks_exact_mut(bytes).nth(place % PLACES_PER_CHUNK)
    }

    fn grow(&mut self, bytes: usize) {
        let first = (self.chunks.len() * PLACES_PER_CHUNK) as u32;
        self.chunks.push(vec![0; bytes * PLACES_PER_CHUNK].into());
        for place in (first..first + PLACES_PER_CHUNK as u32).rev() {
            self.free_place(place, bytes);
        }
    }

    fn free_place(&mut self, place: u32, bytes: usize) {
        let next = self.free;
        if let Some(link) = self.place(place, bytes).and_then(|p| p.first_chunk_mut()) {
            *link = next.to_le_bytes();
            self.free = place;
        }
    }
}

/// See the module.
pub struct Names {
    sizes: [Size; SIZES],
}

impl Default for Names {
    fn default() -> Self {
        Names { sizes: std::array::from_fn(|_| Size::default()) }
    }
}

impl Names {
    /// Keeps an id of at most 255 bytes; a longer one, or none, is [`Name::NONE`].
    pub fn keep(&mut self, id: &[u8]) -> Name {
        let Ok(length @ 1..) = u8::try_from(id.len()) else { return Name::NONE };
        let number = id.len() / STEP_BYTES;
        let bytes = (number + 1) * STEP_BYTES;
        let size = &mut self.sizes[number];
        if size.free == END {
            size.grow(bytes);
        }
        let place = size.free;
        let Some(kept) = size.place(place, bytes) else { return Name::NONE };
        let next = kept.first_chunk().map_or(END, |link| u32::from_le_bytes(*link));
        kept[0] = length;
        kept[1..=id.len()].copy_from_slice(id);
        size.free = next;
        size.used += 1;
        Name((number as u32) << PLACE_BITS | place)
    }

    /// The id; empty for [`Name::NONE`].
    pub fn get(&self, name: Name) -> &[u8] {
        let number = (name.0 >> PLACE_BITS) as usize;
        let place = (name.0 & PLACE_MASK) as usize;
        let bytes = (number + 1) * STEP_BYTES;
        let chunk = self.sizes[number].chunks.get(place / PLACES_PER_CHUNK);
        let kept = chunk.and_then(|chunk| chunk.chunks_exact(bytes).nth(place % PLACES_PER_CHUNK));
        kept.and_then(|kept| kept.get(1..=usize::from(kept[0]))).unwrap_or_default()
    }

    /// Forgets an id; its name must not be used again. When it was the last of its size, the
    /// chunks go.
    pub fn forget(&mut self, name: Name) {
        if name == Name::NONE {
            return;
        }
        let number = (name.0 >> PLACE_BITS) as usize;
        let size = &mut self.sizes[number];
        size.free_place(name.0 & PLACE_MASK, (number + 1) * STEP_BYTES);
        size.used = size.used.saturating_sub(1);
        if size.used == 0 {
            *size = Size::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn every_length_is_kept() {
        let mut names = Names::default();
        let ids: Vec<Vec<u8>> = (0..=255u8).map(|n| vec![n; n.into()]).collect();
        let kept: Vec<Name> = ids.iter().map(|id| names.keep(id)).collect();
        for (id, name) in ids.iter().zip(&kept) {
            assert_eq!(names.get(*name), id);
        }
        assert_eq!(kept[0], Name::NONE);
        assert_eq!(names.keep(&[1; 256]), Name::NONE);
        kept.into_iter().for_each(|name| names.forget(name));
        assert!(names.sizes.iter().all(|size| size.chunks.is_empty()));
    }

    proptest! {
        /// Against a map: whatever is kept and forgotten in whatever order, each name has its id.
        #[test]
        fn each_name_has_its_id(steps in prop::collection::vec((0u16..600, 1usize..12), 0..3_000)) {
            let (mut names, mut model) = (Names::default(), HashMap::new());
            for (key, length) in steps {
                if let Some((name, _)) = model.remove(&key) {
                    names.forget(name);
                } else {
                    let id: Vec<u8> = key.to_be_bytes().into_iter().cycle().take(length).collect();
                    model.insert(key, (names.keep(&id), id));
                }
            }
            for (name, id) in model.values() {
                prop_assert_eq!(names.get(*name), &id[..]);
            }
        }
    }
}
