//! The link's cursor, which a worker moves by itself (`protocol/link.md` 10.9).
//!
//! A token is base64url of `<<1, store:32, seconds:32, max:48, others:8, delta, ...>>`, padded with
//! zeros to a multiple of three bytes. `max` is the largest seq of a shard; bit i-1 of `others`
//! means that shard i is lower, and then `max` minus its seq follows as a varint of seven bits a
//! byte, the lowest first. Each vector has one token, so what isn't exactly that is no token.

use crate::{Error, Event};

const SHARDS: usize = 8;
const PART: u8 = 1;
const HEAD_BYTES: usize = 16;
/// A delta has 48 bits.
const VARINT_BYTES_MAX: usize = 7;
/// The head, and a varint for all shards but the largest, padded.
const BYTES_MAX: usize = (HEAD_BYTES + VARINT_BYTES_MAX * (SHARDS - 1)).next_multiple_of(3);
const SEQ_LIMIT: u64 = 1 << 48;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What a token says: of a brain's store, up to which seq of each shard, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    store: u32,
    seconds: u32,
    seqs: [u64; SHARDS],
}

impl Cursor {
    /// Reads a token; `None` if it is none of this layout.
    #[must_use]
    pub fn decode(token: &[u8]) -> Option<Cursor> {
        let mut bytes = [0; BYTES_MAX];
        let used = token.len() / 4 * 3;
        if token.len() % 4 != 0 || !(HEAD_BYTES..=BYTES_MAX).contains(&used) {
            return None;
        }
        for (four, three) in token.chunks_exact(4).zip(bytes.chunks_exact_mut(3)) {
            let mut word = 0;
            for byte in four {
                word = word << 6 | u32::try_from(ALPHABET.iter().position(|c| c == byte)?).ok()?;
            }
            three.copy_from_slice(&word.to_be_bytes()[1..]);
        }
        let mut rest = &bytes[..used];
        let mut take = |n: usize| {
            let (taken, left) = rest.split_at_checked(n)?;
            rest = left;
            Some(taken.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
        };
        if take(1)? != u64::from(PART) {
            return None;
        }
        let (store, seconds) = (take(4)? as u32, take(4)? as u32);
        let (max, others) = (take(6)?, take(1)?);
        let mut seqs = [max; SHARDS];
        for (shard, seq) in seqs.iter_mut().enumerate() {
            if others & 1 << shard != 0 {
                let mut delta = 0;
                for place in 0..VARINT_BYTES_MAX {
                    let byte = take(1)?;
                    delta |= (byte & 0x7f) << (7 * place);
                    if byte & 0x80 == 0 {
                        break;
                    }
                }
                *seq = max.checked_sub(delta)?;
            }
        }
        let cursor = Cursor { store, seconds, seqs };
        let mut again = Vec::with_capacity(token.len());
        cursor.encode(&mut again);
        (again == token).then_some(cursor)
    }

    /// The event with this seq has passed, which was published at this time, in milliseconds.
    /// False if there is no such shard or seq: then nothing has moved.
    pub fn pass(&mut self, shard: u8, seq: u64, at_ms: u64) -> bool {
        let Some(its) = usize::from(shard).checked_sub(1).and_then(|i| self.seqs.get_mut(i)) else {
            return false;
        };
        if seq >= SEQ_LIMIT {
            return false;
        }
        *its = seq.max(*its);
        self.seconds = u32::try_from(at_ms / 1_000).unwrap_or(u32::MAX).max(self.seconds);
        true
    }

    /// Writes the token.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let max = self.seqs.iter().copied().max().unwrap_or_default();
        let mut bytes = [0; BYTES_MAX];
        bytes[0] = PART;
        bytes[1..5].copy_from_slice(&self.store.to_be_bytes());
        bytes[5..9].copy_from_slice(&self.seconds.to_be_bytes());
        bytes[9..15].copy_from_slice(&max.to_be_bytes()[2..]);
        let mut end = HEAD_BYTES;
        for (shard, seq) in self.seqs.iter().enumerate() {
            let mut delta = max - seq;
            if delta == 0 {
                continue;
            }
            bytes[15] |= 1 << shard;
            while delta >= 0x80 {
                bytes[end] = delta as u8 | 0x80;
                end += 1;
                delta >>= 7;
            }
            bytes[end] = delta as u8;
            end += 1;
        }
        for three in bytes[..end.next_multiple_of(3)].chunks_exact(3) {
            let word = u32::from_be_bytes([0, three[0], three[1], three[2]]);
            let six = |shift: u32| ALPHABET[(word >> shift & 63) as usize];
            out.extend_from_slice(&[six(18), six(12), six(6), six(0)]);
        }
    }
}

