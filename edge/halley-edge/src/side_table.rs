//! A table next to that of the slots, for data that only some connections have: by a slot's index,
//! in chunks. A connection without it takes no memory while no neighbour has ever had it. A chunk
//! that was made stays, as the slots themselves do: the next connections are likely to need it
//! again.

/// Slots whose places are allocated together.
const CHUNK: usize = 1_024;

/// See the module. What nobody set is the type's default.
#[derive(Default)]
pub struct SideTable<T>(Vec<Option<Box<[T]>>>);

impl<T: Default> SideTable<T> {
    /// The slot's place, unless there is none yet.
    pub fn place(&mut self, index: u32) -> Option<&mut T> {
        let index = index as usize;
        self.0.get_mut(index / CHUNK)?.as_mut()?.get_mut(index % CHUNK)
    }

    /// The slot's place, which is made if need be.
    pub fn make(&mut self, index: u32) -> &mut T {
        let (chunk, place) = (index as usize / CHUNK, index as usize % CHUNK);
        if self.0.len() <= chunk {
            self.0.resize_with(chunk + 1, || None);
        }
        let chunk = &mut self.0[chunk];
        &mut chunk.get_or_insert_with(|| (0..CHUNK).map(|_| T::default()).collect())[place]
    }
}

impl<T: Copy + Default + PartialEq> SideTable<T> {
    /// What was set.
    pub fn get(&self, index: u32) -> T {
        let chunk = self.0.get(index as usize / CHUNK).and_then(Option::as_ref);
        chunk.map_or_else(T::default, |chunk| chunk[index as usize % CHUNK])
    }

    /// Sets it; the default makes no place.
    pub fn set(&mut self, index: u32, value: T) {
        if value != self.get(index) {
            *self.make(index) = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chunk for what is set, nothing for what isn't.
    #[test]
    fn by_index() {
        let mut side_table = SideTable::<u32>::default();
        side_table.set(5_000, 0);
        assert!(side_table.0.is_empty() && side_table.place(5_000).is_none());
        side_table.set(5_000, 7);
        assert_eq!([4_999, 5_000, 9_000].map(|index| side_table.get(index)), [0, 7, 0]);
        assert_eq!(side_table.0.iter().flatten().map(|chunk| chunk.len()).sum::<usize>(), CHUNK);
        side_table.set(5_000, 0);
        assert_eq!((side_table.get(5_000), side_table.place(5_000)), (0, Some(&mut 0)));
        *side_table.make(70_000) = 1;
        assert_eq!(side_table.get(70_000), 1);
    }
}
