//! `list16(x)`: a count and that many items, borrowed from a frame or built for one (2.2).

use std::marker::PhantomData;

use crate::Error;
use crate::wire::{Reader, put_str8, put_str16};

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

/// A value of STATS; any u64, unlike a connection id.
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

/// A connection and the number of its user, of OPENED and CLOSE.
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

/// A session that opens, of OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session<'a> {
    /// Connection id.
    pub conn: u64,
    /// Transport (2.6).
    pub transport: u8,
    /// The user's id.
    pub user: &'a [u8],
}

impl<'a> Item<'a> for Session<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        let session = Session { conn: from.conn()?, transport: from.u8()?, user: from.str8()? };
        match session.transport {
            1..=4 => Ok(session),
            _ => Err(Error::new("2.6", "unknown transport")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.conn.to_be_bytes());
        out.push(self.transport);
        put_str8(out, self.user);
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
