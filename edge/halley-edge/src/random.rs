//! Random numbers that spread clients over time. Not for secrets.

use std::hash::{BuildHasher, RandomState};

/// One worker's generator: xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled", 2016). Invariant: the state is never zero.
pub struct Random(u64);

impl Random {
    /// Seeded by the system, as the keys of hash maps are.
    pub fn new() -> Random {
        Random(RandomState::new().hash_one(std::process::id()) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from 0 to `most`, both included.
    pub fn up_to(&mut self, most: u64) -> u64 {
        // The high half of the product spreads the draw over the range without a division.
        let range = u128::from(most) + 1;
        ((u128::from(self.next()) * range) >> 64) as u64
    }

    /// From half to one and a half times `ms` (http.md 13.3).
    pub fn around(&mut self, ms: u32) -> u32 {
        let half = ms / 2;
        let drawn = u64::from(ms - half) + self.up_to(2 * u64::from(half));
        u32::try_from(drawn).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// http.md 13.3: "drawn from half to one and a half times `stream_retry_ms`".
    #[test]
    fn around_is_within_its_bounds_and_reaches_them() {
        let mut random = Random::new();
        let drawn: Vec<u32> = (0..20_000).map(|_| random.around(2_000)).collect();
        assert!(drawn.iter().all(|ms| (1_000..=3_000).contains(ms)));
        assert!(drawn.iter().any(|ms| *ms < 1_020) && drawn.iter().any(|ms| *ms > 2_980));
        let mean = drawn.iter().map(|ms| u64::from(*ms)).sum::<u64>() / 20_000;
        assert!((1_950..2_050).contains(&mean), "{mean}");
        assert!((0..100).all(|_| random.around(1) == 1));
        assert!((0..100).all(|_| random.up_to(0) == 0));
        random.around(u32::MAX);
        random.up_to(u64::MAX);
    }

    #[test]
    fn no_two_workers_draw_alike() {
        let (mut one, mut other) = (Random::new(), Random::new());
        assert_ne!([one.next(), one.next()], [other.next(), other.next()]);
    }
}
