//! The worker's link to its brain, whether or not one is linked: frames and credit, the cursor, and
//! the sync of sessions (`protocol/link.md` 4, 6, 10.1). State is replaced, never repaired.
//!
//! It moves frames and counts bytes. The meaning of a frame is the worker's business, and so are
//! the sessions. [`Link`] is one connection of it, gone when the brain goes. On a trunk [`Place`]
//! takes its place: the trunk's owner has read its frames.
//!
//! Invariants: before the handshake nothing but the hello is sent; an OPEN or CLOSE of an earlier
//! link is never sent on the next.

use std::io;
use std::ops::Range;

use halley_link::trunk::{HandOver, Handed};
use halley_link::{
    ClosedSession, Deframer, Error, Event, Frame, GoodbyeCode, Item, LinkCursor, List, RawFrame,
    Session,
};
use mio::net::UnixStream;

use crate::config::Config;
use crate::link::goodbye::LinkEnd;
use crate::link::hello::Answer;
use crate::link::trunk::{Place, Seat};
use crate::link::{HANDSHAKE_MS_MAX, HEARTBEAT_MS, Link, SILENCE_MS};

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
    /// There was no handshake in time (3.5).
    NoHello,
    /// The brain has been silent for too long (4.5).
    Silence,
}

/// How the worker is linked.
enum Way {
    /// By a link of its own.
    Own(Link),
    /// By a place on the trunk.
    Trunk(Place),
}

impl Way {
    fn is_up(&self) -> bool {
        match self {
            Way::Own(link) => link.up,
            Way::Trunk(place) => place.up,
        }
    }

    fn send(&mut self, frame: &Frame<'_>) {
        match self {
            Way::Own(link) => link.send(frame),
            Way::Trunk(place) => place.send(frame),
        }
    }

