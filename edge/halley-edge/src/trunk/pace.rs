//! How well a worker keeps up with its share of the trunk, as the trunk's owner sees it
//! (`protocol/link.md` 13.7). Pure; the connection acts on it.

use crate::link::SILENCE_MS;

/// How often it is looked which workers make rounds, and how many such looks end a place.
pub const LOOK_MS: u64 = 1_000;
const LOOKS_MAX: u64 = SILENCE_MS / LOOK_MS;
/// How long a worker may be left behind by the others: it may wait for a processor, and it would
/// lose its requests.
const BEHIND_MS: u64 = 250;
/// How often it is looked meanwhile.
pub const BEHIND_LOOK_MS: u64 = 50;

/// See the module.
#[derive(Clone, Copy, Default)]
pub struct Pace {
    /// Its rounds, at the last look.
    rounds: u64,
    /// Looks since it has made one.
    looks: u64,
    /// Since when it has been left behind.
    behind_ms: Option<u64>,
}

impl Pace {
    /// A look, at a worker that has made so many rounds. Does it stand still?
    pub fn look(&mut self, rounds: u64) -> bool {
        self.looks = if rounds == self.rounds { self.looks + 1 } else { 0 };
        self.rounds = rounds;
        self.looks >= LOOKS_MAX
    }

    /// The others have left it behind. Has that been so for too long?
    pub fn is_behind(&mut self, now_ms: u64) -> bool {
        now_ms >= *self.behind_ms.get_or_insert(now_ms) + BEHIND_MS
    }

    /// It isn't left behind, or has lost its place.
    pub fn goes_on(&mut self) {
        self.behind_ms = None;
    }
}
