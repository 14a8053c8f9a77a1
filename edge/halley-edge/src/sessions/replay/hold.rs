//! The replay of one session at the edge (`protocol/link.md` 10): its cursor, and the live events
//! that wait for the end of it.
//!
//! A session that came with a cursor is *held*: the brain sends what it missed (REPLAY), at the
//! client's pace (REPLAYED), while live events wait here. LAST says up to which number of each
//! shard the replay was complete; what waits above it is written then, the rest was replayed. So
//! nothing comes twice and nothing is left out, whatever was published meanwhile.
//!
//! Holds belong to the worker, not to the slot: an idle connection has none. A hold outlives the
//! link: the next brain gets the session with its own cursor and replays on (10.6).
//!
//! Bounds: `hold_bytes_max` per session, its entries counted with what they hold, and
//! `outboxes_bytes_max` for all holds together. A session that passes one is closed, and comes back
//! with its cursor; nothing is lost.

use std::collections::VecDeque;

use halley_link::{List, SHARDS_MAX, Value};

use crate::outbox::Piece;

/// A live event that waits for the end of a replay.
struct Held {
    shard: u8,
    seq: u64,
    piece: Piece,
}

/// One session's replay. Invariant: `events` is in the order of the link, and `bytes` is what they
/// cost.
pub struct Hold {
    cursor: Box<[u8]>,
    events: VecDeque<Held>,
    bytes: usize,
    /// A REPLAY was read that has not been answered yet.
    owes: bool,
}

impl Hold {
    /// Of a session that goes on behind this cursor.
    pub fn new(cursor: &[u8]) -> Hold {
        Hold { cursor: cursor.into(), events: VecDeque::new(), bytes: 0, owes: false }
    }

    /// What a brain has to replay from: the client's own cursor, or the one it was sent last.
    pub fn cursor(&self) -> &[u8] {
        &self.cursor
    }

    /// The session has its welcome, and the link's cursor is this. A wish for the newest events
    /// (14.7) says from then on where the session began, as the next brain can't know. A brain that
    /// says it itself was there before.
    pub fn began(&mut self, behind: &[u8]) {
        let wish = self.cursor.strip_prefix(b"last-");
        if wish.is_some_and(|wish| !wish.contains(&b'-')) && !behind.is_empty() {
            self.cursor = [&self.cursor, &b"-"[..], behind].concat().into();
        }
    }

    /// Does it wish for the newest events, and had a cursor of none of what came behind them?
    pub fn wishes(&self) -> bool {
        self.cursor.starts_with(b"last-")
    }

    /// The client was sent something with this cursor, unless it is empty.
    pub fn moved(&mut self, cursor: &[u8]) {
        if !cursor.is_empty() {
            self.cursor = cursor.into();
        }
    }

    /// Bytes that the events which wait cost.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A REPLAY has yet to be answered.
    pub fn owe(&mut self) {
        self.owes = true;
    }

