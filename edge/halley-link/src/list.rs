//! `list16(x)` and `list8(x)`: a count and that many items, borrowed from a frame or built for one
//! (2.2).

use std::marker::PhantomData;

use crate::wire::{Reader, put_str8, put_str16};
use crate::{CloseReason, Error, SHARDS_MAX, TRANSPORT_MAX};

/// What a [`List`] can hold.
pub trait Item<'a>: Sized {
    /// Reads one item.
    ///
    /// # Errors
    /// The clause that the bytes break.
    fn read(from: &mut Reader<'a>) -> Result<Self, Error>;
    /// Appends the item.
    fn write(&self, out: &mut Vec<u8>);
}

/// A list of a frame. Items are checked when the list is read from a frame; iterating can't fail
/// then.
#[derive(Clone, Copy)]
pub struct List<'a, T> {
    count: u16,
    bytes: &'a [u8],
    item: PhantomData<T>,
}

impl<'a, T: Item<'a>> List<'a, T> {
    pub(crate) fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        let count = from.u16()?;
        Self::read_items(from, count)
    }

    /// A `list8`.
    pub(crate) fn read8(from: &mut Reader<'a>) -> Result<Self, Error> {
        let count = from.u8()?.into();
        Self::read_items(from, count)
    }

    fn read_items(from: &mut Reader<'a>, count: u16) -> Result<Self, Error> {
        let bytes = from.remaining();
        for _ in 0..count {
            T::read(from)?;
        }
        let bytes = &bytes[..bytes.len() - from.remaining().len()];
        Ok(List { count, bytes, item: PhantomData })
    }

    /// A list over items that [`Item::write`] wrote one after the other into `bytes`.
    #[must_use]
    pub fn from_items(count: u16, bytes: &'a [u8]) -> Self {
        List { count, bytes, item: PhantomData }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_be_bytes());
        out.extend_from_slice(self.bytes);
    }

    /// As a `list8`; a longer one can't come from [`List::read8`], and its count would be cut.
    pub(crate) fn write8(&self, out: &mut Vec<u8>) {
        out.push(self.count as u8);
        out.extend_from_slice(self.bytes);
    }

    /// The items as they are on the wire.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// No items?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map_while(move |_| T::read(&mut reader).ok())
    }
}

impl<'a, T: Item<'a> + std::fmt::Debug> std::fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Item<'a>> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.bytes == other.bytes
    }
}

/// A connection id.
impl<'a> Item<'a> for u64 {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        from.conn()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
}

/// A value of STATS or a head of REPLAY; any u64, unlike a connection id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(pub u64);

impl<'a> Item<'a> for Value {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Value(from.u64()?))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_be_bytes());
    }
}

/// `name:str8 value:str16`, of settings and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl<'a> Item<'a> for Pair<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Pair { name: from.str8()?, value: from.str16()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_str8(out, self.name);
        put_str16(out, self.value);
    }
}

/// An id, of SUBSCRIPTIONS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id<'a>(pub &'a [u8]);

impl<'a> Item<'a> for Id<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Id(from.str8()?))
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_str8(out, self.0);
    }
}

/// A connection and the number of its user, of OPENED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedSession {
    /// Connection id.
    pub conn: u64,
    /// What the brain's store calls the user (2.5).
    pub user_number: u32,
}

impl<'a> Item<'a> for NumberedSession {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(NumberedSession { conn: from.conn()?, user_number: from.u32()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.conn.to_be_bytes());
        out.extend_from_slice(&self.user_number.to_be_bytes());
    }
}

/// A session that ended, of CLOSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedSession {
    /// Connection id.
    pub conn: u64,
    /// What OPENED said.
    pub user_number: u32,
    /// Why it ended.
    pub reason: CloseReason,
}

impl<'a> Item<'a> for ClosedSession {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        let unknown = Error::new("2.8", "unknown reason of a close");
        Ok(ClosedSession {
            conn: from.conn()?,
            user_number: from.u32()?,
            reason: CloseReason::of(from.u8()?).ok_or(unknown)?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.conn.to_be_bytes());
        out.extend_from_slice(&self.user_number.to_be_bytes());
        out.push(self.reason as u8);
    }
}

/// A session whose client doesn't take what waits for it, of BEHIND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowSession {
    /// Connection id, and what OPENED said of its user.
    pub session: NumberedSession,
    /// Transport (2.6).
    pub transport: u8,
    /// What waits, in bytes.
    pub outbox_bytes: u32,
    /// What waits, in pieces.
    pub outbox_pieces: u32,
    /// For how long its socket has taken nothing.
    pub outbox_ms: u32,
}

