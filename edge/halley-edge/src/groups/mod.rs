//! Groups (`protocol/link.md` 11, `docs/internals/celebrities.md`): which connections are members,
//! and the events that are on their way to them. `bits.rs` is the set of members, `fan_out.rs`
//! serves them, `write_permits.rs` says how many workers do so at a time.
//!
//! A group's members are one bit per slot of the table. An event of a group isn't put into all
//! outboxes at once: it is *in flight* with a copy of the bits, and each round serves a slice of
//! them, so no other client waits for thousands of writes. Joining and leaving don't change the
//! copy: they come after the event.
//!
//! Order per connection: the events in flight to a connection are written before anything else is
//! (`sessions/delivery/members.rs`).
//!
//! A session whose outbox has no room for the events in flight to it is *lagging*: it is passed
//! over until it has room, or until its grace is over (`fan_out.rs`).
//!
//! Invariants: each bit, of a group, of an event in flight or of lagging, stands for a session in
//! phase Opening or Live; [`Groups::remove_member`] is called before it loses phase or slot.
//! `bytes` is the sum of the events in flight.
//!
//! Bounds: [`GROUPS_MAX`] groups; [`IN_FLIGHT_MAX`] events in flight, and so many bytes of them
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
/// Events in flight; with so many the link isn't read.
pub const IN_FLIGHT_MAX: usize = 32;

/// An event and the members that haven't got it. Bits below the word `from` are set only for
/// lagging sessions.
struct InFlight<E> {
    members: Bits,
    from: usize,
    bytes: usize,
    event: E,
}

/// The groups of a worker, and the events in flight, oldest first.
pub struct Groups<E> {
    groups: HashMap<u32, Bits>,
    in_flight: VecDeque<InFlight<E>>,
    bytes: usize,
    /// Since the last [`Groups::out_of_grace`], and since the one before it.
    lagging: [Bits; 2],
}

impl<E> Default for Groups<E> {
    fn default() -> Self {
        let (groups, in_flight) = (HashMap::new(), VecDeque::new());
        Groups { groups, in_flight, bytes: 0, lagging: Default::default() }
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

    /// Forgets all groups. Events in flight stay in flight.
    pub fn end_all(&mut self) {
        self.groups = HashMap::new();
    }

    /// A session ends: it leaves all groups, and no event is in flight to it. Gives how many groups
    /// it was a member of.
    pub fn remove_member(&mut self, index: u32) -> usize {
        self.lagging.iter_mut().for_each(|lagging| {
            lagging.clear(index);
        });
        self.in_flight.iter_mut().for_each(|event| {
            event.members.clear(index);
        });
        self.groups.values_mut().map(|members| usize::from(members.clear(index))).sum()
    }

    /// An event of so many bytes is in flight to all members of now.
    pub fn begin(&mut self, group: u32, bytes: usize, event: impl FnOnce() -> E) {
        if let Some(members) = self.groups.get(&group).filter(|members| members.len() > 0) {
            let members = members.clone();
            self.bytes += bytes;
            self.in_flight.push_back(InFlight { members, from: 0, bytes, event: event() });
        }
    }

    /// Takes the oldest event in flight to this session. The search begins with the `from`-th
    /// event; `from` then is the number behind the one that was found.
    pub fn take(&mut self, index: u32, from: &mut usize) -> Option<&mut E> {
        self.in_flight.iter_mut().enumerate().skip(*from).find_map(|(place, event)| {
            *from = place + 1;
            event.members.clear(index).then_some(&mut event.event)
        })
    }

    /// The next session to serve; `None` if only lagging members remain. Forgets events that all
    /// members have.
    pub fn next(&mut self) -> Option<u32> {
        while let Some(event) = self.in_flight.front().filter(|event| event.members.len() == 0) {
            self.bytes -= event.bytes;
            self.in_flight.pop_front();
        }
        let lagging = &self.lagging;
        self.in_flight.iter_mut().find_map(|event| event.members.first(&mut event.from, lagging))
    }

    /// A session has no room for the events in flight to it: it is passed over from now on.
    pub fn lags(&mut self, index: u32) {
        let [newly, since] = &mut self.lagging;
        if !since.has(index) {
            newly.set(index);
        }
    }

    /// A session has room again, or has got the events in flight to it.
    pub fn has_room(&mut self, index: u32) {
        let [newly, since] = &mut self.lagging;
        // It is in one of the two at most.
        if newly.clear(index) || since.clear(index) {
            let word = Bits::word_of(index);
            self.in_flight.iter_mut().for_each(|event| event.from = event.from.min(word));
        }
    }

    /// Does anybody lag?
    pub fn any_lagging(&self) -> bool {
        self.lagging.iter().any(|lagging| lagging.len() > 0)
    }

    /// Sessions that have lagged since the last call. They stay lagging.
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

    /// Events in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Is any of them on its way to this session?
    pub fn is_in_flight(&self, index: u32) -> bool {
        self.in_flight.iter().any(|event| event.members.has(index))
    }

    /// Bytes of the events in flight.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Must the link wait, where so many bytes may be in flight?
    pub fn full(&self, bytes_max: usize) -> bool {
        self.in_flight.len() >= IN_FLIGHT_MAX || self.bytes >= bytes_max
    }
}
