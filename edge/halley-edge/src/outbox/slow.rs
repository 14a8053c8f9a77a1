//! Slow consumers (`protocol/http.md` 12): what is dropped when an outbox is over its bound.
//!
//! An outbox is relieved in one pass and to well below its bound, so a client that stays slow costs
//! a pass now and then, not one for each event. Nothing here knows sockets or time.
//!
//! Invariants, whatever is dropped:
//! - A piece of which a part was written stays, and so does the newest.
//! - What stays keeps its order.
//! - Every dropped event lies in the times of a gap that stands where the first of them stood.
//!   There is one gap in an outbox; only when a part of it was written there may be a second.
//!
//! Only events are dropped. Other pieces (welcomes, replays, answers) have no mark and stay.

use std::collections::HashSet;
use std::rc::Rc;

use crate::outbox::{Outbox, Piece};
use crate::settings::SlowConsumer;

/// The gap that waits in an outbox, or the last one that did. Most outboxes never have one.
pub struct ToldGap {
    from: u64,
    to: u64,
    /// The piece's bytes, by which it is known again.
    bytes: Rc<[u8]>,
}

/// How a relief ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relief {
    /// Events dropped.
    pub dropped: u32,
    /// Events that a newer one replaced.
    pub conflated: u32,
    /// Does the rest fit? If not, nothing but a disconnect helps.
    pub enough: bool,
}

impl Outbox {
    /// Takes events out of an outbox that has passed `bytes_max`. `gap` makes the piece that says
    /// from when to when events are missing; where the transport has none, it is empty.
    pub fn relieve(
        &mut self,
        policy: SlowConsumer,
        bytes_max: usize,
        gap: impl FnOnce(u64, u64) -> Vec<u8>,
    ) -> Relief {
        let conflated = match policy {
            SlowConsumer::Disconnect => return Relief { dropped: 0, conflated: 0, enough: false },
            SlowConsumer::DropOldest => 0,
            SlowConsumer::LatestPerSubject => self.conflate(),
        };
        // 12.4: less than an eighth to spare would mean the next pass after the next few events.
        let enough = conflated > 0 && self.bytes <= bytes_max / 8 * 7;
        let dropped = if enough { 0 } else { self.drop_oldest(bytes_max / 2, gap) };
        Relief { dropped, conflated, enough: self.kept_bytes() <= bytes_max }
    }

    /// Bytes without the two pieces that stay though nothing else may: one event larger than the
    /// bound still has its turn.
    fn kept_bytes(&self) -> usize {
        let begun = self.pieces.front().filter(|_| self.done > 0).map_or(0, Piece::len) - self.done;
        let newest = self.pieces.back().filter(|_| self.pieces.len() > 1).map_or(0, Piece::len);
        self.bytes.saturating_sub(begun + newest)
    }

    /// The first piece of which nothing was written.
    fn first_whole(&self) -> usize {
        usize::from(self.done > 0)
    }

    /// Of each subject only the newest event stays. Gives how many went.
    fn conflate(&mut self) -> u32 {
        let first = self.first_whole();
        let mut newest = HashSet::new();
        let mut stays = vec![true; self.pieces.len()];
        for (piece, stays) in self.pieces.iter().zip(&mut stays).skip(first).rev() {
            if let Some(event) = &piece.event {
                *stays = newest.insert(&event.subject);
            }
        }
        let mut stays = stays.into_iter();
        let (mut conflated, mut freed) = (0, 0);
        self.pieces.retain(|piece| {
            let stays = stays.next().unwrap_or(true);
            if !stays {
                conflated += 1;
                freed += piece.len();
            }
            stays
        });
        self.bytes -= freed;
        conflated
    }

    /// Drops events from the front until `bytes` are left, and puts a gap where the first stood.
    /// Gives how many went.
    fn drop_oldest(&mut self, bytes: usize, gap: impl FnOnce(u64, u64) -> Vec<u8>) -> u32 {
        let first = self.first_whole();
        let newest = self.pieces.len().saturating_sub(1);
        let earlier = self.gap.take();
        let (mut at, mut kept, mut dropped) = (0, 0, 0);
        let (mut left, mut lost, mut place) = (self.bytes, None, 0);
        self.pieces.retain(|piece| {
            let whole = at >= first;
            let droppable = whole && at < newest && left > bytes;
            at += 1;
            let gone = match (&piece.event, &earlier) {
                (Some(event), _) if droppable => {
                    dropped += 1;
                    Some((event.at, event.at))
                }
                // The earlier gap is taken up by the new one.
                (None, Some(gap)) if whole && Rc::ptr_eq(&gap.bytes, &piece.bytes) => {
                    Some((gap.from, gap.to))
                }
                _ => None,
            };
            let Some((from, to)) = gone else {
                kept += 1;
                return true;
            };
            left -= piece.len();
            lost = match lost {
                None => {
                    place = kept;
                    Some((from, to))
                }
                Some((first, last)) => Some((from.min(first), to.max(last))),
            };
            false
        });
        self.bytes = left;
        if let Some((from, to)) = lost {
            self.put_gap(place, from, to, gap(from, to).into());
        }
        dropped
    }