impl<'a> Item<'a> for SlowSession {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(SlowSession {
            session: NumberedSession::read(from)?,
            transport: from.transport()?,
            outbox_bytes: from.u32()?,
            outbox_pieces: from.u32()?,
            outbox_ms: from.u32()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.session.write(out);
        out.push(self.transport);
        for number in [self.outbox_bytes, self.outbox_pieces, self.outbox_ms] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// A session that opens, of OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session<'a> {
    /// Connection id.
    pub conn: u64,
    /// Transport (2.6).
    pub transport: u8,
    /// The user's id.
    pub user: &'a [u8],
    /// What the client goes on behind; empty for none.
    pub cursor: &'a [u8],
}

impl<'a> Item<'a> for Session<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Session {
            conn: from.conn()?,
            transport: match from.u8()? {
                transport @ 1..=TRANSPORT_MAX => transport,
                _ => return Err(Error::new("2.6", "unknown transport")),
            },
            user: from.str8()?,
            cursor: from.cursor()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.conn.to_be_bytes());
        out.push(self.transport);
        put_str8(out, self.user);
        put_str8(out, self.cursor);
    }
}

/// One event, of DELIVER and REPLAY: the table's `item` (2.2, 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Who numbered it, from 1 to [`SHARDS_MAX`].
    pub shard: u8,
    /// Its number, which grows within the shard.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub at: u64,
    /// Where the value of `"data"` begins in `json`.
    pub data_offset: u32,
    /// Where the subject begins in `json`, behind its quote.
    pub subject_offset: u16,
    /// Length of the subject as it stands in `json`.
    pub subject_bytes: u16,
    /// What a client that has read it goes on behind; may be empty (7.2, 10.9).
    pub cursor: &'a [u8],
    /// The JSON text that clients see.
    pub json: &'a [u8],
}

impl<'a> Event<'a> {
    /// The subject as it stands in the text, escapes and all; offsets were checked when it was
    /// read.
    #[must_use]
    pub fn subject(&self) -> &'a [u8] {
        let start = usize::from(self.subject_offset);
        self.json.get(start..start + usize::from(self.subject_bytes)).unwrap_or_default()
    }
}

impl<'a> Item<'a> for Event<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        let shard = match from.u8()? {
            shard @ 1..=SHARDS_MAX => shard,
            _ => return Err(Error::new("2.6", "shard is not 1 to 64")),
        };
        let (seq, at, data_offset) = (from.u64()?, from.u64()?, from.u32()?);
        let (subject_offset, subject_bytes) = (from.u16()?, from.u16()?);
        let cursor = from.cursor()?;
        let bytes = from.u32()? as usize;
        let json = from.bytes(bytes)?;
        if json.len() < 2 || data_offset as usize > json.len() - 1 {
            return Err(Error::new("7.1", "data offset is outside of the event"));
        }
        if usize::from(subject_offset) + usize::from(subject_bytes) > json.len() {
            return Err(Error::new("7.1", "subject is outside of the event"));
        }
        if json.iter().any(|b| *b < 0x20) {
            return Err(Error::new("7.1", "event has control characters"));
        }
        Ok(Event { shard, seq, at, data_offset, subject_offset, subject_bytes, cursor, json })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.shard);
        out.extend_from_slice(&self.seq.to_be_bytes());
        out.extend_from_slice(&self.at.to_be_bytes());
        out.extend_from_slice(&self.data_offset.to_be_bytes());
        out.extend_from_slice(&self.subject_offset.to_be_bytes());
        out.extend_from_slice(&self.subject_bytes.to_be_bytes());
        put_str8(out, self.cursor);
        out.extend_from_slice(&(self.json.len() as u32).to_be_bytes());
        out.extend_from_slice(self.json);
    }
}

/// What one value of STATS is, of HELLO_EDGE (3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric<'a> {
    /// Prometheus name.
    pub name: &'a [u8],
    /// 1 counter, 2 gauge.
    pub kind: u8,
    /// One line of help.
    pub help: &'a [u8],
}

impl<'a> Item<'a> for Metric<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        let metric = Metric { name: from.str8()?, kind: from.u8()?, help: from.str8()? };
        match metric.kind {
            1 | 2 => Ok(metric),
            _ => Err(Error::new("2.6", "unknown metric kind")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_str8(out, self.name);
        out.push(self.kind);
        put_str8(out, self.help);
    }
}
