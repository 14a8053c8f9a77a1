//! Things that few connections have at a time, named by a number of four bytes.
//!
//! A number that was given back is lent again, so what the thing had allocated may serve the next.
//! How many are kept for that follows the use: [`Slab::trim`], called now and then, keeps as many
//! as were lent at once since the last call.

/// Marks a connection that has none.
pub const NONE: u32 = u32::MAX;

/// See the module. Invariant: the numbers in `free` are below `items.len()`, each once.
#[derive(Default)]
pub struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
    /// Most that were lent at once since the last trim.
    most: usize,
}

impl<T: Default> Slab<T> {
    /// Lends one: a new one, or one that was left as it was given back.
    pub fn lend(&mut self) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.items.push(T::default());
            (self.items.len() - 1) as u32
        });
        self.most = self.most.max(self.lent());
        number
    }

    /// What was lent under this number.
    pub fn get(&mut self, number: u32) -> Option<&mut T> {
        self.items.get_mut(number as usize)
    }

    /// Takes it back. The number must have been lent.
    pub fn give_back(&mut self, number: u32) {
        self.free.push(number);
    }

    /// How many are lent.
    pub fn lent(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Gives memory back after many were lent at once. What is free and not kept is emptied; what
    /// is free at the end goes, and the next are lent from the beginning, so that the end becomes
    /// free.
    pub fn trim(&mut self) {
        let lent = self.lent();
        let kept = std::mem::replace(&mut self.most, lent) - lent;
        if self.free.len() <= kept {
            return;
        }
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        let gone = self.free.len() - kept;
        for number in &self.free[..gone] {
            self.items[*number as usize] = T::default();
        }
        let is_last = |place: usize| self.free[place] as usize + 1 == self.items.len() - place;
        let cut = (0..gone).take_while(|place| is_last(*place)).count();
        self.free.drain(..cut);
        self.items.truncate(self.items.len() - cut);
        self.free.shrink_to(2 * self.free.len());
        self.items.shrink_to(2 * self.items.len());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A broadcast to everyone must not cost memory for ever.
    #[test]
    fn a_slab_shrinks_again() {
        let mut slab = Slab::<Vec<u8>>::default();
        let lent: Vec<u32> = (0..50_000).map(|_| slab.lend()).collect();
        slab.get(20_000).unwrap().push(7);
        lent.iter().filter(|n| **n != 20_000).for_each(|n| slab.give_back(*n));
        slab.trim();
        assert_eq!(slab.items.len(), 50_000, "as many were lent since the last time");
        slab.trim();
        assert_eq!(slab.items.len(), 20_001, "up to the one that is lent");
        assert_eq!(slab.get(20_000).unwrap(), &[7]);
        let mut again: Vec<u32> = (0..20_000).map(|_| slab.lend()).collect();
        assert_eq!((again[0], slab.items.len()), (0, 20_001), "lent from the beginning");
        again.sort_unstable();
        assert!(again.windows(2).all(|pair| pair[0] < pair[1]), "none twice");
        again.push(20_000);
        again.iter().for_each(|n| slab.give_back(*n));
        slab.trim();
        slab.trim();
        assert_eq!((slab.items.len(), slab.free.len(), slab.items.capacity()), (0, 0, 0));
    }

    /// What was lent lately is ready to be lent again, with what it had allocated.
    #[test]
    fn what_is_in_use_is_kept() {
        let mut slab = Slab::<Vec<u8>>::default();
        for _ in 0..3 {
            let lent: Vec<u32> = (0..10).map(|_| slab.lend()).collect();
            for number in lent {
                slab.get(number).unwrap().reserve(100);
                slab.give_back(number);
            }
            slab.trim();
        }
        let number = slab.lend();
        assert!(slab.get(number).unwrap().capacity() >= 100);
    }
}