/// A link's cursor, which frames say or events move (10.1, 10.9).
///
/// Invariant: `place` is what `token` says, if it is there.
#[derive(Clone, Debug, Default)]
pub struct LinkCursor {
    /// Empty until a brain has said one.
    token: Vec<u8>,
    /// The same, once an event had to move it.
    place: Option<Cursor>,
}

impl LinkCursor {
    /// The token; empty if no brain has said one.
    #[must_use]
    pub fn token(&self) -> &[u8] {
        &self.token
    }

    /// A frame said the cursor, unless this one is empty.
    pub fn moved(&mut self, cursor: &[u8]) {
        if !cursor.is_empty() {
            self.token.clear();
            self.token.extend_from_slice(cursor);
            self.place = None;
        }
    }

    /// Everything up to this event was read.
    ///
    /// # Errors
    /// 10.9 when the event can't move the cursor.
    pub fn passes(&mut self, event: &Event<'_>) -> Result<(), Error> {
        if !event.cursor.is_empty() || self.token.is_empty() {
            self.moved(event.cursor);
            return Ok(());
        }
        if self.place.is_none() {
            self.place = Cursor::decode(&self.token);
        }
        let moved = self.place.as_mut().is_some_and(|place| {
            self.token.clear();
            let passed = place.pass(event.shard, event.seq, event.at);
            place.encode(&mut self.token);
            passed
        });
        if moved { Ok(()) } else { Err(Error::new("10.9", "an event can't move the cursor")) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn token(cursor: &Cursor) -> Vec<u8> {
        let mut out = Vec::new();
        cursor.encode(&mut out);
        out
    }

    /// `protocol/cursors.json` has what the brain makes of the same vectors.
    #[test]
    fn tokens_are_those_of_the_brain() {
        let text = include_str!("../../../protocol/cursors.json");
        let all: serde_json::Value = serde_json::from_str(text).unwrap();
        let all = all["cursors"].as_array().unwrap();
        assert!(all.len() >= 6);
        for one in all {
            let number = |name: &str| u32::try_from(one[name].as_u64().unwrap()).unwrap();
            let vector = one["vector"].as_array().unwrap();
            let seqs = std::array::from_fn(|i| vector[i].as_u64().unwrap());
            let cursor = Cursor { store: number("store"), seconds: number("seconds"), seqs };
            let expected = one["token"].as_str().unwrap();
            assert_eq!(std::str::from_utf8(&token(&cursor)), Ok(expected));
            assert_eq!(Cursor::decode(expected.as_bytes()), Some(cursor));
        }
    }

    #[test]
    fn an_event_moves_its_shard_and_the_time() {
        let mut cursor = Cursor { store: 7, seconds: 100, seqs: [10; SHARDS] };
        assert!(cursor.pass(3, 12, 101_999));
        assert!(cursor.pass(8, 9, 99_000));
        assert_eq!(
            cursor,
            Cursor { store: 7, seconds: 101, seqs: [10, 10, 12, 10, 10, 10, 10, 10] }
        );
        for (shard, seq) in [(0, 20), (9, 20), (255, 20), (1, SEQ_LIMIT)] {
            let before = cursor.clone();
            assert!(!cursor.pass(shard, seq, 0), "{shard} {seq}");
            assert_eq!(cursor, before);
        }
    }

    #[test]
    fn what_is_no_token_is_none() {
        let good = token(&Cursor { store: 1, seconds: 2, seqs: [5, 4, 3, 2, 1, 0, 300, 70_000] });
        assert!(Cursor::decode(&good).is_some());
        for length in 0..good.len() {
            assert_eq!(Cursor::decode(&good[..length]), None);
        }
        for place in 0..good.len() {
            for byte in [b'A', b'_', b'=', 0, 255] {
                let mut other = good.clone();
                other[place] = byte;
                if let Some(cursor) = Cursor::decode(&other) {
                    assert_eq!(token(&cursor), other);
                }
            }
        }
        assert_eq!(Cursor::decode(&[b'_'; 255]), None);
        assert_eq!(Cursor::decode(&[b'A'; 48]), None);
    }
}
