//! Deadlines of connections: a coarse timer wheel.
//!
//! A connection's deadline lives in its slot and may be moved at will; the wheel only schedules a
//! check of the connection, not later than some tick: its index in a bucket, and which [`Bucket`]
//! that is in its slot. A stale entry (its slot names another bucket, or none) is ignored: an
//! earlier check overtook it, or the slot is another connection's. A check that comes early (the
//! deadline was moved on, or lies beyond the horizon) is scheduled again by the caller; so a busy
//! connection costs one entry per turn of the wheel, not one per request, and an idle one nothing.

use std::num::NonZeroU8;

/// Length of a tick.
pub const TICK_MS: u64 = 64;
/// The horizon, in ticks. Short, because what a storm of new connections leaves in the wheel is
/// there for so long.
const BUCKETS: u64 = 128;

/// The bucket of a check, counted from 1.
pub type Bucket = NonZeroU8;

/// Ticks are counted from the worker's start. Invariant: the bucket of the tick that was dealt with
/// last is empty.
pub struct Wheel {
    buckets: Vec<Vec<u32>>,
    done: u64,
}

impl Wheel {
    /// An empty wheel at tick 0.
    pub fn new() -> Self {
        Wheel { buckets: vec![Vec::new(); BUCKETS as usize], done: 0 }
    }

    /// Schedules a check of the connection `index` at `tick`, or at the wheel's horizon if that is
    /// nearer.
    pub fn schedule(&mut self, tick: u64, index: u32) -> Bucket {
        let tick = tick.clamp(self.done + 1, self.done + BUCKETS - 1);
        let bucket = tick % BUCKETS;
        self.buckets[bucket as usize].push(index);
        named(bucket)
    }

    /// The tick of the checks in this bucket.
    pub fn tick(&self, bucket: Bucket) -> u64 {
        let next = self.done + 1;
        next + (u64::from(bucket.get()) - 1 + BUCKETS - next % BUCKETS) % BUCKETS
    }

    /// Takes the checks that were scheduled up to `tick`, one bucket a call; `None` when all are
    /// taken.
    pub fn due(&mut self, tick: u64) -> Option<(Bucket, Vec<u32>)> {
        while self.done < tick {
            self.done += 1;
            let number = self.done % BUCKETS;
            let bucket = &mut self.buckets[number as usize];
            if !bucket.is_empty() {
                return Some((named(number), std::mem::take(bucket)));
            }
        }
        None
    }
}

fn named(bucket: u64) -> Bucket {
    Bucket::MIN.saturating_add(bucket as u8)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn checks_come_at_their_tick_and_once() {
        let mut wheel = Wheel::new();
        let first = wheel.schedule(5, 1);
        let past = wheel.schedule(0, 2);
        let far = wheel.schedule(1_000_000, 3);
        assert_eq!(wheel.tick(first), 5);
        assert_eq!(wheel.tick(past), 1, "the past is the next tick");
        assert_eq!(wheel.tick(far), BUCKETS - 1, "the horizon");
        assert_eq!(wheel.due(4), Some((past, vec![2])));
        assert_eq!(wheel.due(4), None);
        assert_eq!(wheel.due(2_000), Some((first, vec![1])));
        assert_eq!(wheel.due(2_000), Some((far, vec![3])));
        assert_eq!(wheel.due(2_000), None);
    }

    #[test]
    fn a_bucket_tells_its_tick_wherever_the_wheel_stands() {
        let mut wheel = Wheel::new();
        for now in 0..3 * BUCKETS {
            while wheel.due(now).is_some() {}
            for ahead in 1..BUCKETS {
                let bucket = wheel.schedule(now + ahead, 0);
                assert_eq!(wheel.tick(bucket), now + ahead);
            }
        }
    }
}
