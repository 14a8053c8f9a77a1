//! Groups at work (`protocol/link.md` 11): members come and go, and their events are written in
//! slices, by turns (`turns.rs`). Which slots are members and what is under way is `mod.rs`'s.
//!
//! How fast the brain brings a group's events says nothing about how fast a member takes them: they
//! come together and wait here together. So no more of them is under way than a third of an outbox;
//! a member in whose outbox they would be more is late, and passed over until its outbox is empty;
//! and all members wait while half of `outboxes_bytes_max` is full. For this the worker has
//! patience, at most twice [`PATIENCE_MS`], and with a member that has used it up none until its
//! outbox was empty: it gets everything at once, and then http.md 12 says whether it is a slow
//! consumer. So a client that reads isn't closed because of when its events were written, and one
//! that doesn't read holds the others up only once.

use halley_link::{Event, List};
use halley_wire::websocket::Deflater;

use crate::conns::table::{Phase, flag};
use crate::link::goodbye::LinkEnd;
use crate::outbox::Piece;
use crate::outbox::pieces::Pieces;
use crate::settings::Settings;
use crate::stats::Stat;
use crate::transport::Transport;
use crate::worker::Worker;

/// Members that are served in a round, and bytes for them: about a millisecond of writes.
const SLICE: usize = 256;
const SLICE_BYTES: u64 = 1_048_576;
/// Members that are served before another worker has its turn.
const TURN: usize = 16_384;
/// How long the worker waits for members that have no room; twice that if they have none just after
/// it looked.
const PATIENCE_MS: u64 = 200;

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

    fn piece(&mut self, transport: Transport, deflater: &mut Deflater) -> Piece {
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

/// Since when the worker has patience; 0 while it needs none.
#[derive(Default)]
pub struct Patience {
    late_ms: u64,
    crowded_ms: u64,
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
        self.link.cursor_passes(event)?;
        self.stats.count(Stat::GroupEvents);
        let bytes = event.json.len() + self.link.cursor().len();
        self.groups.begin(group, bytes, || Kept::new(event, self.link.cursor(), &self.settings));
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
            let piece = event.piece(transport, &mut self.compression.deflater);
            let (shard, seq) = (event.shard, event.seq);
            self.give(index, shard, seq, piece);
        }
        self.groups.has_room(index);
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

    /// What groups' events may fill of an outbox: as much is under way at most, and as much again
    /// is left for what else is written.
    fn groups_share(&self) -> usize {
        (self.settings.outbox_bytes_max / 3).min(self.settings.outboxes_bytes_max / 16)
    }

    /// Must the link wait for members to be served?
    pub(crate) fn groups_are_full(&self) -> bool {
        self.groups.full(self.groups_share())
    }

    /// Serves a slice of those for whom something is under way.
    pub(crate) fn serve_groups(&mut self) {
        if self.groups.under_way() > 0 {
            self.lose_patience();
        }
        if self.groups.next().is_none() {
            self.turn.give_back();
            self.turn_served = 0;
        } else if self.turn.take() {
            self.serve_slice();
        }
        self.stats.set(Stat::UnderWay, self.groups.under_way() as u64);
    }

    fn serve_slice(&mut self) {
        let before = self.stats.get(Stat::OutboxBytes);
        let mut served = 0;
        while served < SLICE
            && self.stats.get(Stat::OutboxBytes) < before + SLICE_BYTES
            && !self.crowded()
        {
            let Some(index) = self.groups.next() else { break };
            if self.has_room(index) {
                self.overdue(index);
            } else {
                self.groups.is_late(index);
            }
            served += 1;
        }
        self.turn_served += served;
        let goes_on = !self.crowded() && self.groups.next().is_some();
        if !goes_on || self.turn_served >= TURN && self.turn.others_wait() {
            self.turn.give_back();
            self.turn_served = 0;
        }
        if goes_on {
            self.turn.take();
        }
    }

    /// Has a session's outbox room for whatever is under way? One that is empty has.
    fn has_room(&mut self, index: u32) -> bool {
        let (under_way, most) = (self.groups.bytes(), self.groups_share());
        let Some(slot) = self.table.get(index) else { return true };
        if slot.phase != Phase::Live || slot.has(flag::ASIDE) {
            return true;
        }
        let outbox = self.pool.get(slot.outbox);
        outbox.is_none_or(|outbox| outbox.is_hurried() || outbox.bytes() + under_way <= most)
    }

    /// Does too much wait in all outboxes together for more of groups' events?
    fn crowded(&mut self) -> bool {
        let most = self.settings.outboxes_bytes_max as u64 / 2;
        let crowded_ms = &mut self.patience.crowded_ms;
        if self.stats.get(Stat::OutboxBytes) <= most {
            *crowded_ms = 0;
            return false;
        }
        if *crowded_ms == 0 {
            *crowded_ms = self.now_ms.max(1);
        }
        self.clock.heard_ms < *crowded_ms + PATIENCE_MS
    }

    /// Who has been late for long enough gets what is under way, and is asked no more.
    fn lose_patience(&mut self) {
        if !self.groups.any_late() {
            self.patience.late_ms = 0;
        } else if self.patience.late_ms == 0 {
            self.patience.late_ms = self.now_ms.max(1);
        } else if self.clock.heard_ms >= self.patience.late_ms + PATIENCE_MS {
            self.patience.late_ms = self.now_ms;
            for index in self.groups.impatient() {
                self.hurry(index);
            }
        }
    }

    fn hurry(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        if let Some(outbox) = self.pool.get(slot.outbox) {
            outbox.hurry();
        }
        self.overdue(index);
    }
}