    fn queued(&self) -> usize {
        match self {
            Way::Own(link) => link.queued(),
            Way::Trunk(place) => place.queued(),
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct BrainLink {
    way: Option<Way>,
    /// The worker and the trunk, if the edge may have one.
    seat: Option<Seat>,
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
    /// One that may have a place on the trunk.
    pub fn with_seat(seat: Option<Seat>) -> BrainLink {
        BrainLink { seat, ..BrainLink::default() }
    }

    /// The brain has dialled; the link before was ended.
    pub fn dialled(&mut self, socket: UnixStream, now_ms: u64) {
        self.way = Some(Way::Own(Link::new(socket, now_ms)));
    }

    /// A place on the trunk begins; the link before was ended.
    pub fn placed(&mut self, number: u64) {
        self.way = self.seat.as_ref().map(|seat| Way::Trunk(seat.place(number)));
    }

    /// Is the worker's link a place on the trunk?
    pub fn is_placed(&self) -> bool {
        matches!(self.way, Some(Way::Trunk(_)))
    }

    /// The worker and the trunk.
    pub fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// Does something wait that came by the trunk?
    pub fn has_handed(&self) -> bool {
        self.part.is_some() || self.seat.as_ref().is_some_and(Seat::has_more)
    }

    /// Takes what came by the trunk.
    pub fn take_handed(&mut self) -> Option<Handed> {
        match self.part.take() {
            Some(part) => Some(Handed::Batch(part)),
            None => self.seat.as_ref()?.take(),
        }
    }

    /// Puts back what is left.
    pub fn put_part(&mut self, part: HandOver) {
        self.part = Some(part);
    }

    fn own(&self) -> Option<&Link> {
        match &self.way {
            Some(Way::Own(link)) => Some(link),
            _ => None,
        }
    }

    fn own_mut(&mut self) -> Option<&mut Link> {
        match &mut self.way {
            Some(Way::Own(link)) => Some(link),
            _ => None,
        }
    }

    fn up(&mut self) -> Option<&mut Way> {
        self.way.as_mut().filter(|way| way.is_up())
    }

    /// Is a brain connected, with a handshake or before it?
    pub fn is_there(&self) -> bool {
        self.way.is_some()
    }

    /// Was there a handshake with the brain that is connected?
    pub fn is_up(&self) -> bool {
        self.way.as_ref().is_some_and(Way::is_up)
    }

    /// As [`Link::became_readable`] has it.
    pub fn became_readable(&mut self, closing: bool) {
        if let Some(link) = self.own_mut() {
            link.became_readable(closing);
        }
    }

    /// Is there anything to read?
    pub fn is_readable(&self) -> bool {
        self.own().is_some_and(Link::is_readable)
    }

    /// Queues a frame for the brain; without a brain it is dropped, the next sync makes up for it.
    pub fn send(&mut self, frame: &Frame<'_>) {
        if let Some(way) = self.up() {
            way.send(frame);
        }
    }

    /// Bytes that wait for the brain.
    pub fn queued(&self) -> usize {
        self.way.as_ref().map_or(0, Way::queued)
    }

    /// May more be queued for the brain, where so many bytes may wait (4.6)?
    pub fn has_room(&self, bytes_max: usize) -> bool {
        self.way.as_ref().is_some_and(|way| way.is_up() && way.queued() < bytes_max)
    }

    /// Reads once, as [`Link::read`] does.
    ///
    /// # Errors
    /// Why the link is lost.
    pub fn read(&mut self, now_ms: u64) -> Result<usize, String> {
        self.own_mut().map_or(Ok(0), |link| link.read(now_ms))
    }

    /// Takes the frames that were read, so that they can be dealt with while the link is used.
    pub fn take_frames(&mut self) -> Option<Deframer> {
        self.own_mut().map(Link::take_frames)
    }

    /// Puts back what was not dealt with, unless the link is gone.
    pub fn put_frames(&mut self, frames: Deframer) {
        if let Some(link) = self.own_mut() {
            link.put_frames(frames);
        }
    }

    /// A frame was dealt with (4.3).
    pub fn dealt_with(&mut self, raw: &RawFrame<'_>) {
        if let Some(link) = self.own_mut() {
            link.dealt_with(raw);
        }
    }

    /// Does the brain leave so many free frames unread that there is no end to it?
    pub fn is_overloaded(&self) -> bool {
        self.own().is_some_and(Link::overloaded)
    }

    /// The brain gave credit back.
    ///
    /// # Errors
    /// As [`Link::credited`] has it.
    pub fn credited(&mut self, bytes: u32) -> Result<(), Error> {
        self.own_mut().map_or(Ok(()), |link| link.credited(bytes))
    }

    /// The handshake: the brain granted a window, and is answered; on a trunk its owner does that.
    pub fn handshake(&mut self, window: u32, answer: &Answer, config: &Config) {
        match &mut self.way {
            Some(Way::Own(link)) => {
                link.granted(window);
                link.up = true;
                answer.frame(config, |hello| link.send(hello));
            }
            Some(Way::Trunk(place)) => place.up = true,
            None => {}
        }
    }

    /// Begins the sync of so many sessions (6.1).
    pub fn sync_begin(&mut self, sessions: u32) {
        if let Some(way) = self.way.as_mut().filter(|way| way.is_up()) {
            way.send(&Frame::SyncBegin { sessions, cursor: self.cursor.token() });
            self.sync_next = Some(0);
        }
    }

    /// Does the brain know all sessions, or is it about to read of the last of them?
    pub fn is_synced(&self) -> bool {
        self.is_up() && self.sync_next.is_none()
    }

    /// Is there a sync, and room for more of it?
    pub fn sync_may_go_on(&self) -> bool {
        let room = |way: &Way| way.queued() <= SYNC_QUEUE_BYTES;
        self.sync_next.is_some() && self.way.as_ref().is_some_and(room)
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

    /// Heartbeats and their absence (4.5), the handshake's end (3.5). Silence is judged by
    /// `heard_ms`, up to which everything was read; and not at all if `waits`, while the link isn't
    /// read.
    pub fn on_time(&mut self, now_ms: u64, heard_ms: u64, waits: bool) -> Due {
        match &mut self.way {
            Some(Way::Own(link)) => heartbeat(link, now_ms, heard_ms, waits),
            _ => Due::Nothing,
        }
    }

    /// Is it time for STATS? Then it counts as sent.
    pub fn stats_are_due(&mut self, now_ms: u64) -> bool {
        let due = self.is_up() && now_ms >= self.stats_sent_ms + STATS_MS;
        if due {
            self.stats_sent_ms = now_ms;
        }
        due
    }

    /// Writes what waits for the brain.
    ///
    /// # Errors
    /// What the socket says; the link is lost then.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.way {
            Some(Way::Own(link)) => link.flush(),
            Some(Way::Trunk(place)) => {
                place.flush();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Says goodbye, if a last write succeeds. The link is lost with it ([`BrainLink::lost`]).
    pub fn say_goodbye(&mut self, code: GoodbyeCode, why: &str) {
        match &mut self.way {
            Some(Way::Own(link)) => {
                link.send(&Frame::Goodbye { code: code as u8, reason: why.as_bytes() });
                let _: io::Result<()> = link.flush();
            }
            Some(Way::Trunk(place)) => place.say_goodbye(code, why),
            None => {}
        }
    }

    /// The link is gone, and what was to be said on it; false if there was none.
    pub fn lost(&mut self) -> bool {
        let was_there = self.way.take().is_some();
        if was_there {
            self.part = None;
            self.sync_next = None;
            (self.opens, self.closes) = Default::default();
        }
        was_there
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        match &mut self.way {
            Some(Way::Own(link)) => link.trim(),
            Some(Way::Trunk(place)) => place.trim(),
            None => {}
        }
    }
}

/// PING, and whether the brain is silent, of a worker's own link or a trunk. Before the handshake
/// whether that is late. See [`BrainLink::on_time`].
pub fn heartbeat(link: &mut Link, now_ms: u64, heard_ms: u64, waits: bool) -> Due {
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
    Due::Nothing
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::Read as _;

    use clap::Parser;
    use halley_link::CloseReason;

    use super::*;

    const HELLO: u8 = 0x40;

    fn hello(link: &mut BrainLink) {
        let config = ["edge", "--public=127.0.0.1:0", "--api=127.0.0.1:0", "--socket-dir=/"];
        let answer = Answer { version: 5, worker: 0, window: 1_048_576, connections_max: 9 };
        link.handshake(1_000_000, &answer, &Config::parse_from(config));
    }

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
        hello(&mut link);
        link.opened(&open(1));
        link.closed(&close(1));
        assert!(link.is_up() && link.has_room(1) && link.lost() && !link.lost());
        assert!(!link.is_there() && !link.has_room(1));
        let (socket, mut peer) = UnixStream::pair().unwrap();
        link.dialled(socket, 0);
        hello(&mut link);
        link.announce();
        assert_eq!(told(&mut link, &mut peer), [HELLO]);
    }

    /// 6.3: "opened and closed in one round is in both, in this order".
    #[test]
    fn opens_come_before_closes() {
        let (mut link, mut peer) = brain();
        hello(&mut link);
        link.closed(&close(1));
        link.opened(&open(2));
        link.announce();
        link.announce();
        let sessions = List::from_items(0, &[]);
        let open = Frame::Open { sessions }.kind();
        let close = Frame::Close { sessions: List::from_items(0, &[]) }.kind();
        assert_eq!(told(&mut link, &mut peer), [HELLO, open, close]);
    }

    /// 6.1: every slot once, in parts, and the end is said once.
    #[test]
    fn a_sync_looks_at_every_slot() {
        let (mut link, mut peer) = brain();
        hello(&mut link);
        assert!(link.sync_slots(9).is_none());
        link.sync_begin(0);
        let (slots, mut seen) = (2 * SYNC_SLOTS_PER_ROUND + 5, Vec::new());
        while let Some(part) = link.sync_slots(slots) {
            seen.extend(part.clone());
            link.synced(part.end, slots);
        }
        assert_eq!(seen, (0..slots).collect::<Vec<_>>());
        let begin = Frame::SyncBegin { sessions: 0, cursor: b"" }.kind();
        assert_eq!(told(&mut link, &mut peer), [HELLO, begin, Frame::SyncEnd.kind()]);
    }

    /// 3.5, 4.5: a silent brain is given up, unless the link isn't read.
    #[test]
    fn silence_ends_a_link() {
        let (mut link, _peer) = brain();
        assert_eq!(link.on_time(5_000, 5_000, false), Due::Nothing);
        assert_eq!(link.on_time(5_001, 5_001, false), Due::NoHello);
        hello(&mut link);
        assert_eq!(link.on_time(10_000, 10_000, false), Due::Nothing);
        assert_eq!(link.on_time(10_001, 10_001, false), Due::Silence);
        assert_eq!(link.on_time(10_001, 10_001, true), Due::Nothing);
        assert_eq!(link.on_time(20_000, 20_000, false), Due::Nothing);
        link.lost();
        assert_eq!(link.on_time(90_000, 90_000, false), Due::Nothing);
    }

    /// 4.6: once a second, and only to a brain that is there.
    #[test]
    fn stats_are_due_once_a_second() {
        let (mut link, _peer) = brain();
        assert!(!link.stats_are_due(5_000));
        hello(&mut link);
        assert!(link.stats_are_due(5_000));
        assert!(!link.stats_are_due(5_999));
        assert!(link.stats_are_due(6_000));
        link.lost();
        assert!(!link.stats_are_due(90_000));
    }
}
