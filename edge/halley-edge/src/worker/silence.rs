//! WebSockets whose client got a ping and hasn't answered: does it still read? Then it is slow, not
//! gone: what lies before the ping, in both kernels' buffers, may be megabytes, and it answers when
//! it has read them.
//!
//! The edge can't see what a client's program has read. But its kernel reports how much room it
//! has, with each acknowledgement, and room grows only as the program reads. So a client that may
//! have something to read gets another ping at each walk of the sweep, to hear of its room, and is
//! gone if there was no more for [`LOOKS_MAX`] walks. While its kernel has no room at all, the ping
//! has not even left: then `outbox_ms_max` decides (`conns/write.rs`).
//!
//! Only clients that owe an answer have an entry.

use std::collections::HashMap;

use halley_sys::TcpProgress;

/// Less than this is no sign: a kernel rounds the room that it tells.
const BYTES_MIN: u64 = 4_096;
/// Walks without a sign.
const LOOKS_MAX: u8 = 2;

/// What comes of a look at a client that owes an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It takes nothing, or there is nothing to take: it is gone.
    Gone,
    /// Its kernel has no room: it has not been asked yet.
    Unasked,
    /// It may still answer.
    Slow,
}

struct Seen {
    last: TcpProgress,
    looks: u8,
    in_this_walk: bool,
}

/// See the module.
#[derive(Default)]
pub struct Silence {
    seen: HashMap<u64, Seen>,
}

impl Silence {
    /// Looks at a connection, by its id.
    pub fn look(&mut self, conn: u64, now: TcpProgress) -> Look {
        if now.unsent > 0 {
            self.seen.remove(&conn);
            return Look::Unasked;
        }
        if now.acked < BYTES_MIN {
            return Look::Gone;
        }
        let seen = self.seen.entry(conn);
        let seen = seen.or_insert(Seen { last: now, looks: 0, in_this_walk: true });
        seen.in_this_walk = true;
        let has_read = now.window != seen.last.window
            && now.room_up_to() >= seen.last.room_up_to() + BYTES_MIN;
        seen.looks = if has_read { 1 } else { seen.looks + 1 };
        if has_read || seen.looks == 1 {
            seen.last = now;
        }
        if seen.looks <= LOOKS_MAX {
            return Look::Slow;
        }
        self.seen.remove(&conn);
        Look::Gone
    }

    /// A walk begins: who wasn't looked at in the last one has answered, or has left.
    pub fn begin(&mut self) {
        self.seen.retain(|_, seen| std::mem::take(&mut seen.in_this_walk));
        if self.seen.is_empty() {
            self.seen = HashMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Megabytes that were acknowledged, the room beyond them, and what isn't sent.
    fn at(acked: u64, window: u32, unsent: u32) -> TcpProgress {
        TcpProgress { acked: acked << 20, window, unsent, unheard_ms: 0 }
    }

    fn looks(all: &[TcpProgress]) -> Vec<Look> {
        let mut silence = Silence::default();
        all.iter()
            .map(|now| {
                silence.begin();
                silence.look(7, *now)
            })
            .collect()
    }

    #[test]
    fn who_takes_bytes_is_there() {
        use Look::{Gone, Slow, Unasked};
        for (what, all, wanted) in [
            ("nothing was ever sent", vec![at(0, 65_536, 0)], vec![Gone]),
            ("no room", vec![at(1, 0, 5); 9], vec![Unasked; 9]),
            ("reads", (0..9).map(|n| at(1, 10_000 * n, 0)).collect(), vec![Slow; 9]),
            (
                "is sent more, and reads it",
                (0..9).map(|n| at(1 + u64::from(n), 90_000 - n, 0)).collect(),
                vec![Slow; 9],
            ),
            ("reads nothing", vec![at(1, 10_000, 0); 3], vec![Slow, Slow, Gone]),
            (
                "its kernel takes what it is sent, its program nothing",
                (0..3).map(|n| at(1 + n, 65_536, 0)).collect(),
                vec![Slow, Slow, Gone],
            ),
            (
                "the room is rounded",
                (0..3).map(|n| at(1, 10_000 + 128 * n, 0)).collect(),
                vec![Slow, Slow, Gone],
            ),
            (
                "reads in steps",
                vec![
                    at(1, 1, 0),
                    at(1, 1, 0),
                    at(1, 65_537, 0),
                    at(1, 65_537, 0),
                    at(1, 65_537, 0),
                ],
                vec![Slow, Slow, Slow, Slow, Gone],
            ),
        ] {
            assert_eq!(looks(&all), wanted, "{what}");
        }
    }

    #[test]
    fn who_answered_is_forgotten() {
        let mut silence = Silence::default();
        assert_eq!(silence.look(7, at(1, 5, 0)), Look::Slow);
        silence.begin();
        silence.begin();
        assert!(silence.seen.is_empty());
    }
}
