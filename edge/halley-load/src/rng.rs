//! Random numbers that are the same for the same seed, today and after any upgrade of a library.
//!
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), used
//! both as a generator and, by its finishing function, as a hash. Not for secrets.

/// The odd constant nearest to 2^64 divided by the golden ratio: SplitMix64's step.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finishing function: a bijection of u64 in which every input bit reaches every
/// output bit.
#[must_use]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The hash of a position under a key: what a generator seeded by `key` gives at its `position`th
/// step, without the steps before it.
#[must_use]
pub fn hash(key: u64, position: u64) -> u64 {
    mix(key.wrapping_add(position.wrapping_add(1).wrapping_mul(STEP)))
}

/// Maps a uniform u64 to `0..bound` by multiplication (Lemire 2019, without the rejection: the
/// bias is below `bound / 2^64`). `bound` 0 gives 0.
#[must_use]
pub fn scale(uniform: u64, bound: u64) -> u64 {
    ((u128::from(uniform) * u128::from(bound)) >> 64) as u64
}

/// A generator.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose whole sequence is determined by `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ STEP))
    }

    /// The next uniform u64.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Uniform in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.next(), bound)
    }

    /// Uniform in `[0, 1)`, with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts `items` into a uniformly random order (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_sequence() {
        // The reference implementation's first outputs for seed 1234567.
        let first: Vec<u64> = (0..3).map(|position| hash(1_234_567, position)).collect();
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn below_reaches_all_and_only_what_is_below() {
        let mut rng = Rng::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[rng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
    }

    #[test]
    fn shuffle_is_a_permutation_and_moves_most() {
        let mut items: Vec<u32> = (0..1000).collect();
        Rng::new(3).shuffle(&mut items);
        let in_place = items.iter().zip(0..).filter(|&(&item, i)| item == i).count();
        assert!(in_place < 10);
        items.sort_unstable();
        assert!(items.iter().copied().eq(0..1000));
    }
}
