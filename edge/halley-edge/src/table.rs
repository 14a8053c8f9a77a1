//! The worker's connections: dense slots in chunks.
//!
//! A slot is what an idle connection costs, so it holds no buffers: what is being read or written
//! hangs on [`Detail`] and on an outbox, and both are gone when nothing happens. Chunks keep the
//! table from doubling (and copying) when it grows.
//!
//! A connection id is `generation << 24 | index` (link.md 2.4); a slot's generation moves on when
//! it is freed, so an id names one connection only.

use std::collections::VecDeque;

use halley_link::CloseReason;
use halley_wire::websocket::Decoder;
use mio::net::TcpStream;

use crate::exchange::Exchange;
use crate::outbox;
use crate::stream::Opening;
use crate::transport::Transport;
use crate::wheel::Look;

const CHUNK: usize = 1_024;
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
const GENERATION_MASK: u32 = (1 << 24) - 1;
/// Connections that a table can hold.
pub const CONNECTIONS_LIMIT: usize = 1 << INDEX_BITS;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No connection.
    Free,
    /// Speaks HTTP requests and answers.
    Http,
    /// A stream that waits to be admitted; the brain hasn't heard of it.
    Waiting,
    /// A stream that waits for its session.
    Opening,
    /// A stream with its session.
    Live,
    /// Only what is in the outbox is still written; what comes in is thrown away.
    Closing,
    /// The client left before OPENED: the slot waits for it, to send CLOSE (6.4).
    Left,
}

/// What a connection needs only while something happens on it.
pub enum Detail {
    /// Nothing.
    None,
    /// An HTTP request or answer in the middle.
    Http(Box<Exchange>),
    /// A stream's answer until the session is there, a poll's until there is one.
    Opening(Box<Opening>),
    /// What a WebSocket's client sends; one empty pointer between messages.
    WebSocket(Decoder),
    /// It ended before OPENED, for this reason (6.4).
    Ended(CloseReason),
}

/// Bits of [`Slot::flags`].
pub mod flag {
    /// Came in over the API listener.
    pub const API: u8 = 1;
    /// Is in the list of connections to flush.
    pub const DIRTY: u8 = 2;
    /// The poll tells when the socket takes bytes again.
    pub const BLOCKED: u8 = 4;
    /// The socket may have bytes that were left there on purpose.
    pub const UNREAD: u8 = 8;
    /// The brain knows, or is about to know, this session on the present link.
    pub const ANNOUNCED: u8 = 16;
    /// Something was written since the last sweep.
    pub const ACTIVE: u8 = 32;
    /// A WebSocket ping has no answer yet.
    pub const PINGED: u8 = 64;
    /// Its events don't go into the outbox: it is held (`hold.rs`), or a poll (`poll.rs`).
    pub const ASIDE: u8 = 128;
}

/// One connection.
pub struct Slot {
    /// The client's socket.
    pub socket: Option<TcpStream>,
    /// See the module.
    pub generation: u32,
    /// What the brain calls the user; 0 before OPENED.
    pub user_number: u32,
    /// Index in the pool, or [`outbox::NONE`].
    pub outbox: u32,
    /// Tick at which the connection is late; 0 for never.
    pub deadline: u32,
    /// Tick at which the wheel will look; 0 for no look.
    pub look: u32,
    /// Where it is in its life.
    pub phase: Phase,
    /// What the stream is; meaningless for HTTP.
    pub transport: Transport,
    /// See [`flag`].
    pub flags: u8,
    /// The stream's user.
    pub user: Box<[u8]>,
    /// See [`Detail`].
    pub detail: Detail,
}

// What an idle connection costs here; a larger slot is a decision, not an accident. (In debug
// builds mio's socket also remembers its poll.)
#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<Slot>() <= 64);

