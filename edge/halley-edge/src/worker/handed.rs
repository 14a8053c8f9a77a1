//! The worker and the trunk: what its owner has handed over, in the order of the trunk
//! (`protocol/link.md` 13).
//!
//! A place begins by a handshake and ends like a link; in between the frames are those of a link,
//! but for events, which come decoded and with their cursors.

use halley_link::trunk::{Begin, Brought, End, HandOver, Handed};
use halley_link::{Frame, GoodbyeCode, Word};

use crate::link::brain_link::READ_BYTES_PER_ROUND;
use crate::link::goodbye::LinkEnd;
use crate::link::hello;
use crate::sessions::base::groups;
use crate::stats::Stat;
use crate::worker::state::Worker;

const HELLO_BRAIN: u8 = 0x10;

impl Worker {
    /// May the worker sleep? If so it is woken for what is handed to it then.
    pub(crate) fn may_sleep(&self) -> bool {
        // While groups have to be served it takes nothing, and needs no waking.
        self.link_waits() || self.io.link.seat().is_none_or(|seat| seat.may_sleep())
    }

    /// Takes and deals with what was handed over, up to a bound.
    pub(crate) fn take_handed(&mut self) {
        let mut taken = 0;
        while taken < READ_BYTES_PER_ROUND && !self.link_waits() {
            let Some(handed) = self.io.link.take_handed() else { return };
            match handed {
                Handed::Begin(begin) => self.place_begins(&begin),
                Handed::Batch(part) => {
                    taken += part.cost();
                    self.part(part);
                }
                Handed::Cursor(cursor) if self.io.link.is_placed() => {
                    self.io.link.cursor_moved(&cursor);
                }
                // The worker has left the trunk by itself.
                Handed::Cursor(_) => {}
                Handed::End(end) => self.place_ends(&end),
            }
        }
    }

    fn place_begins(&mut self, begin: &Begin) {
        self.end_link(GoodbyeCode::Replaced, "a trunk was dialled");
        self.io.link.placed(begin.place);
        let result = match Frame::decode(HELLO_BRAIN, &begin.hello) {
            Ok(Frame::HelloBrain { window, settings, node, .. }) => hello::settings(settings)
                .and_then(|settings| self.handshake(begin.version, window, settings, node)),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        };
        let keys = begin.keys.as_deref().map_or(Ok(()), |keys| self.take_keys(keys));
        if let Err(end) = result.and(keys) {
            self.link_broken(&end);
        }
    }

    fn place_ends(&mut self, end: &End) {
        if !self.io.link.is_placed() {
            return;
        }
        if end.left_behind {
            self.io.conns.stats.count(Stat::LeftBehind);
        }
        if let Some(cursor) = &end.cursor {
            self.io.link.cursor_moved(cursor);
        }
        self.link_lost(&end.why);
    }

    fn part(&mut self, mut part: HandOver) {
        while self.io.link.is_placed() {
            if self.link_waits() {
                return self.io.link.put_part(part);
            }
            let Some(brought) = part.next() else { return };
            if let Err(end) = self.brought(brought) {
                return self.link_broken(&end);
            }
        }
    }

    fn brought(&mut self, brought: Brought<'_>) -> Result<(), LinkEnd> {
        let (io, sessions) = (&mut self.io, &mut self.sessions);
        match brought {
            Brought::Deliver { event, words } => {
                sessions.deliver(io, &event, words.iter().map(Word::conn))
            }
            Brought::GroupDeliver { group, event } => groups::deliver(io, group, &event),
            Brought::Frame { kind, payload } => {
                let frame = Frame::decode(kind, payload)?;
                self.frame(&frame)
            }
            Brought::Cursor { cursor } => {
                io.link.cursor_moved(cursor);
                Ok(())
            }
        }
    }

    /// For STATS.
    pub(crate) fn count_trunk(&mut self) {
        let Some(seat) = self.io.link.seat() else { return };
        let (bytes, (stale, errors)) = (seat.ring_bytes(), seat.counted());
        let stats = &mut self.io.conns.stats;
        stats.set(Stat::RingBytes, bytes as u64);
        stats.add(Stat::Stale, stale);
        stats.add(Stat::LinkErrors, errors);
    }
}
