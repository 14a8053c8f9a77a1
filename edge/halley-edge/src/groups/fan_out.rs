//! A worker's share of the fan-out to groups: the groups, its permit to write to them, and how long
//! it waits for members that have no room. It knows members by the number of their slot; what is
//! written to them, and whether they have room, its user says ([`Members`]).
//!
//! The brain may bring a group's events faster than a member takes them. So at most a third of an
//! outbox is in flight. A member whose outbox would hold more *lags*: it is passed over until its
//! outbox is empty. All members wait while half of `outboxes_bytes_max` is full.
//!
//! A member has a grace for this, at most twice [`GRACE_MS`]. After it the member gets everything
//! at once and has no grace until its outbox was empty; http.md 12 says whether it is a slow
//! consumer. So a client that reads isn't closed because its events came in a burst, and one that
//! doesn't read holds up the others only once.

use std::sync::Arc;

use halley_link::Event;
use halley_wire::websocket::Deflater;

use crate::groups::write_permits::{WritePermit, WritePermits};
use crate::groups::{Groups, TooMany};
use crate::outbox::Piece;
use crate::outbox::pieces::Pieces;
use crate::settings::Settings;
use crate::transport::Transport;

/// Members that are served in a round, and bytes for them: about a millisecond of writes.
const SLICE: usize = 256;
const SLICE_BYTES: u64 = 1_048_576;
/// Members that are served before another worker has a permit.
const PERMIT_MEMBERS: usize = 16_384;
/// How long the worker waits for members that have no room; twice that if they have none just after
/// it looked.
const GRACE_MS: u64 = 200;

/// An event that is kept until all members have it, encoded once for each kind of stream.
pub struct Kept {
    /// As of the link's event.
    pub shard: u8,
    /// The same.
    pub seq: u64,
    /// The same.
    pub at: u64,
    data_offset: u32,
    subject_offset: u16,
    subject_bytes: u16,
    cursor: Box<[u8]>,
    json: Box<[u8]>,
    pieces: Pieces,
}

impl Kept {
    fn new(event: &Event<'_>, cursor: &[u8], settings: &Settings) -> Kept {
        Kept {
            shard: event.shard,
            seq: event.seq,
            at: event.at,
            data_offset: event.data_offset,
            subject_offset: event.subject_offset,
            subject_bytes: event.subject_bytes,
            cursor: cursor.into(),
            json: event.json.into(),
            pieces: Pieces::new(event, settings),
        }
    }

    /// What a stream of this kind writes.
    pub fn piece(&mut self, transport: Transport, deflater: &mut Deflater) -> Piece {
        let event = Event {
            shard: self.shard,
            seq: self.seq,
            at: self.at,
            data_offset: self.data_offset,
            subject_offset: self.subject_offset,
            subject_bytes: self.subject_bytes,
            cursor: &self.cursor,
            json: &self.json,
        };
        self.pieces.of(&event, transport, deflater)
    }
}

/// What time it is, as the worker sees it.
#[derive(Clone, Copy)]
pub struct Now {
    /// The round's.
    pub now_ms: u64,
    /// When the last poll began. Who has taken something since may not be heard yet, and gets a
    /// last look; the others don't wait until everybody is heard.
    pub polled_ms: u64,
}

/// What outboxes may hold.
#[derive(Clone, Copy)]
pub struct Bounds {
    one: usize,
    all: u64,
}

impl Bounds {
    /// What the settings say of it.
    pub fn of(settings: &Settings) -> Bounds {
        Bounds { one: settings.outbox_bytes_max, all: settings.outboxes_bytes_max as u64 }
    }

    /// What groups' events may fill of an outbox: as much is in flight at most, and as much again
    /// is left for what else is written.
    fn share(self) -> usize {
        (self.one / 3).min((self.all / 16) as usize)
    }
}

/// Whom a slice is for: the sessions of the members, which say what they can take.
pub trait Members {
    /// Bytes that wait in all outboxes together.
    fn outbox_bytes(&self) -> u64;
    /// Has a member room for so many bytes, where that and what waits for it may be `most`?
    fn has_room(&mut self, index: u32, bytes: usize, most: usize) -> bool;
    /// A member gets an event.
    fn give(&mut self, index: u32, event: &mut Kept);
    /// Has a member taken all that it was given? Its socket is tried.
    fn has_taken_all(&mut self, index: u32) -> bool;
    /// Nobody waits for this member any more, until its outbox was empty.
    fn force(&mut self, index: u32);
}

/// See the module. `lagging_ms` and `crowded_ms` say since when a grace runs; 0 while none does.
pub struct FanOut {
    groups: Groups<Kept>,
    permit: WritePermit,
    /// Members that were served under this permit.
    served: usize,
    lagging_ms: u64,
    crowded_ms: u64,
}

impl FanOut {
    /// That of a worker, without groups.
    pub fn new(permits: Arc<WritePermits>, worker: u16) -> FanOut {
        let permit = WritePermit::new(permits, worker);
        FanOut { groups: Groups::default(), permit, served: 0, lagging_ms: 0, crowded_ms: 0 }
    }