    fn put_gap(&mut self, place: usize, from: u64, to: u64, bytes: Rc<[u8]>) {
        if !bytes.is_empty() {
            self.bytes += bytes.len();
            self.pieces.insert(place, Rc::clone(&bytes).into());
        }
        self.gap = Some(Box::new(ToldGap { from, to, bytes }));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::outbox::EventMark;
    use crate::random::Random;
    use SlowConsumer::{DropOldest, LatestPerSubject};

    /// Ten bytes that name the event: its time and subject.
    fn event(at: u64, subject: &str) -> Piece {
        let mark = EventMark { at, subject: subject.as_bytes().into() };
        Piece { event: Some(Rc::new(mark)), ..bytes(&format!("{at:04} {subject:5}")) }
    }

    fn bytes(text: &str) -> Piece {
        text.as_bytes().to_vec().into()
    }

    fn gap(from: u64, to: u64) -> Vec<u8> {
        format!("[{from}-{to}]").into()
    }

    fn outbox(pieces: impl IntoIterator<Item = Piece>) -> Outbox {
        let mut outbox = Outbox::default();
        pieces.into_iter().for_each(|piece| outbox.push(piece));
        outbox
    }

    /// Takes so many bytes, then blocks.
    struct Socket(Vec<u8>, usize);

    impl std::io::Write for Socket {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let n = bytes.len().min(self.1);
            if n == 0 {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            self.1 -= n;
            self.0.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn write(outbox: &mut Outbox, room: usize) -> String {
        let mut socket = Socket(Vec::new(), room);
        outbox.flush(&mut socket).unwrap();
        String::from_utf8(socket.0).unwrap()
    }

    fn all(mut outbox: Outbox) -> String {
        let (expected, text) = (outbox.bytes(), write(&mut outbox, usize::MAX));
        assert_eq!((text.len(), outbox.bytes()), (expected, 0), "`bytes` is what waits");
        text
    }

    /// http.md 12.3: "events that wait are dropped from the front, down to half of
    /// `outbox_bytes_max`, and a gap event with [...] the times of the first and last of them
    /// takes their place."
    #[test]
    fn the_oldest_go_and_a_gap_says_so() {
        let mut outbox = outbox((1..=11).map(|at| event(at, "s")));
        let relief = outbox.relieve(DropOldest, 100, gap);
        assert_eq!(relief, Relief { dropped: 6, conflated: 0, enough: true });
        assert_eq!(all(outbox), "[1-6]0007 s    0008 s    0009 s    0010 s    0011 s    ");
    }

    /// http.md 12.3: "An event of which a part was written is never dropped."
    #[test]
    fn a_begun_event_stays() {
        let mut outbox = outbox((1..=11).map(|at| event(at, "s")));
        assert_eq!(write(&mut outbox, 3), "000");
        outbox.relieve(DropOldest, 100, gap);
        assert_eq!(all(outbox), "1 s    [2-7]0008 s    0009 s    0010 s    0011 s    ");
    }

    /// A client that stays slow has one gap, which grows, at the place of the first missing event.
    #[test]
    fn a_gap_that_waits_takes_the_next_one_in() {
        let mut outbox = outbox((1..=11).map(|at| event(at, "s")));
        let first = outbox.relieve(DropOldest, 100, gap);
        (12..=17).for_each(|at| outbox.push(event(at, "s")));
        let second = outbox.relieve(DropOldest, 100, gap);
        assert_eq!((first.dropped, second.dropped), (6, 6));
        assert_eq!(all(outbox), "[1-12]0013 s    0014 s    0015 s    0016 s    0017 s    ");
    }

    /// A gap that is on its way can't be changed any more: the next one is told by itself.
    #[test]
    fn a_begun_gap_stays() {
        let mut outbox = outbox((1..=11).map(|at| event(at, "s")));
        outbox.relieve(DropOldest, 100, gap);
        assert_eq!(write(&mut outbox, 2), "[1");
        (12..=17).for_each(|at| outbox.push(event(at, "s")));
        outbox.relieve(DropOldest, 100, gap);
        assert_eq!(all(outbox), "-6][7-13]0014 s    0015 s    0016 s    0017 s    ");
    }

    /// What is no event is never dropped, and what stays keeps its order.
    #[test]
    fn other_pieces_stay_where_they_are() {
        let mut pieces = vec![bytes("welcome ")];
        pieces.extend((1..=6).map(|at| event(at, "s")));
        pieces.insert(3, bytes("pong "));
        let mut outbox = outbox(pieces);
        outbox.relieve(DropOldest, 60, gap);
        assert_eq!(all(outbox), "welcome [1-5]pong 0006 s    ");
    }

    /// When only what can't go is left, and it is too much, nothing but a disconnect helps.
    #[test]
    fn it_says_when_that_is_not_enough() {
        let mut outbox = outbox([bytes(&"x".repeat(50)), bytes(&"y".repeat(60)), event(1, "s")]);
        assert!(!outbox.relieve(DropOldest, 100, gap).enough);
        assert!(!outbox.relieve(LatestPerSubject, 100, gap).enough);
        assert!(!outbox.relieve(SlowConsumer::Disconnect, 100, gap).enough);
    }

    /// An event larger than the bound has its turn, behind another that is larger as well.
    #[test]
    fn the_newest_and_the_begun_one_always_fit() {
        let large = |at| Piece { bytes: vec![b'x'; 200].into(), ..event(at, "s") };
        let mut outbox = outbox([large(1), large(2)]);
        write(&mut outbox, 1);
        assert!(outbox.relieve(DropOldest, 100, gap).enough);
        outbox.push(large(3));
        let relief = outbox.relieve(DropOldest, 100, gap);
        assert_eq!((relief.dropped, relief.enough), (1, true));
        assert_eq!(all(outbox).len(), 199 + "[2-2]".len() + 200);
    }

    /// http.md 10.3: "`/test/<user>` has none."
    #[test]
    fn a_transport_without_gaps() {
        let mut outbox = outbox((1..=11).map(|at| event(at, "s")));
        assert_eq!(outbox.relieve(DropOldest, 100, |_, _| Vec::new()).dropped, 6);
        assert_eq!(all(outbox).len(), 50);
    }

    /// http.md 12.4: "of the events that wait, only the newest about each subject stays."
    #[test]
    fn the_latest_of_each_subject_stays_in_its_place() {
        let subjects = ["a", "b", "a", "c", "b", "a", "d", "a", "b", "a", "a"];
        let mut outbox = outbox((1..).zip(subjects).map(|(at, subject)| event(at, subject)));
        let relief = outbox.relieve(LatestPerSubject, 100, gap);
        assert_eq!(relief, Relief { dropped: 0, conflated: 7, enough: true });
        assert_eq!(all(outbox), "0004 c    0007 d    0009 b    0011 a    ");
    }

    /// http.md 12.4: "If that isn't enough, 12.3."
    #[test]
    fn too_many_subjects_lose_the_oldest() {
        let mut outbox = outbox((1..=11).map(|at| event(at, &format!("s{}", at.min(10)))));
        let relief = outbox.relieve(LatestPerSubject, 100, gap);
        assert_eq!(relief, Relief { dropped: 5, conflated: 1, enough: true });
        assert_eq!(all(outbox), "[1-5]0006 s6   0007 s7   0008 s8   0009 s9   0011 s10  ");
    }

    /// Whatever comes and goes, a client that reads in the end sees every event in order, or a gap
    /// over its time; under `latest_per_subject` that, or of a newer one of the same subject.
    #[test]
    fn nothing_is_lost_without_a_word() {
        let mut random = Random::new();
        for policy in [DropOldest, LatestPerSubject] {
            for _ in 0..200 {
                let (mut outbox, mut got, mut all) = (Outbox::default(), String::new(), Vec::new());
                for at in 1..=200 {
                    let subject = format!("s{}", random.up_to(12));
                    outbox.push(event(at, &subject));
                    all.push((at, subject));
                    if outbox.bytes() > 100 {
                        let relief = outbox.relieve(policy, 100, gap);
                        assert!(relief.enough && outbox.bytes() <= 100);
                    }
                    let room = random.up_to(14).saturating_sub(4) as usize;
                    got.push_str(&write(&mut outbox, room));
                }
                got.push_str(&write(&mut outbox, usize::MAX));
                check(&got, &all, policy);
            }
        }
    }

    fn check(got: &str, all: &[(u64, String)], policy: SlowConsumer) {
        let (mut seen, mut gaps, mut rest) = (Vec::new(), Vec::new(), got);
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix('[') {
                let (span, tail) = tail.split_once(']').unwrap();
                let (from, to) = span.split_once('-').unwrap();
                gaps.push((from.parse::<u64>().unwrap(), to.parse::<u64>().unwrap()));
                rest = tail;
            } else {
                let (one, tail) = rest.split_at(10);
                seen.push((one[..4].parse::<u64>().unwrap(), one[5..].trim().to_owned()));
                rest = tail;
            }
        }
        assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "{got}");
        for (at, subject) in all {
            let known = |at: &u64| {
                let told = gaps.iter().any(|(from, to)| (from..=to).contains(&at));
                told || seen.iter().any(|(t, s)| t == at && s == subject)
            };
            let newer = |(later, s): &(u64, String)| later > at && s == subject && known(later);
            let replaced = policy == LatestPerSubject && all.iter().any(newer);
            assert!(known(at) || replaced, "{at} {subject} in {got}");
        }
    }
}
