//! The link between the edge and the brain, without I/O: bytes in, frames out.
//!
//! `protocol/link.md` is the source; the clause numbers in this crate are its numbers. [`Frame`]
//! holds every
//! frame of both directions and borrows from the bytes that it was read from, [`Deframer`] cuts a
//! byte stream
//! into frames, [`Credit`] keeps one direction's window.
//!
//! Invariant: whatever bytes come in, a result or an [`Error`] that names the broken clause goes
//! out; nothing panics.
#![forbid(unsafe_code)]

mod credit;
mod cursor;
mod decode;
mod deframer;
mod encode;
mod frame;
mod list;
mod operation;
pub mod trunk;
mod version;
mod wire;
mod word;

pub use credit::Credit;
pub use cursor::{Cursor, LinkCursor};
pub use deframer::{Deframer, RawFrame};
pub use frame::Frame;
pub use list::{
    ClosedSession, Event, Id, Item, List, Metric, NumberedSession, Pair, Session, SlowSession,
    Value,
};
pub use operation::{Member, MemberName, What};
pub use version::{VERSION, VERSION_MAX_SETTING, VERSION_MIN, common};
pub use wire::Reader;
pub use word::{Slot, Word};

/// Largest `length` of a frame: its type and its payload (2.1).
pub const FRAME_BYTES_MAX: usize = 262_144;
/// Smallest window a hello may grant (4.1).
pub const WINDOW_BYTES_MIN: u32 = 524_288;
/// First bytes of both hellos.
pub const MAGIC: [u8; 4] = *b"HLY1";
/// Most connections in one DELIVER (7.3) or TRUNK_DELIVER (13.5).
pub const DELIVER_CONNS_MAX: usize = 8_192;
/// Most metrics of one edge (3.4).
pub const METRICS_MAX: usize = 256;
/// No connection has this id: who inspects it asks for those that are behind (10.8).
pub const NO_CONN: u64 = 1 << 47;
/// Most sessions of one BEHIND (10.8).
pub const BEHIND_MAX: usize = 20;
/// Connection ids are below this (2.4).
pub const CONN_LIMIT: u64 = 1 << 48;
/// Most shards of a brain, which number events from 1 on (2.6).
pub const SHARDS_MAX: u8 = 64;
/// Longest cursor (7.2).
pub const CURSOR_BYTES_MAX: usize = 255;
/// Longest JWK Set in KEYS (12.2).
pub const KEYS_BYTES_MAX: usize = 229_376;
/// What HELLO_EDGE of a trunk has as its worker (13.2).
pub const TRUNK_WORKER: u16 = u16::MAX;
/// Highest number of a transport (2.6).
pub const TRANSPORT_MAX: u8 = 5;

/// Flag bit: the body ends with this frame.
pub const FLAG_END: u8 = 1;
/// Flag bit of RESPONSE: close the connection after it.
pub const FLAG_CLOSE: u8 = 2;
/// Flag bit of REQUEST: the client sends the body only when told to.
pub const FLAG_EXPECT: u8 = 4;
/// Flag bit of REPLAY: the session has what it missed (10.5).
pub const FLAG_LAST: u8 = 8;
/// Flag bit of OPERATION_ANSWER: the operation has failed (20.5).
pub const FLAG_ERROR: u8 = 16;

/// Can this be a cursor (7.2)? The empty one says that there is none.
#[must_use]
pub fn is_cursor(bytes: &[u8]) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    bytes.len() <= CURSOR_BYTES_MAX && bytes.iter().all(plain)
}

/// Why a session ended, as CLOSE says it (2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CloseReason {
    /// The client closed.
    Client = 1,
    /// The client vanished.
    Vanished = 2,
    /// What waits for the client, or is held for it, passed its bound.
    SlowConsumer = 3,
    /// The brain asked for it (CLOSE_SESSIONS).
    CloseSessions = 4,
    /// The edge stops.
    Stopping = 5,
    /// The client broke its protocol.
    Protocol = 6,
    /// A poll was answered.
    Poll = 7,
    /// Its token has expired (12.8).
    Expired = 8,
}

impl CloseReason {
    /// The reason of this number.
    #[must_use]
    pub fn of(number: u8) -> Option<CloseReason> {
        Some(match number {
            1 => CloseReason::Client,
            2 => CloseReason::Vanished,
            3 => CloseReason::SlowConsumer,
            4 => CloseReason::CloseSessions,
            5 => CloseReason::Stopping,
            6 => CloseReason::Protocol,
            7 => CloseReason::Poll,
            8 => CloseReason::Expired,
            _ => return None,
        })
    }
}

/// What a connection is, as INSPECTED says it (2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SessionState {
    /// The worker does not know the connection.
    Unknown = 0,
    /// Waits for OPENED.
    Opening = 1,
    /// Waits for the end of its replay (10.2).
    Held = 2,
    /// Gets its events.
    Live = 3,
    /// Ends.
    Closing = 4,
}

/// What GOODBYE says (2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GoodbyeCode {
    /// A frame that breaks a clause.
    BadFrame = 1,
    /// The two sides speak different versions.
    Version = 2,
    /// The handshake broke a clause, or took too long.
    Handshake = 3,
    /// Nothing was heard for too long.
    Silence = 4,
    /// More was sent or given back than the window allows.
    FlowControl = 5,
    /// This side stops.
    Stopping = 6,
    /// A newer link took this one's place.
    Replaced = 7,
    /// The queue for this link passed its bound.
    Overloaded = 8,
}

/// A broken clause of `protocol/link.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The clause's number, such as `"2.3"`.
    pub clause: &'static str,
    /// What was wrong, in a few words.
    pub what: &'static str,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (link.md {})", self.what, self.clause)
    }
}

impl std::error::Error for Error {}

impl Error {
    pub(crate) const fn new(clause: &'static str, what: &'static str) -> Self {
        Error { clause, what }
    }
}
