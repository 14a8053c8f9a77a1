//! Deadlines of connections: a coarse timer wheel.
//!
//! A connection's deadline lives in its slot and may be moved at will; the wheel only holds the
//! promise to look at the connection not later than some tick. An entry that fires early (the
//! deadline was moved on) is put in again by the caller; so a busy connection costs one entry per
//! turn of its deadline, not one per request.

/// Length of a tick.
pub const TICK_MS: u64 = 64;
const SLOTS: u64 = 1_024;

/// One look at a connection: its slot and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Index in the table.
    pub index: u32,
    /// Generation of the slot when the look was promised.
    pub generation: u32,
}

/// Ticks are counted from the worker's start. Invariant: every bucket but those of the next
/// [`SLOTS`] ticks is empty.
pub struct Wheel {
    buckets: Vec<Vec<Look>>,
    done: u64,
}

impl Wheel {
    /// An empty wheel at tick 0.
    pub fn new() -> Self {
        Wheel { buckets: vec![Vec::new(); SLOTS as usize], done: 0 }
    }

    /// Promises a look at `tick`, or at the wheel's horizon if that is nearer. Gives the tick.
    pub fn promise(&mut self, tick: u64, look: Look) -> u64 {
        let tick = tick.clamp(self.done + 1, self.done + SLOTS - 1);
        self.buckets[(tick % SLOTS) as usize].push(look);
        tick
    }

    /// Takes the looks that were promised up to `tick`, one bucket a call; `None` when all are
    /// taken.
    pub fn due(&mut self, tick: u64) -> Option<Vec<Look>> {
        while self.done < tick {
            self.done += 1;
            let bucket = &mut self.buckets[(self.done % SLOTS) as usize];
            if !bucket.is_empty() {
                return Some(std::mem::take(bucket));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_at_their_tick_and_once() {
        let mut wheel = Wheel::new();
        let look = |index| Look { index, generation: 0 };
        assert_eq!(wheel.promise(5, look(1)), 5);
        assert_eq!(wheel.promise(0, look(2)), 1, "the past is the next tick");
        assert_eq!(wheel.promise(1_000_000, look(3)), SLOTS - 1, "the horizon");
        assert_eq!(wheel.due(4), Some(vec![look(2)]));
        assert_eq!(wheel.due(4), None);
        assert_eq!(wheel.due(2_000), Some(vec![look(1)]));
        assert_eq!(wheel.due(2_000), Some(vec![look(3)]));
        assert_eq!(wheel.due(2_000), None);
    }
}
