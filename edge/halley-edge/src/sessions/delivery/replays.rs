//! REPLAY at work (`protocol/link.md` 10): what a held session is sent, and what it is sent once it
//! is held no longer. `replay/` has what waits meanwhile.

use halley_link::{Event, FLAG_LAST, List, Value};

use crate::conns::table::{Phase, flag};
use crate::outbox::Piece;
use crate::outbox::pieces::Encoder;
use crate::sessions::base::detail::{Conns, poll_of};
use crate::sessions::delivery::{Delivery, Writer};
use crate::stats::Stat;

/// REPLAY without its connection.
pub struct Replay<'a> {
    /// LAST or nothing.
    pub flags: u8,
    /// Of LAST: the link's from then on. Of one without items: where the session began.
    pub cursor: &'a [u8],
    /// Of LAST: see 10.5.
    pub heads: List<'a, Value>,
    /// What the session missed.
    pub items: List<'a, Event<'a>>,
}

impl Delivery {
    /// A live event of a session whose events don't go into its outbox at once.
    pub fn buffer(&mut self, conns: &mut Conns, index: u32, shard: u8, seq: u64, piece: Piece) {
        let kept = match self.replays.keep(conns, index, shard, seq, piece) {
            Ok(kept) => kept,
            Err(piece) => {
                conns.stats.count(Stat::Delivered);
                let bytes_max = conns.settings.hold_bytes_max;
                self.polls.gather(conns, index, piece, bytes_max, false)
            }
        };
        if !kept {
            conns.slow_consumer(index);
        }
    }
}

impl Writer<'_> {
    /// REPLAY: what a session missed, or the end of that.
    pub fn replay(&mut self, conn: u64, replay: &Replay<'_>) {
        let last = replay.flags & FLAG_LAST != 0;
        if last {
            self.io.link.cursor_moved(replay.cursor);
        }
        let Some((index, _)) = self.io.conns.find(conn) else { return };
        if !self.delivery.replays.is_held(index) {
            return;
        }
        self.deliver_pending_first(index);
        if !last && replay.items.is_empty() && !replay.cursor.is_empty() {
            return self.begins(index, replay.cursor);
        }
        // Like a DELIVER, a REPLAY before OPENED counts as OPENED for the welcome (6.2).
        self.welcome(index, b"");
        for event in replay.items.iter() {
            self.replay_event(index, &event);
        }
        if last {
            self.release(index, replay.heads);
            self.poll_goes_live(index);
            return;
        }
        self.delivery.replays.owe(self.io, index);
        self.delivery.polls.due_if_it_has_something(&mut self.io.conns, index);
    }

    /// The brain says where a session began that wishes for the newest (14.7): its client knows it
    /// from its welcome on, and comes back with it.
    fn begins(&mut self, index: u32, cursor: &[u8]) {
        self.delivery.replays.moved(index, cursor);
        match self.io.conns.phase(index) {
            Phase::Opening => self.welcome(index, cursor),
            Phase::Live => self.tell_cursor(index, cursor),
            _ => {}
        }
    }

    /// A stream's client hears where it is, without an event.
    fn tell_cursor(&mut self, index: u32, cursor: &[u8]) {
        let Some(slot) = self.io.conns.slot(index) else { return };
        let transport = slot.transport;
        let mut out = Vec::new();
        transport.heartbeat(&mut out, cursor);
        if !out.is_empty() {
            self.push(index, out.into());
        }
    }

    fn replay_event(&mut self, index: u32, event: &Event<'_>) {
        let Some(slot) = self.io.conns.slot(index) else { return };
        let transport = slot.transport;
        // Unmarked: what is paced by the client itself is no slow consumer's loss (http.md 12).
        let deflater = &mut self.delivery.deflater;
        let piece = Encoder::unmarked(event).piece(transport, deflater);
        if !self.delivery.replays.moved(index, event.cursor) {
            return;
        }
        self.io.conns.stats.count(Stat::Replayed);
        self.pass(index, piece);
    }

    /// To the client: into the answer of a poll, into the outbox of a stream.
    fn pass(&mut self, index: u32, piece: Piece) {
        if poll_of(&mut self.io.conns, index).is_some() {
            let held = self.delivery.replays.is_held(index);
            self.delivery.polls.gather(&mut self.io.conns, index, piece, usize::MAX, held);
        } else {
            self.push(index, piece);
        }
    }

    /// LAST: the session is held no longer.
    fn release(&mut self, index: u32, heads: List<'_, Value>) {
        let Some(hold) = self.delivery.replays.take(&mut self.io.conns, index) else { return };
        let wishes = hold.wishes();
        let mut delivered = 0;
        // While the flag is set the outbox takes what was held, though it may pass its bound.
        for piece in hold.released(heads) {
            self.pass(index, piece);
            delivered += 1;
        }
        self.io.conns.stats.add(Stat::Delivered, delivered);
        let polls = poll_of(&mut self.io.conns, index).is_some();
        if let Some(slot) = self.io.conns.slot(index).filter(|_| !polls) {
            slot.clear(flag::BUFFERED);
            // Nothing that it was sent has another cursor: it would come back to its beginning.
            if wishes && delivered == 0 {
                let cursor = self.io.link.cursor().to_vec();
                self.tell_cursor(index, &cursor);
            }
        }
    }

    /// Answers REPLAY if one waits for that and the outbox is empty (10.3).
    pub fn replayed(&mut self, index: u32) {
        self.delivery.replays.replayed(self.io, index);
    }
    /// The link is gone, and with it the replays that it carried.
    pub fn owe_nothing(&mut self) {
        self.delivery.replays.owe_nothing();
    }
}