impl Slot {
    fn free(generation: u32) -> Slot {
        Slot {
            socket: None,
            generation,
            user_number: 0,
            outbox: outbox::NONE,
            deadline: 0,
            look: 0,
            phase: Phase::Free,
            transport: Transport::SseChunked,
            flags: 0,
            user: Box::default(),
            detail: Detail::None,
        }
    }

    /// Is the flag set?
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Sets the flag.
    pub fn set(&mut self, flag: u8) {
        self.flags |= flag;
    }

    /// Clears the flag and tells whether it was set.
    pub fn clear(&mut self, flag: u8) -> bool {
        let had = self.has(flag);
        self.flags &= !flag;
        had
    }
}

/// The slots. Invariant: the indices in `free` are the slots in phase `Free`, each once.
#[derive(Default)]
pub struct Table {
    chunks: Vec<Box<[Slot]>>,
    free: VecDeque<u32>,
    used: usize,
}

impl Table {
    /// Connections in the table.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Slots, used or free: indices are below this.
    pub fn slots(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    /// Puts a connection in. The oldest free slot is taken, so that generations last.
    pub fn insert(&mut self, socket: TcpStream, flags: u8) -> u32 {
        if self.free.is_empty() {
            let first = self.slots();
            self.chunks.push((0..CHUNK).map(|_| Slot::free(0)).collect());
            self.free.extend(first..first + CHUNK as u32);
        }
        let index = self.free.pop_front().unwrap_or(0);
        if let Some(slot) = self.get(index) {
            slot.socket = Some(socket);
            slot.phase = Phase::Http;
            slot.flags = flags;
        }
        self.used += 1;
        index
    }

    /// Frees a slot and closes its socket.
    pub fn remove(&mut self, index: u32) {
        let Some(slot) = self.get(index) else { return };
        if slot.phase != Phase::Free {
            *slot = Slot::free((slot.generation + 1) & GENERATION_MASK);
            self.used -= 1;
            self.free.push_back(index);
        }
    }

    /// Gives a connection a new id; frames, events and looks that name the old one miss it.
    pub fn renew(&mut self, index: u32) {
        if let Some(slot) = self.get(index) {
            slot.generation = (slot.generation + 1) & GENERATION_MASK;
            slot.look = 0;
        }
    }

    /// The slot at an index.
    pub fn get(&mut self, index: u32) -> Option<&mut Slot> {
        let index = index as usize;
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    /// The index of a connection id, if that connection is still there.
    pub fn find(&mut self, conn: u64) -> Option<(u32, &mut Slot)> {
        let index = (conn & INDEX_MASK) as u32;
        let slot = self.get(index)?;
        let there = slot.phase != Phase::Free && u64::from(slot.generation) == conn >> INDEX_BITS;
        there.then_some((index, slot))
    }

    /// The slot that the wheel looks for, if it is still the same connection.
    pub fn looked(&mut self, look: Look) -> Option<&mut Slot> {
        self.get(look.index).filter(|s| s.phase != Phase::Free && s.generation == look.generation)
    }

    /// The connection id of a slot.
    pub fn conn(&mut self, index: u32) -> u64 {
        self.get(index)
            .map_or(0, |slot| u64::from(slot.generation) << INDEX_BITS | u64::from(index))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn socket() -> TcpStream {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        TcpStream::from_std(stream)
    }

    /// 2.4: a frame about a connection that is gone never meets its successor.
    #[test]
    fn an_id_names_one_connection() {
        let mut table = Table::default();
        let first = table.insert(socket(), 0);
        let conn = table.conn(first);
        assert!(table.find(conn).is_some());
        table.remove(first);
        assert!(table.find(conn).is_none());
        let mut seen = vec![conn];
        for _ in 0..CHUNK + 1 {
            let index = table.insert(socket(), 0);
            let conn = table.conn(index);
            assert!(!seen.contains(&conn));
            seen.push(conn);
            table.remove(index);
        }
        assert_eq!((table.used(), table.slots()), (0, CHUNK as u32));
    }
}