    /// Makes a session a member; true if it wasn't.
    ///
    /// # Errors
    /// As [`Groups::join`].
    pub fn join(&mut self, group: u32, index: u32) -> Result<bool, TooMany> {
        self.groups.join(group, index)
    }

    /// A session is no member any more; false if it wasn't.
    pub fn leave(&mut self, group: u32, index: u32) -> bool {
        self.groups.leave(group, index)
    }

    /// Forgets a group; gives how many members it had.
    pub fn end(&mut self, group: u32) -> usize {
        self.groups.end(group)
    }

    /// Forgets all groups. Events in flight stay in flight.
    pub fn end_all(&mut self) {
        self.groups.end_all();
    }

    /// Groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// A session ends: see [`Groups::remove_member`].
    pub fn remove_member(&mut self, index: u32) -> usize {
        self.groups.remove_member(index)
    }

    /// An event, with the cursor that it has now, is in flight to all members of now.
    pub fn begin(&mut self, group: u32, event: &Event<'_>, cursor: &[u8], settings: &Settings) {
        let bytes = event.json.len() + cursor.len();
        self.groups.begin(group, bytes, || Kept::new(event, cursor, settings));
    }

    /// Events in flight.
    pub fn in_flight(&self) -> usize {
        self.groups.in_flight()
    }

    /// Is any of them on its way to this session?
    pub fn is_in_flight(&self, index: u32) -> bool {
        self.groups.is_in_flight(index)
    }

    /// A session has room again, or has got the events in flight to it.
    pub fn has_room(&mut self, index: u32) {
        self.groups.has_room(index);
    }

    /// Does anybody lag?
    pub fn any_lagging(&self) -> bool {
        self.groups.any_lagging()
    }

    /// Must the link wait for members to be served?
    pub fn is_full(&self, settings: &Settings) -> bool {
        self.groups.full(Bounds::of(settings).share())
    }

    /// Has the worker a permit?
    pub fn has_permit(&self) -> bool {
        self.permit.is_taken()
    }

    /// Serves a slice of those for whom something is in flight.
    pub fn serve(&mut self, bounds: Bounds, now: Now, members: &mut impl Members) {
        if self.groups.in_flight() > 0 {
            self.end_grace(now, members);
        }
        if self.groups.next().is_none() {
            self.permit.give_back();
            self.served = 0;
        } else if self.permit.take() {
            self.slice(bounds, now, members);
        }
    }

    fn slice(&mut self, bounds: Bounds, now: Now, members: &mut impl Members) {
        let before = members.outbox_bytes();
        let share = bounds.share();
        let mut served = 0;
        while served < SLICE
            && members.outbox_bytes() < before + SLICE_BYTES
            && !self.crowded(bounds, now, members)
        {
            let Some(index) = self.groups.next() else { break };
            if members.has_room(index, self.groups.bytes(), share) {
                self.give_all(index, members);
            } else {
                self.groups.lags(index);
            }
            served += 1;
        }
        self.served += served;
        let goes_on = !self.crowded(bounds, now, members) && self.groups.next().is_some();
        if !goes_on || self.served >= PERMIT_MEMBERS && self.permit.others_wait() {
            self.permit.give_back();
            self.served = 0;
        }
        if goes_on {
            self.permit.take();
        }
    }

    /// Gives a session the events in flight to it, which come before anything else.
    pub fn give_all(&mut self, index: u32, members: &mut impl Members) {
        let mut from = 0;
        while let Some(event) = self.groups.take(index, &mut from) {
            members.give(index, event);
        }
        self.groups.has_room(index);
    }

    /// Does too much wait in all outboxes together for more of groups' events?
    fn crowded(&mut self, bounds: Bounds, now: Now, members: &impl Members) -> bool {
        if members.outbox_bytes() <= bounds.all / 2 {
            self.crowded_ms = 0;
            return false;
        }
        if self.crowded_ms == 0 {
            self.crowded_ms = now.now_ms.max(1);
        }
        now.polled_ms < self.crowded_ms + GRACE_MS
    }