    /// Had a REPLAY to be answered? From now on it hasn't.
    pub fn owes_no_more(&mut self) -> bool {
        std::mem::take(&mut self.owes)
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Keeps a live event; false when that would pass the bound.
    pub fn keep(&mut self, shard: u8, seq: u64, piece: Piece, bytes_max: usize) -> bool {
        let bytes = self.bytes + piece.len() + size_of::<Held>();
        if bytes > bytes_max {
            return false;
        }
        self.bytes = bytes;
        self.events.push_back(Held { shard, seq, piece });
        true
    }

    /// The replay was complete up to these heads: gives what is newer, in order (10.5).
    pub fn released(self, heads: List<'_, Value>) -> impl Iterator<Item = Piece> {
        let mut upto = [0; SHARDS_MAX as usize];
        for (place, head) in upto.iter_mut().zip(heads.iter()) {
            *place = head.0;
        }
        let newer = move |held: &Held| {
            let head = upto.get(usize::from(held.shard).wrapping_sub(1));
            head.is_none_or(|head| held.seq > *head)
        };
        self.events.into_iter().filter(newer).map(|held| held.piece)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use halley_link::Item;
    use proptest::prelude::*;

    use super::*;

    const SHARDS: usize = 3;

    fn piece(seq: u64) -> Piece {
        seq.to_be_bytes().to_vec().into()
    }

    fn seqs(pieces: impl Iterator<Item = Piece>) -> Vec<u64> {
        let seq = |piece: Piece| u64::from_be_bytes((*piece.bytes).try_into().unwrap());
        pieces.map(seq).collect()
    }

    fn released(hold: Hold, heads: &[u64]) -> Vec<u64> {
        let mut items = Vec::new();
        heads.iter().for_each(|head| Value(*head).write(&mut items));
        seqs(hold.released(List::from_items(heads.len() as u16, &items)))
    }

    /// 14.7: a wish says where the session began, once; a cursor needs nothing.
    #[test]
    fn a_wish_says_where_the_session_began() {
        for (cursor, then) in
            [("last-5", "last-5-AR80"), ("last-5-AAAA", "last-5-AAAA"), ("AAAA", "AAAA")]
        {
            let mut hold = Hold::new(cursor.as_bytes());
            hold.began(b"");
            assert_eq!(hold.cursor(), cursor.as_bytes(), "no link has told a cursor");
            hold.began(b"AR80");
            assert_eq!(hold.cursor(), then.as_bytes());
            hold.began(b"BBBB");
            assert_eq!(hold.cursor(), then.as_bytes());
        }
    }

    /// What the brain does in the order of the link, as `docs/internals/delivery.md` has it.
    struct Brain {
        /// Shard of each event; its seq is its place.
        shards: Vec<usize>,
        /// From this event on the session is in the directory.
        opened: usize,
        /// Drawn when the heads were read, `opened` or later.
        heads_at: usize,
        /// For each event that is delivered, how many others' deliveries overtake it.
        delays: Vec<usize>,
    }

    impl Brain {
        fn heads(&self) -> Vec<u64> {
            let last = |shard| {
                let of_shard = |seq: &usize| self.shards[*seq] == shard;
                (0..self.heads_at).rfind(of_shard).map_or(0, |seq| seq as u64)
            };
            (0..SHARDS).map(last).collect()
        }

        /// Deliveries in an order in which each shard keeps its own.
        fn deliveries(&self) -> Vec<usize> {
            let mut order: Vec<_> = (self.opened..self.shards.len()).collect();
            order.sort_by_key(|seq| seq + self.delays[*seq]);
            let mut own: Vec<Vec<usize>> = vec![Vec::new(); SHARDS];
            order.iter().for_each(|seq| own[self.shards[*seq]].push(*seq));
            own.iter_mut().for_each(|seqs| seqs.sort_unstable_by(|a, b| b.cmp(a)));
            order.iter().map(|seq| own[self.shards[*seq]].pop().unwrap()).collect()
        }

        /// Runs it; `cuts` are the numbers of deliveries between one REPLAY and the next.
        fn client(&self, from: usize, cuts: &[usize]) -> Vec<u64> {
            let mut hold = Hold::new(b"c");
            let mut seen = Vec::new();
            let mut missed = (from..self.heads_at).map(|seq| seq as u64).peekable();
            let heads = self.heads();
            let concerned = |seq: &usize| heads[self.shards[*seq]] >= *seq as u64;
            let deliveries = self.deliveries();
            // 10.5: "the brain sends LAST only when the link's cursor is not below the heads".
            let passed = deliveries.iter().rposition(concerned).map_or(0, |place| place + 1);
            let mut cuts = cuts.iter();
            let mut next = 0;
            let mut keep = |hold: &mut Hold, upto: usize| {
                for seq in &deliveries[next..upto.max(next)] {
                    let shard = self.shards[*seq] as u8 + 1;
                    assert!(hold.keep(shard, *seq as u64, piece(*seq as u64), usize::MAX));
                }
                next = upto.max(next);
                next
            };
            let mut at = 0;
            while missed.peek().is_some() {
                at = keep(&mut hold, (at + cuts.next().unwrap_or(&0)).min(deliveries.len()));
                seen.extend(missed.by_ref().take(2));
            }
            let last = (at + cuts.next().unwrap_or(&0)).clamp(passed, deliveries.len());
            let at = keep(&mut hold, last);
            seen.extend(released(hold, &heads));
            seen.extend(deliveries[at..].iter().map(|seq| *seq as u64));
            seen
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// 10.2, 10.3, 10.5: however deliveries, replays and LAST interleave, the client gets each
        /// event once, and those of a shard in order.
        #[test]
        fn each_event_once_and_in_order(
            shards in prop::collection::vec(0..SHARDS, 1..60),
            places in prop::collection::vec(0usize..60, 3),
            delays in prop::collection::vec(0usize..9, 61),
            cuts in prop::collection::vec(0usize..5, 0..40),
        ) {
            // Seq 0 is nobody's: a head of 0 means that the shard has drawn none.
            let shards: Vec<_> = std::iter::once(0).chain(shards).collect();
            let mut places: Vec<_> = places.iter().map(|p| 1 + p % shards.len()).collect();
            places.sort_unstable();
            let (from, opened, heads_at) = (places[0], places[1], places[2]);
            let brain = Brain { shards, opened, heads_at, delays };
            let seen = brain.client(from, &cuts);
            let mut sorted = seen.clone();
            sorted.sort_unstable();
            let all: Vec<u64> = (from..brain.shards.len()).map(|seq| seq as u64).collect();
            prop_assert_eq!(sorted, all);
            for shard in 0..SHARDS {
                let own = seen.iter().filter(|seq| brain.shards[**seq as usize] == shard);
                prop_assert!(own.is_sorted(), "shard {}: {:?}", shard, seen);
            }
        }
    }

    /// 10.5: a shard that the heads don't name had no event to replay.
    #[test]
    fn shards_beyond_the_heads_keep_all() {
        let mut hold = Hold::new(b"c");
        for (shard, seq) in [(1, 5), (64, 1), (2, 6), (1, 7)] {
            assert!(hold.keep(shard, seq, piece(seq), 10_000));
        }
        assert_eq!(released(hold, &[5]), [1, 6, 7]);
    }

    /// 10.2: "`hold_bytes_max` bytes of events at most".
    #[test]
    fn the_bound_is_kept() {
        let mut hold = Hold::new(b"c");
        let kept = (1..1_000).take_while(|seq| hold.keep(1, *seq, piece(*seq), 1_000)).count();
        assert_eq!(kept, 1_000 / (8 + size_of::<Held>()));
        assert_eq!(hold.len(), kept);
    }
}
