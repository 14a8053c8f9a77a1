//! The worker's link to its brain, whether or not one is linked: frames and credit, the cursor, and
//! the sync of sessions (`protocol/link.md` 4, 6, 10.1). State is replaced, never repaired.
//!
//! It moves frames and counts bytes. What a frame means is the worker's business, and so are the
//! sessions. [`Link`] is one connection of it, gone when the brain goes.
//!
//! Invariants: before the handshake nothing but the hello is sent; an OPEN or CLOSE of an earlier
//! link is never sent on the next.

use std::io;
use std::ops::Range;

use halley_link::{
    ClosedSession, Cursor, Deframer, Error, Event, Frame, GoodbyeCode, Item, List, RawFrame,
    Session,
};
use mio::net::UnixStream;

use crate::link::goodbye::LinkEnd;
use crate::link::{HANDSHAKE_MS_MAX, HEARTBEAT_MS, Link, ReadEnd, SILENCE_MS};

/// What is read from the link in one round before anything is written: large enough for writes to
/// gather when there is much to do, small enough that nobody else waits for long.
pub const READ_BYTES_PER_ROUND: usize = 2_097_152;
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

/// What time brought about on the link.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// STATS.
    Stats,
    /// There was no handshake in time (3.5).
    NoHello,
    /// The brain has been silent for too long (4.5).
    Silence,
}

/// See the module.
#[derive(Default)]
pub struct BrainLink {
    link: Option<Link>,
    readable: bool,
    /// See 10.1; empty until a brain has said one.
    cursor: Vec<u8>,
    /// The same, once an event had to move it.
    place: Option<Cursor>,
    opens: Batch,
    closes: Batch,
    /// The next slot that the sync looks at.
    sync_next: Option<u32>,
    stats_sent_ms: u64,
}

impl BrainLink {
    /// The brain has dialled; the link before was ended.
    pub fn dialled(&mut self, socket: UnixStream, now_ms: u64) {
        self.link = Some(Link::new(socket, now_ms));
        self.readable = true;
    }

    /// Is a brain connected, with a handshake or before it?
    pub fn is_there(&self) -> bool {
        self.link.is_some()
    }