    /// A session that has lagged for long enough gets the events in flight, and is asked no more.
    /// But the kernel tells of room only when a third of its buffer is free, which may be more than
    /// an outbox: so whoever reads, at whatever pace takes an outbox in that time, is found by a
    /// last look.
    fn end_grace(&mut self, now: Now, members: &mut impl Members) {
        if !self.groups.any_lagging() {
            self.lagging_ms = 0;
        } else if self.lagging_ms == 0 {
            self.lagging_ms = now.now_ms.max(1);
        } else if now.polled_ms >= self.lagging_ms + GRACE_MS {
            self.lagging_ms = now.now_ms;
            for index in self.groups.out_of_grace() {
                if members.has_taken_all(index) {
                    self.groups.has_room(index);
                } else {
                    members.force(index);
                    self.give_all(index, members);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Members whose outboxes hold so many bytes; what they get is noted.
    #[derive(Default)]
    struct Fake {
        all: u64,
        full: Vec<u32>,
        /// Their kernels have room of which they haven't told.
        untold: Vec<u32>,
        got: Vec<(u32, u64)>,
        forced: Vec<u32>,
    }

    impl Members for Fake {
        fn outbox_bytes(&self) -> u64 {
            self.all
        }

        fn has_room(&mut self, index: u32, _: usize, _: usize) -> bool {
            !self.full.contains(&index)
        }

        fn give(&mut self, index: u32, event: &mut Kept) {
            self.got.push((index, event.seq));
        }

        fn has_taken_all(&mut self, index: u32) -> bool {
            let reads = self.untold.contains(&index);
            self.full.retain(|full| *full != index || !reads);
            reads
        }

        fn force(&mut self, index: u32) {
            self.forced.push(index);
        }
    }

    fn at(ms: u64) -> Now {
        Now { now_ms: ms, polled_ms: ms }
    }

    fn event(seq: u64) -> Event<'static> {
        let (shard, at, data_offset, subject_offset, subject_bytes) = (1, 0, 0, 0, 0);
        Event {
            shard,
            seq,
            at,
            data_offset,
            subject_offset,
            subject_bytes,
            cursor: b"",
            json: b"{}",
        }
    }

    fn fan_out(members: &[u32]) -> (FanOut, Settings) {
        let (permits, _polls) = WritePermits::new(1).unwrap();
        let mut fan_out = FanOut::new(Arc::new(permits), 0);
        members.iter().for_each(|index| assert_eq!(fan_out.join(1, *index), Ok(true)));
        (fan_out, Settings::default())
    }

    /// A slice is bounded, and the permit is kept while there is more.
    #[test]
    fn members_are_served_in_slices() {
        let all: Vec<u32> = (0..SLICE as u32 + 3).collect();
        let (mut fan_out, settings) = fan_out(&all);
        let mut fake = Fake::default();
        fan_out.begin(1, &event(7), b"", &settings);
        fan_out.serve(Bounds::of(&settings), at(1), &mut fake);
        assert_eq!((fake.got.len(), fan_out.has_permit()), (SLICE, true));
        fan_out.serve(Bounds::of(&settings), at(1), &mut fake);
        assert_eq!(fake.got, all.iter().map(|index| (*index, 7)).collect::<Vec<_>>());
        assert!(!fan_out.has_permit());
        fan_out.serve(Bounds::of(&settings), at(1), &mut fake);
        assert_eq!(fan_out.in_flight(), 0);
    }

    /// A member without room is passed over until its grace is over, and then gets all.
    #[test]
    fn grace_has_an_end() {
        let (mut fan_out, settings) = fan_out(&[3, 4]);
        let mut fake = Fake { full: vec![3], ..Fake::default() };
        for seq in [7, 8] {
            fan_out.begin(1, &event(seq), b"", &settings);
        }
        fan_out.serve(Bounds::of(&settings), at(1_000), &mut fake);
        assert_eq!((&*fake.got, fan_out.any_lagging()), (&[(4, 7), (4, 8)][..], true));
        for ms in [1_001, 1_000 + GRACE_MS, 1_001 + GRACE_MS, 1_000 + 2 * GRACE_MS] {
            fan_out.serve(Bounds::of(&settings), at(ms), &mut fake);
            assert!(fake.forced.is_empty(), "at {ms}");
        }
        fan_out.serve(Bounds::of(&settings), at(1_001 + 2 * GRACE_MS), &mut fake);
        assert_eq!((&*fake.forced, &fake.got[2..]), (&[3][..], &[(3, 7), (3, 8)][..]));
        assert!(!fan_out.any_lagging());
    }

    /// Who has read is served on, though its kernel hasn't told of room.
    #[test]
    fn who_reads_is_not_out_of_grace() {
        let (mut fan_out, settings) = fan_out(&[3, 4]);
        let mut fake = Fake { full: vec![3, 4], untold: vec![4], ..Fake::default() };
        fan_out.begin(1, &event(7), b"", &settings);
        for ms in [1_000, 1_001, 1_001 + GRACE_MS, 1_001 + 2 * GRACE_MS] {
            fan_out.serve(Bounds::of(&settings), at(ms), &mut fake);
        }
        assert_eq!((&*fake.forced, &*fake.got), (&[3][..], &[(3, 7), (4, 7)][..]));
    }

    /// While half of what all outboxes may hold is full, nobody is served, for a while.
    #[test]
    fn a_crowd_waits() {
        let (mut fan_out, settings) = fan_out(&[3]);
        let all = settings.outboxes_bytes_max as u64 / 2 + 1;
        let mut fake = Fake { all, ..Fake::default() };
        fan_out.begin(1, &event(7), b"", &settings);
        for ms in [1_000, 1_000 + GRACE_MS - 1] {
            fan_out.serve(Bounds::of(&settings), at(ms), &mut fake);
            assert!(fake.got.is_empty() && !fan_out.has_permit());
        }
        fan_out.serve(Bounds::of(&settings), at(1_000 + GRACE_MS), &mut fake);
        assert_eq!(fake.got, [(3, 7)]);
    }
}
