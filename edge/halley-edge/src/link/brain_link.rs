//! The worker's part of the link, whether or not a brain is linked: its frames, the cursor, and the
//! sync of its sessions (`protocol/link.md` 6, 10.1, 13). State is replaced, never repaired.
//!
//! The meaning of a frame is the worker's business, and so are the sessions. The trunk's owner has
//! read the frames that come, and writes those that leave. [`Place`] is the worker's on one trunk,
//! gone when the brain goes.
//!
//! Invariants: before the handshake nothing is sent; an OPEN or CLOSE of an earlier place is never
//! sent on the next.

use std::ops::Range;

use halley_link::trunk::{HandOver, Handed};
use halley_link::{ClosedSession, Event, Frame, GoodbyeCode, Item, LinkCursor, List, Session};

use crate::link::goodbye::LinkEnd;
use crate::link::trunk::{Place, Seat};

/// STATS is sent this often.
const STATS_MS: u64 = 1_000;
/// Sync goes on when the link's queue is below this.
const SYNC_QUEUE_BYTES: usize = 262_144;
/// Slots that the sync looks at in one round.
const SYNC_SLOTS_PER_ROUND: u32 = 8_192;
/// A batch is sent at this size at the latest.
const BATCH_BYTES: usize = 65_536;

/// Items of the round's OPEN or CLOSE. Bound: [`BATCH_BYTES`] and one item.
#[derive(Default)]
struct Batch {
    count: u16,
    bytes: Vec<u8>,
}

impl Batch {
    /// Adds an item; true when the batch should be sent.
    fn add<'a>(&mut self, item: &impl Item<'a>) -> bool {
        item.write(&mut self.bytes);
        self.count += 1;
        self.bytes.len() >= BATCH_BYTES
    }
}

/// See the module.
pub struct BrainLink {
    /// The worker and the trunk.
    seat: Seat,
    place: Option<Place>,
    /// What is left of what was handed to the worker.
    part: Option<HandOver>,
    /// See 10.1.
    cursor: LinkCursor,
    opens: Batch,
    closes: Batch,
    /// The next slot that the sync looks at.
    sync_next: Option<u32>,
    stats_sent_ms: u64,
}

impl BrainLink {
    /// One without a brain.
    pub fn new(seat: Seat) -> BrainLink {
        BrainLink {
            seat,
            place: None,
            part: None,
            cursor: LinkCursor::default(),
            opens: Batch::default(),
            closes: Batch::default(),
            sync_next: None,
            stats_sent_ms: 0,
        }
    }

    /// A place on the trunk begins; the one before was ended.
    pub fn placed(&mut self, number: u64) {
        self.place = Some(self.seat.place(number));
    }

    /// The worker and the trunk.
    pub fn seat(&self) -> &Seat {
        &self.seat
    }

    /// Does something wait that the trunk brought?
    pub fn has_handed(&self) -> bool {
        self.part.is_some() || self.seat.has_more()
    }

    /// Takes what the trunk brought.
    pub fn take_handed(&mut self) -> Option<Handed> {
        match self.part.take() {
            Some(part) => Some(Handed::Batch(part)),
            None => self.seat.take(),
        }
    }

    /// Puts back what is left.
    pub fn put_part(&mut self, part: HandOver) {
        self.part = Some(part);
    }

    fn up(&mut self) -> Option<&mut Place> {
        self.place.as_mut().filter(|place| place.up)
    }

    /// Has the worker a place on the trunk, with a handshake or before it?
    pub fn is_there(&self) -> bool {
        self.place.is_some()
    }

