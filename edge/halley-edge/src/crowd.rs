//! Groups at work (`protocol/link.md` 11): members come and go, and their events are written in
//! slices. Which slots are members and what is under way is `groups.rs`'s.
//!
//! More workers than processors would all write at once, and each ordinary event would wait for a
//! processor behind them. So workers take [`Turns`]; whoever waits for one serves everything else.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use halley_link::{Event, List};

use crate::deliver::Pieces;
use crate::goodbye::LinkEnd;
use crate::outbox::Piece;
use crate::settings::Settings;
use crate::stats::Stat;
use crate::table::{Phase, flag};
use crate::transport::Transport;
use crate::worker::Worker;

/// Members that are served in a round: about a millisecond of writes.
const SLICE: usize = 256;
/// Members that are served before another worker has its turn.
const TURN: usize = 16_384;
/// How long a worker sleeps at most while it waits for its turn.
pub const TURN_WAIT_MS: u64 = 4;

/// How many workers of an edge write groups' events at the same time.
pub struct Turns {
    free: AtomicUsize,
    wanted: AtomicBool,
}

impl Turns {
    /// As many as there are processors.
    pub fn new() -> Turns {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Turns { free: AtomicUsize::new(processors), wanted: AtomicBool::new(false) }
    }

    fn take(&self) -> bool {
        let one_less = |free: usize| free.checked_sub(1);
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
        self.wanted.store(!taken, Ordering::Relaxed);
        taken
    }

    fn give_back(&self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }
}

/// An event that is kept until all members have it, encoded once for each kind of stream.
pub struct Kept {
    shard: u8,
    seq: u64,
    at: u64,
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

    fn piece(&mut self, transport: Transport) -> Piece {
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
        self.pieces.of(&event, transport)
    }
}

/// A worker's turn.
#[derive(Default)]
pub struct Turn {
    has: bool,
    served: usize,
}

impl Worker {
    /// GROUP_JOIN.
    pub(crate) fn group_join(&mut self, group: u32, conns: List<'_, u64>) -> Result<(), LinkEnd> {
        for conn in conns.iter() {
            let Some((index, slot)) = self.table.find(conn) else { continue };
            if !matches!(slot.phase, Phase::Opening | Phase::Live) {
                continue;
            }
            match self.groups.join(group, index) {
                Ok(added) => self.stats.add(Stat::GroupMembers, added.into()),
                Err(_) => return Err(LinkEnd::broken("11.2", "too many groups")),
            }
        }
        self.stats.set(Stat::Groups, self.groups.len() as u64);
        Ok(())
    }

    /// GROUP_LEAVE.
    pub(crate) fn group_leave(&mut self, group: u32, conns: List<'_, u64>) {
        for conn in conns.iter() {
            let Some((index, _)) = self.table.find(conn) else { continue };
            if self.groups.leave(group, index) {
                self.stats.sub(Stat::GroupMembers, 1);
            }
        }
    }

    /// GROUP_END.
    pub(crate) fn group_end(&mut self, group: u32) {
        let members = self.groups.end(group);
        self.stats.sub(Stat::GroupMembers, members as u64);
        self.stats.set(Stat::Groups, self.groups.len() as u64);
    }

    /// A handshake (11.3).
    pub(crate) fn end_groups(&mut self) {
        self.groups.end_all();
        self.stats.set(Stat::GroupMembers, 0);
        self.stats.set(Stat::Groups, 0);
    }

    /// A session ends: see [`crate::groups::Groups::strike`].
    pub(crate) fn strike(&mut self, index: u32) {
        let of = self.groups.strike(index);
        self.stats.sub(Stat::GroupMembers, of as u64);
    }

    /// GROUP_DELIVER: the event is on its way to who is a member now.
    ///
    /// # Errors
    /// As of a DELIVER.
    pub(crate) fn group_deliver(&mut self, group: u32, event: &Event<'_>) -> Result<(), LinkEnd> {
        self.link_cursor_passes(event)?;
        self.stats.count(Stat::GroupEvents);
        self.groups.begin(group, || Kept::new(event, &self.link_cursor, &self.settings));
        Ok(())
    }

    /// Gives a session what is under way for it, which is to come before anything else.
    pub(crate) fn overdue(&mut self, index: u32) {
        if self.groups.under_way() == 0 {
            return;
        }
        let Some(slot) = self.table.get(index) else { return };
        let transport = slot.transport;
        let mut from = 0;
        while let Some(event) = self.groups.take(index, &mut from) {
            let (shard, seq, piece) = (event.shard, event.seq, event.piece(transport));
            self.give(index, shard, seq, piece);
        }
    }

    /// The same, by the connection's id.
    pub(crate) fn overdue_to(&mut self, conn: u64) {
        if let Some((index, _)) = self.table.find(conn) {
            self.overdue(index);
        }
    }

    fn give(&mut self, index: u32, shard: u8, seq: u64, piece: Piece) {
        let Some(slot) = self.table.get(index) else { return };
        let aside = slot.has(flag::ASIDE);
        match slot.phase {
            Phase::Opening if !aside => self.welcome(index, b""),
            Phase::Opening | Phase::Live => {}
            _ => return,
        }
        self.stats.count(Stat::GroupDelivered);
        if aside {
            self.set_aside(index, shard, seq, piece);
        } else {
            self.stats.count(Stat::Delivered);
            self.put(index, piece);
        }
    }

    /// Serves a slice of those for whom something is under way.
    pub(crate) fn serve_groups(&mut self) {
        if self.groups.under_way() == 0 || !self.take_turn() {
            return;
        }
        for _ in 0..SLICE {
            let Some(index) = self.groups.next() else { break };
            self.overdue(index);
            self.turn.served += 1;
        }
        let others = self.shared.turns.wanted.load(Ordering::Relaxed);
        if self.groups.next().is_none() || self.turn.served >= TURN && others {
            self.turn = Turn::default();
            self.shared.turns.give_back();
        }
        self.stats.set(Stat::UnderWay, self.groups.under_way() as u64);
    }

    fn take_turn(&mut self) -> bool {
        if !self.turn.has {
            self.turn.has = self.shared.turns.take();
        }
        self.turn.has
    }

    /// Does the worker go on with a group at once?
    pub(crate) fn has_turn(&self) -> bool {
        self.turn.has
    }
}