    /// Was there a handshake with the brain that is connected?
    pub fn is_up(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.up)
    }

    /// The socket has something.
    pub fn became_readable(&mut self) {
        self.readable = true;
    }

    /// Is there anything to read?
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Queues a frame for the brain; without a brain it is dropped, the next sync makes up for it.
    pub fn send(&mut self, frame: &Frame<'_>) {
        if let Some(link) = self.link.as_mut().filter(|link| link.up) {
            link.send(frame);
        }
    }

    /// Bytes that wait for the brain.
    pub fn queued(&self) -> usize {
        self.link.as_ref().map_or(0, Link::queued)
    }

    /// May more be queued for the brain, where so many bytes may wait (4.6)?
    pub fn has_room(&self, bytes_max: usize) -> bool {
        self.link.as_ref().is_some_and(|link| link.up && link.queued() < bytes_max)
    }

    /// Reads once.
    ///
    /// # Errors
    /// Why the link is lost.
    pub fn read(&mut self, now_ms: u64) -> Result<usize, String> {
        let Some(link) = self.link.as_mut() else {
            self.readable = false;
            return Ok(0);
        };
        match link.read(now_ms) {
            Ok((ReadEnd::More, n)) => Ok(n),
            Ok((ReadEnd::Drained, _)) => {
                self.readable = false;
                Ok(0)
            }
            Ok((ReadEnd::Closed, _)) => Err("the brain closed it".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Takes the frames that were read, so that they can be dealt with while the link is used.
    pub fn take_frames(&mut self) -> Option<Deframer> {
        self.link.as_mut().map(Link::take_frames)
    }

    /// Puts back what was not dealt with, unless the link is gone.
    pub fn put_frames(&mut self, frames: Deframer) {
        if let Some(link) = self.link.as_mut() {
            link.put_frames(frames);
        }
    }

    /// A frame was dealt with (4.3).
    pub fn dealt_with(&mut self, raw: &RawFrame<'_>) {
        if let Some(link) = self.link.as_mut() {
            link.dealt_with(raw);
        }
    }

    /// Does the brain leave so many free frames unread that there is no end to it?
    pub fn is_overloaded(&self) -> bool {
        self.link.as_ref().is_some_and(Link::overloaded)
    }

    /// The brain gave credit back.
    ///
    /// # Errors
    /// As [`Link::credited`] has it.
    pub fn credited(&mut self, bytes: u32) -> Result<(), Error> {
        self.link.as_mut().map_or(Ok(()), |link| link.credited(bytes))
    }

    /// The handshake: the brain granted a window, and is answered.
    pub fn handshake(&mut self, window: u32, hello: &Frame<'_>) {
        if let Some(link) = self.link.as_mut() {
            link.granted(window);
            link.up = true;
            link.send(hello);
        }
    }

    /// Begins the sync of so many sessions (6.1).
    pub fn sync_begin(&mut self, sessions: u32) {
        if let Some(link) = self.link.as_mut().filter(|link| link.up) {
            link.send(&Frame::SyncBegin { sessions, cursor: &self.cursor });
            self.sync_next = Some(0);
        }
    }

    /// Is there a sync, and room for more of it?
    pub fn sync_may_go_on(&self) -> bool {
        let room = |link: &Link| link.queued() <= SYNC_QUEUE_BYTES;
        self.sync_next.is_some() && self.link.as_ref().is_some_and(room)
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
        &self.cursor
    }

    /// Everything up to this cursor was read, for every live session.
    pub fn cursor_moved(&mut self, cursor: &[u8]) {
        if !cursor.is_empty() {
            self.cursor.clear();
            self.cursor.extend_from_slice(cursor);
            self.place = None;
        }
    }

    /// Everything up to this event was read (10.9).
    ///
    /// # Errors
    /// When the event can't move the cursor.
    pub fn cursor_passes(&mut self, event: &Event<'_>) -> Result<(), LinkEnd> {
        if !event.cursor.is_empty() || self.cursor.is_empty() {
            self.cursor_moved(event.cursor);
            return Ok(());
        }
        if self.place.is_none() {
            self.place = Cursor::decode(&self.cursor);
        }
        let moved = self.place.as_mut().is_some_and(|place| {
            self.cursor.clear();
            let passed = place.pass(event.shard, event.seq, event.at);
            place.encode(&mut self.cursor);
            passed
        });
        if moved { Ok(()) } else { Err(LinkEnd::broken("10.9", "an event can't move the cursor")) }
    }

    /// Heartbeats and their absence (4.5), the handshake's end (3.5), STATS. Silence is judged by
    /// `heard_ms`, up to which everything was read; and not at all if `waits`, while the link isn't
    /// read.
    pub fn on_time(&mut self, now_ms: u64, heard_ms: u64, waits: bool) -> Due {
        let Some(link) = self.link.as_mut() else { return Due::Nothing };
        if waits {
            // Nobody listens, so there is no silence.
            link.heard_ms = now_ms;
        }
        if !link.up {
            let late = heard_ms > link.since_ms + HANDSHAKE_MS_MAX;
            return if late { Due::NoHello } else { Due::Nothing };
        }
        if heard_ms > link.heard_ms + SILENCE_MS {
            return Due::Silence;
        }
        if now_ms >= link.pinged_ms + HEARTBEAT_MS {
            link.pinged_ms = now_ms;
            link.send(&Frame::Ping { nonce: now_ms });
        }
        if now_ms < self.stats_sent_ms + STATS_MS {
            return Due::Nothing;
        }
        self.stats_sent_ms = now_ms;
        Due::Stats
    }

    /// Writes what waits for the brain.
    ///
    /// # Errors
    /// What the socket says; the link is lost then.
    pub fn flush(&mut self) -> io::Result<()> {
        self.link.as_mut().map_or(Ok(()), Link::flush)
    }

    /// Says goodbye, if a last write succeeds. The link is lost with it ([`BrainLink::lost`]).
    pub fn say_goodbye(&mut self, code: GoodbyeCode, why: &str) {
        if let Some(link) = self.link.as_mut() {
            link.send(&Frame::Goodbye { code: code as u8, reason: why.as_bytes() });
            let _: io::Result<()> = link.flush();
        }
    }

    /// The link is gone, and what was to be said on it; false if there was none.
    pub fn lost(&mut self) -> bool {
        let was_there = self.link.take().is_some();
        if was_there {
            self.readable = false;
            self.sync_next = None;
            (self.opens, self.closes) = Default::default();
        }
        was_there
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        if let Some(link) = self.link.as_mut() {
            link.trim();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::Read as _;

    use halley_link::CloseReason;

    use super::*;

    const HELLO: Frame<'static> = Frame::Ping { nonce: 0 };

    fn brain() -> (BrainLink, UnixStream) {
        let (socket, peer) = UnixStream::pair().unwrap();
        let mut link = BrainLink::default();
        link.dialled(socket, 0);
        (link, peer)
    }

    /// The kinds of the frames that the brain gets.
    fn told(link: &mut BrainLink, peer: &mut UnixStream) -> Vec<u8> {
        link.flush().unwrap();
        let (mut frames, mut kinds) = (Deframer::new(), Vec::new());
        while let Ok(n) = peer.read(frames.space()) {
            frames.filled(n);
        }
        while let Some(raw) = frames.next().unwrap() {
            kinds.push(raw.kind);
        }
        kinds
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
        let (mut link, mut peer) = brain();
        link.opened(&open(1));
        link.send(&Frame::SyncEnd);
        link.announce();
        assert!(told(&mut link, &mut peer).is_empty(), "before the handshake");
        link.handshake(1_000_000, &HELLO);
        link.opened(&open(1));
        link.closed(&close(1));
        assert!(link.is_up() && link.has_room(1) && link.lost() && !link.lost());
        assert!(!link.is_there() && !link.has_room(1));
        let (socket, mut peer) = UnixStream::pair().unwrap();
        link.dialled(socket, 0);
        link.handshake(1_000_000, &HELLO);
        link.announce();
        assert_eq!(told(&mut link, &mut peer), [HELLO.kind()]);
    }

    /// 6.3: "opened and closed in one round is in both, in this order".
    #[test]
    fn opens_come_before_closes() {
        let (mut link, mut peer) = brain();
        link.handshake(1_000_000, &HELLO);
        link.closed(&close(1));
        link.opened(&open(2));
        link.announce();
        link.announce();
        let sessions = List::from_items(0, &[]);
        let open = Frame::Open { sessions }.kind();
        let close = Frame::Close { sessions: List::from_items(0, &[]) }.kind();
        assert_eq!(told(&mut link, &mut peer), [HELLO.kind(), open, close]);
    }

    /// 6.1: every slot once, in parts, and the end is said once.
    #[test]
    fn a_sync_looks_at_every_slot() {
        let (mut link, mut peer) = brain();
        link.handshake(1_000_000, &HELLO);
        assert!(link.sync_slots(9).is_none());
        link.sync_begin(0);
        let (slots, mut seen) = (2 * SYNC_SLOTS_PER_ROUND + 5, Vec::new());
        while let Some(part) = link.sync_slots(slots) {
            seen.extend(part.clone());
            link.synced(part.end, slots);
        }
        assert_eq!(seen, (0..slots).collect::<Vec<_>>());
        let begin = Frame::SyncBegin { sessions: 0, cursor: b"" }.kind();
        assert_eq!(told(&mut link, &mut peer), [HELLO.kind(), begin, Frame::SyncEnd.kind()]);
    }

    /// 3.5, 4.5: a silent brain is given up, unless the link isn't read.
    #[test]
    fn silence_ends_a_link() {
        let (mut link, _peer) = brain();
        assert_eq!(link.on_time(5_000, 5_000, false), Due::Nothing);
        assert_eq!(link.on_time(5_001, 5_001, false), Due::NoHello);
        link.handshake(1_000_000, &HELLO);
        assert_eq!(link.on_time(10_000, 10_000, false), Due::Stats);
        assert_eq!(link.on_time(10_001, 10_001, false), Due::Silence);
        assert_eq!(link.on_time(10_001, 10_001, true), Due::Nothing);
        assert_eq!(link.on_time(20_000, 20_000, false), Due::Stats);
        link.lost();
        assert_eq!(link.on_time(90_000, 90_000, false), Due::Nothing);
    }
}