    /// Was there a handshake with the brain that is connected?
    pub fn is_up(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.up)
    }

    /// Queues a frame for the brain; without a brain it is dropped, the next sync makes up for it.
    pub fn send(&mut self, frame: &Frame<'_>) {
        if let Some(place) = self.up() {
            place.send(frame);
        }
    }

    /// Bytes that wait for the brain.
    pub fn queued(&self) -> usize {
        self.place.as_ref().map_or(0, Place::queued)
    }

    /// May more be queued for the brain, where so many bytes may wait (4.6)?
    pub fn has_room(&self, bytes_max: usize) -> bool {
        self.is_up() && self.queued() < bytes_max
    }

    /// The worker has had its handshake; the trunk's owner answers the brain.
    pub fn handshake(&mut self) {
        if let Some(place) = &mut self.place {
            place.up = true;
        }
    }

    /// Begins the sync of so many sessions (6.1).
    pub fn sync_begin(&mut self, sessions: u32) {
        let BrainLink { place, cursor, .. } = self;
        if let Some(place) = place.as_mut().filter(|place| place.up) {
            place.send(&Frame::SyncBegin { sessions, cursor: cursor.token() });
            self.sync_next = Some(0);
        }
    }

    /// Does the brain know all sessions, or is it about to read of the last of them?
    pub fn is_synced(&self) -> bool {
        self.is_up() && self.sync_next.is_none()
    }

    /// Is there a sync, and room for more of it?
    pub fn sync_may_go_on(&self) -> bool {
        self.sync_next.is_some() && self.is_there() && self.queued() <= SYNC_QUEUE_BYTES
    }

    /// The slots, of so many, that the sync looks at now; [`BrainLink::synced`] is next.
    pub fn sync_slots(&self, slots: u32) -> Option<Range<u32>> {
        let first = self.sync_next.filter(|_| self.sync_may_go_on())?;
        Some(first..slots.min(first.saturating_add(SYNC_SLOTS_PER_ROUND)))
    }

    /// Slots up to this one, of so many, were announced.
    pub fn synced(&mut self, end: u32, slots: u32) {
        self.sync_next = Some(end);
        if end >= slots {
            self.sync_next = None;
            self.announce();
            self.send(&Frame::SyncEnd);
        }
    }

    /// OPEN, with the round's others.
    pub fn opened(&mut self, session: &Session<'_>) {
        if self.opens.add(session) {
            self.announce();
        }
    }

    /// CLOSE, with the round's others.
    pub fn closed(&mut self, session: &ClosedSession) {
        if self.closes.add(session) {
            self.announce();
        }
    }

    /// Sends the round's OPEN and CLOSE. A connection that opened and closed in one round is in
    /// both, in this order.
    pub fn announce(&mut self) {
        let (opens, closes) = (std::mem::take(&mut self.opens), std::mem::take(&mut self.closes));
        if opens.count > 0 {
            self.send(&Frame::Open { sessions: List::from_items(opens.count, &opens.bytes) });
        }
        if closes.count > 0 {
            self.send(&Frame::Close { sessions: List::from_items(closes.count, &closes.bytes) });
        }
    }

    /// Where the link is, for every live session.
    pub fn cursor(&self) -> &[u8] {
        self.cursor.token()
    }

    /// Everything up to this cursor was read, for every live session.
    pub fn cursor_moved(&mut self, cursor: &[u8]) {
        self.cursor.moved(cursor);
    }

    /// Everything up to this event was read (10.9).
    ///
    /// # Errors
    /// When the event can't move the cursor.
    pub fn cursor_passes(&mut self, event: &Event<'_>) -> Result<(), LinkEnd> {
        Ok(self.cursor.passes(event)?)
    }

    /// Is it time for STATS? Then it counts as sent.
    pub fn stats_are_due(&mut self, now_ms: u64) -> bool {
        let due = self.is_up() && now_ms >= self.stats_sent_ms + STATS_MS;
        if due {
            self.stats_sent_ms = now_ms;
        }
        due
    }

    /// Hands what waits for the brain to the trunk's owner.
    pub fn flush(&mut self) {
        if let Some(place) = &mut self.place {
            place.flush();
        }
    }

    /// Has the trunk end with a goodbye. The place is lost with it ([`BrainLink::lost`]).
    pub fn say_goodbye(&mut self, code: GoodbyeCode, why: &str) {
        if let Some(place) = &mut self.place {
            place.say_goodbye(code, why);
        }
    }

    /// The place is gone, and what was to be said there; false if there was none.
    pub fn lost(&mut self) -> bool {
        let was_there = self.place.take().is_some();
        if was_there {
            self.part = None;
            self.sync_next = None;
            (self.opens, self.closes) = Default::default();
        }
        was_there
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        if let Some(place) = &mut self.place {
            place.trim();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use halley_link::CloseReason;

    use super::*;
    use crate::link::trunk::tests::{Outbox, seat};

    fn brain() -> (BrainLink, Outbox) {
        let (seat, outbox) = seat();
        let mut link = BrainLink::new(seat);
        link.placed(outbox.place());
        (link, outbox)
    }

    /// The kinds of the frames that the brain gets.
    fn told(link: &mut BrainLink, outbox: &Outbox) -> Vec<u8> {
        link.flush();
        outbox.take().into_iter().map(|(kind, _)| kind).collect()
    }

    fn open(conn: u64) -> Session<'static> {
        Session { conn, transport: 1, user: b"ann", cursor: b"" }
    }

    fn close(conn: u64) -> ClosedSession {
        ClosedSession { conn, user_number: 7, reason: CloseReason::Client }
    }

    /// 9.2: what an earlier brain was to be told, the next one learns by its sync.
    #[test]
    fn nothing_of_one_link_is_said_on_the_next() {
        let (mut link, outbox) = brain();
        link.opened(&open(1));
        link.send(&Frame::SyncEnd);
        link.announce();
        assert!(told(&mut link, &outbox).is_empty(), "before the handshake");
        link.handshake();
        link.opened(&open(1));
        link.closed(&close(1));
        assert!(link.is_up() && link.has_room(1) && link.lost() && !link.lost());
        assert!(!link.is_there() && !link.has_room(1));
        link.placed(outbox.place());
        link.handshake();
        link.announce();
        assert!(told(&mut link, &outbox).is_empty(), "of the place before");
    }

    /// 6.3: "opened and closed in one round is in both, in this order".
    #[test]
    fn opens_come_before_closes() {
        let (mut link, outbox) = brain();
        link.handshake();
        link.closed(&close(1));
        link.opened(&open(2));
        link.announce();
        link.announce();
        let sessions = List::from_items(0, &[]);
        let open = Frame::Open { sessions }.kind();
        let close = Frame::Close { sessions: List::from_items(0, &[]) }.kind();
        assert_eq!(told(&mut link, &outbox), [open, close]);
    }

    /// 6.1: every slot once, in parts, and the end is said once.
    #[test]
    fn a_sync_looks_at_every_slot() {
        let (mut link, outbox) = brain();
        link.handshake();
        assert!(link.sync_slots(9).is_none());
        link.sync_begin(0);
        let (slots, mut seen) = (2 * SYNC_SLOTS_PER_ROUND + 5, Vec::new());
        while let Some(part) = link.sync_slots(slots) {
            seen.extend(part.clone());
            link.synced(part.end, slots);
        }
        assert_eq!(seen, (0..slots).collect::<Vec<_>>());
        let begin = Frame::SyncBegin { sessions: 0, cursor: b"" }.kind();
        assert_eq!(told(&mut link, &outbox), [begin, Frame::SyncEnd.kind()]);
    }

    /// 4.6: once a second, and only to a brain that is there.
    #[test]
    fn stats_are_due_once_a_second() {
        let (mut link, _outbox) = brain();
        assert!(!link.stats_are_due(5_000));
        link.handshake();
        assert!(link.stats_are_due(5_000));
        assert!(!link.stats_are_due(5_999));
        assert!(link.stats_are_due(6_000));
        link.lost();
        assert!(!link.stats_are_due(90_000));
    }
}
