//! Groups (`protocol/link.md` 11, `docs/internals/celebrities.md`): which connections are members,
//! and the events that are on their way to them. `bits.rs` is the set of members, `fan_out.rs`
//! serves them, `write_permits.rs` says how many workers do so at a time.
//!
//! A group's members are one bit per slot of the table. An event of a group isn't put into all
//! outboxes at once: it is *under way* with a copy of the bits, and each round serves a slice of
//! them, so nobody waits for thousands of writes. The copy is what joining and leaving don't
//! change: they come behind the event.
//!
//! Order per connection: whatever is to be written to a connection, what is under way for it goes
//! first (`sessions/members.rs`).
//!
//! A session whose outbox has no room for what is under way to it is *lagging*: it is passed over
//! until it has room, or until its grace is over (`fan_out.rs`).
//!
//! Invariants: a bit, in a group, under way or lagging, stands for a session in phase Opening or
//! Live that has had its slot since; [`Groups::remove_member`] is called before it loses either.
//! `bytes` is the sum of the events under way.
//!
//! Bounds: [`GROUPS_MAX`] groups; [`UNDER_WAY_MAX`] events under way, and so many bytes of them
//! that all fit into an outbox ([`Groups::full`]): beyond these the link isn't read.

pub mod bits;
pub mod fan_out;
#[cfg(test)]
mod tests;
pub mod write_permits;

use std::collections::{HashMap, VecDeque};

use crate::groups::bits::Bits;

/// Groups that a worker holds (11.2).
pub const GROUPS_MAX: usize = 1_024;
/// Events under way; with so many the link isn't read.
pub const UNDER_WAY_MAX: usize = 32;

/// An event on its way to those who haven't got it. No bit below the word `from` is set but of
/// sessions that lag.
struct UnderWay<E> {
    members: Bits,
    from: usize,
    bytes: usize,
    event: E,
}

/// The groups of a worker, and the events under way, oldest first.
pub struct Groups<E> {
    groups: HashMap<u32, Bits>,
    under_way: VecDeque<UnderWay<E>>,
    bytes: usize,
    /// Since the last [`Groups::out_of_grace`], and since the one before it.
    lagging: [Bits; 2],
}

impl<E> Default for Groups<E> {
    fn default() -> Self {
        let (groups, under_way) = (HashMap::new(), VecDeque::new());
        Groups { groups, under_way, bytes: 0, lagging: Default::default() }
    }
}

/// More than [`GROUPS_MAX`] groups.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMany;

impl<E> Groups<E> {
    /// Makes a session a member; once more changes nothing.
    ///
    /// # Errors
    /// When that takes another group and there are [`GROUPS_MAX`].
    pub fn join(&mut self, group: u32, index: u32) -> Result<bool, TooMany> {
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&group) {
            return Err(TooMany);
        }
        Ok(self.groups.entry(group).or_default().set(index))
    }

    /// A session is no member any more, or wasn't.
    pub fn leave(&mut self, group: u32, index: u32) -> bool {
        self.groups.get_mut(&group).is_some_and(|members| members.clear(index))
    }

    /// Forgets a group, or one that there isn't; gives how many members it had.
    pub fn end(&mut self, group: u32) -> usize {
        self.groups.remove(&group).map_or(0, |members| members.len())
    }

    /// Forgets all groups. What is under way stays so.
    pub fn end_all(&mut self) {
        self.groups = HashMap::new();
    }

    /// A session ends: it is no member of anything, and nothing is under way for it. Gives how many
    /// groups it was a member of.
    pub fn remove_member(&mut self, index: u32) -> usize {
        self.lagging.iter_mut().for_each(|lagging| {
            lagging.clear(index);
        });
        self.under_way.iter_mut().for_each(|event| {
            event.members.clear(index);
        });
        self.groups.values_mut().map(|members| usize::from(members.clear(index))).sum()
    }

    /// An event of so many bytes begins its way to who is a member now.
    pub fn begin(&mut self, group: u32, bytes: usize, event: impl FnOnce() -> E) {
        if let Some(members) = self.groups.get(&group).filter(|members| members.len() > 0) {
            let members = members.clone();
            self.bytes += bytes;
            self.under_way.push_back(UnderWay { members, from: 0, bytes, event: event() });
        }
    }

    /// The oldest event that is under way to this session, which has it from now on. Events before
    /// the `from`-th are none, and it moves behind the one that is found.
    pub fn take(&mut self, index: u32, from: &mut usize) -> Option<&mut E> {
        self.under_way.iter_mut().enumerate().skip(*from).find_map(|(place, event)| {
            *from = place + 1;
            event.members.clear(index).then_some(&mut event.event)
        })
    }

    /// The next session to serve; none when nothing is under way but to who lags. Events that
    /// all have are forgotten on the way.
    pub fn next(&mut self) -> Option<u32> {
        while let Some(event) = self.under_way.front().filter(|event| event.members.len() == 0) {
            self.bytes -= event.bytes;
            self.under_way.pop_front();
        }
        let lagging = &self.lagging;
        self.under_way.iter_mut().find_map(|event| event.members.first(&mut event.from, lagging))
    }

    /// A session has no room for what is under way to it: it is passed over from now on.
    pub fn lags(&mut self, index: u32) {
        let [newly, since] = &mut self.lagging;
        if !since.has(index) {
            newly.set(index);
        }
    }

    /// A session has room again, or has got what was under way to it.
    pub fn has_room(&mut self, index: u32) {
        let [newly, since] = &mut self.lagging;
        // It is in one of the two at most.
        if newly.clear(index) || since.clear(index) {
            let word = Bits::word_of(index);
            self.under_way.iter_mut().for_each(|event| event.from = event.from.min(word));
        }
    }

    /// Does anybody lag?
    pub fn any_lagging(&self) -> bool {
        self.lagging.iter().any(|lagging| lagging.len() > 0)
    }

    /// Who has lagged since the last time that this was asked. They stay so.
    pub fn out_of_grace(&mut self) -> Vec<u32> {
        let [newly, since] = &mut self.lagging;
        let all = since.all();
        newly.all().into_iter().for_each(|index| {
            since.set(index);
        });
        *newly = Bits::default();
        all
    }

    /// Groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Events under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Is any of them on its way to this session?
    pub fn is_under_way(&self, index: u32) -> bool {
        self.under_way.iter().any(|event| event.members.has(index))
    }

    /// Bytes of the events under way.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Must the link wait, where so many bytes may be under way?
    pub fn full(&self, bytes_max: usize) -> bool {
        self.under_way.len() >= UNDER_WAY_MAX || self.bytes >= bytes_max
    }
}
