//! A set of slots of the table, one bit for each, that is walked in their order: 2.5 KB for 20,000.

/// A set of slots. Invariant: `count` is the number of bits that are set.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// Puts a slot in; false if it was there.
    pub fn set(&mut self, index: u32) -> bool {
        let (word, bit) = place(index);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let added = self.words.get_mut(word).is_some_and(|word| {
            let added = *word & bit == 0;
            *word |= bit;
            added
        });
        self.count += usize::from(added);
        added
    }

    /// Takes a slot out; false if it wasn't there.
    pub fn clear(&mut self, index: u32) -> bool {
        let (word, bit) = place(index);
        let removed = self.words.get_mut(word).is_some_and(|word| {
            let removed = *word & bit != 0;
            *word &= !bit;
            removed
        });
        self.count -= usize::from(removed);
        removed
    }

    /// Is a slot in it?
    pub fn has(&self, index: u32) -> bool {
        let (word, bit) = place(index);
        self.word(word) & bit != 0
    }

    /// Slots in it.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The first slot that is in it and not in `except`, looking from the word `from` on, which
    /// moves there.
    pub fn first(&self, from: &mut usize, except: &[Bits; 2]) -> Option<u32> {
        while let Some(word) = self.words.get(*from) {
            let word = except.iter().fold(*word, |word, bits| word & !bits.word(*from));
            if word != 0 {
                return Some(*from as u32 * u64::BITS + word.trailing_zeros());
            }
            *from += 1;
        }
        None
    }

    /// The word that a slot's bit is in.
    pub fn word_of(index: u32) -> usize {
        place(index).0
    }

    fn word(&self, place: usize) -> u64 {
        self.words.get(place).copied().unwrap_or(0)
    }

    /// All that are in it.
    pub fn all(&self) -> Vec<u32> {
        let (mut rest, mut from, mut all) = (self.clone(), 0, Vec::with_capacity(self.count));
        while let Some(index) = rest.first(&mut from, &Default::default()) {
            rest.clear(index);
            all.push(index);
        }
        all
    }
}

fn place(index: u32) -> (usize, u64) {
    ((index / u64::BITS) as usize, 1 << (index % u64::BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_walked_in_order_but_for_others() {
        let (mut bits, mut except) = (Bits::default(), <[Bits; 2]>::default());
        for index in [700, 3, 64, 65, 3] {
            bits.set(index);
        }
        assert_eq!((bits.len(), bits.all()), (4, vec![3, 64, 65, 700]));
        except[1].set(64);
        let mut from = 0;
        assert_eq!(bits.first(&mut from, &except), Some(3));
        assert!(bits.clear(3) && !bits.clear(3) && !bits.has(3));
        assert_eq!(bits.first(&mut from, &except), Some(65));
        assert_eq!(from, Bits::word_of(65));
        except[0].set(65);
        assert_eq!(bits.first(&mut from, &except), Some(700));
        assert!(bits.clear(700) && !bits.clear(7_000));
        assert_eq!(bits.first(&mut from, &except), None);
        assert_eq!(bits.all(), [64, 65]);
    }
}
