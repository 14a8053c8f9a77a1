//! The worker's connections: dense slots in chunks.
//!
//! A slot is what an idle connection costs, so it holds numbers only: what is being read or written
//! is a *detail*, whatever that is to those above, or an outbox, lent from slabs and gone when
//! nothing happens; the user's id is in [`Names`]. Chunks keep the table from doubling (and
//! copying) when it grows.
//!
//! A connection id is `generation << 24 | index` (link.md 2.4); a slot's generation moves on when
//! it is freed, so an id names one connection only.
//!
//! In other files: `names.rs` keeps users' ids, `pending.rs` the connections without a request yet,
//! `wheel.rs` schedules checks of deadlines.

pub mod names;
pub mod pending;
#[cfg(test)]
pub(crate) mod tests;
pub mod wheel;

use std::sync::Arc;

use halley_link::CloseReason;
use mio::net::TcpStream;

use crate::conns::table::names::{Name, Names};
use crate::conns::table::pending::Pending;
use crate::conns::table::wheel::Bucket;
use crate::limits::SharedLimits;
use crate::limits::address::Address;
use crate::limits::sketch::Key;
use crate::side_table::SideTable;
use crate::slab::{NONE, Slab};
use crate::transport::Transport;

const CHUNK: usize = 1_024;
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
/// A slot's `tag` holds its flags in this many bits and its generation above them.
const FLAG_BITS: u32 = 10;
/// What is left for the generation (link.md 2.4).
#[allow(dead_code, reason = "Rust 1.85 doesn't see the use in a constant without a name")]
const GENERATION_BITS: u32 = u32::BITS - FLAG_BITS;
const _: () = assert!(INDEX_BITS + GENERATION_BITS <= 48);
/// Connections that a table can hold.
pub const CONNECTIONS_LIMIT: usize = 1 << INDEX_BITS;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No connection.
    Free,
    /// A proxy is to say who the client is.
    Proxy,
    /// Agrees on TLS, before its first request.
    Handshake,
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

impl Phase {
    /// May a connection go over to that phase?
    pub fn may_become(self, next: Phase) -> bool {
        match next {
            // Nobody waits any more for what it has to say.
            Phase::Free => true,
            Phase::Proxy => self == Phase::Http,
            Phase::Handshake => matches!(self, Phase::Http | Phase::Proxy),
            // A request is answered, or a poll.
            Phase::Http => matches!(self, Phase::Proxy | Phase::Handshake | Phase::Live),
            Phase::Waiting => self == Phase::Http,
            Phase::Opening => self == Phase::Waiting,
            Phase::Live => self == Phase::Opening,
            Phase::Closing | Phase::Left => !matches!(self, Phase::Free | Phase::Left),
        }
    }
}

/// Flags of a slot.
pub mod flag {
    /// Came in over the API listener.
    pub const API: u16 = 1;
    /// Is in the list of connections to flush.
    pub const DIRTY: u16 = 2;
    /// The poll tells when the socket takes bytes again.
    pub const BLOCKED: u16 = 4;
    /// The socket may have bytes that were left there on purpose.
    pub const UNREAD: u16 = 8;
    /// The brain knows, or is about to know, this session on the present link.
    pub const ANNOUNCED: u16 = 16;
    /// Something was written since the last sweep.
    pub const ACTIVE: u16 = 32;
    /// A WebSocket ping has no answer yet.
    pub const PINGED: u16 = 64;
    /// Its events don't go into the outbox: it is held (`sessions/replay/`), or a
    /// poll (`sessions/poll/`).
    pub const BUFFERED: u16 = 128;
    /// Has not sent a whole request yet.
    pub const PENDING: u16 = 256;
    /// It is to end (`conns/mod.rs`).
    pub const DOOMED: u16 = 512;
}

/// One connection.
pub struct Slot {
    /// The client's socket.
    pub socket: Option<TcpStream>,
    /// What the brain calls the user; 0 before OPENED. Of a free slot: the next free one.
    pub user_number: u32,
    /// In the pool of outboxes, or [`NONE`].
    pub outbox: u32,
    /// Tick at which the connection is late; 0 for never.
    pub deadline: u32,
    /// See [`FLAG_BITS`].
    tag: u32,
    detail: u32,
    user: Name,
    /// The check that the wheel has scheduled.
    pub check: Option<Bucket>,
    phase: Phase,
    /// What the stream is; meaningless for HTTP.
    pub transport: Transport,
    /// The session ended for this reason, before OPENED (6.4), or with last words that go out yet.
    pub ended: Option<CloseReason>,
}

/// What an idle connection costs here; a larger slot is a decision, not an accident.
#[cfg(any(test, not(debug_assertions)))]
pub const SLOT_BYTES: usize = 32;

impl Slot {
    fn free(generation: u32) -> Slot {
        // In debug builds mio's socket also remembers its poll. Rust 1.85 would call a constant
        // unused that only `const _` names.
        #[cfg(not(debug_assertions))]
        const {
            assert!(size_of::<Slot>() == SLOT_BYTES);
        };
        Slot {
            socket: None,
            user_number: NONE,
            outbox: NONE,
            deadline: 0,
            tag: generation << FLAG_BITS,
            detail: NONE,
            user: Name::NONE,
            check: None,
            phase: Phase::Free,
            transport: Transport::SseChunked,
            ended: None,
        }
    }

    /// Where it is in its life.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// See [`Conns::become_of`](crate::conns::Conns::become_of), which also keeps the gauges.
    pub(in crate::conns) fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    fn generation(&self) -> u32 {
        self.tag >> FLAG_BITS
    }

    /// Does nothing happen on it?
    pub fn is_idle(&self) -> bool {
        self.detail == NONE && self.outbox == NONE
    }

    /// Is the flag set?
    pub fn has(&self, flag: u16) -> bool {
        self.tag & u32::from(flag) != 0
    }

    /// Sets the flag.
    pub fn set(&mut self, flag: u16) {
        self.tag |= u32::from(flag);
    }

    /// Clears the flag and tells whether it was set.
    pub fn clear(&mut self, flag: u16) -> bool {
        let had = self.has(flag);
        self.tag &= !u32::from(flag);
        had
    }
}

/// The slots, and what hangs on them. Invariant: `first_free` begins a list of the slots in phase
/// `Free`, each once, and `last_free` is its end; both are [`NONE`] when there is none.
pub struct Table<D> {
    chunks: Vec<Box<[Slot]>>,
    first_free: u32,
    last_free: u32,
    used: usize,
    /// Those of them that came to the API listener.
    used_by_servers: usize,
    details: Slab<D>,
    names: Names,
    /// Where connections come from.
    pub(crate) addresses: SideTable<Address>,
    /// Of the public listener, and of the API listener.
    pub(crate) pending: [Pending; 2],
    pub(crate) limits: Arc<SharedLimits>,
}

impl<D: Default> Table<D> {
    /// An empty one, whose connections were counted by these limits.
    pub fn new(limits: Arc<SharedLimits>) -> Self {
        Table {
            chunks: Vec::new(),
            first_free: NONE,
            last_free: NONE,
            used: 0,
            used_by_servers: 0,
            details: Slab::default(),
            names: Names::default(),
            addresses: SideTable::default(),
            pending: Default::default(),
            limits,
        }
    }

    /// Connections in the table.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Those of them that came to the public listener.
    pub fn used_by_clients(&self) -> usize {
        self.used - self.used_by_servers
    }

    /// Slots, used or free: indices are below this.
    pub fn slots(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    /// Puts a connection in. The oldest free slot is taken, so that generations last.
    pub fn insert(&mut self, socket: TcpStream, flags: u16, address: Address) -> u32 {
        if self.first_free == NONE {
            let first = self.slots();
            self.chunks.push((0..CHUNK).map(|_| Slot::free(0)).collect());
            (first..first + CHUNK as u32).for_each(|index| self.append_free(index));
        }
        let index = self.first_free;
        if let Some(slot) = self.get(index) {
            let next = std::mem::take(&mut slot.user_number);
            slot.socket = Some(socket);
            slot.phase = Phase::Http;
            slot.set(flags | flag::PENDING);
            self.first_free = next;
        }
        self.used += 1;
        self.used_by_servers += usize::from(flags & flag::API != 0);
        self.addresses.set(index, address);
        self.came(index);
        index
    }

    fn append_free(&mut self, index: u32) {
        if self.first_free == NONE {
            self.first_free = index;
        } else if let Some(last) = self.get(self.last_free) {
            last.user_number = index;
        }
        self.last_free = index;
    }

    /// Frees a slot and closes its socket.
    pub fn remove(&mut self, index: u32) {
        let Some(slot) = self.get(index) else { return };
        if slot.phase != Phase::Free {
            let api = slot.has(flag::API);
            self.take_detail(index);
            self.set_user(index, b"");
            self.asked(index);
            self.limits.leave(self.address(index), api);
            self.addresses.set(index, Address::NONE);
            if let Some(slot) = self.get(index) {
                *slot = Slot::free(slot.generation() + 1);
            }
            self.used -= 1;
            self.used_by_servers -= usize::from(api);
            self.append_free(index);
        }
    }

    /// Gives a connection a new id; frames and events that name the old one miss it.
    pub fn renew(&mut self, index: u32) {
        if let Some(slot) = self.get(index) {
            slot.tag = slot.tag.wrapping_add(1 << FLAG_BITS);
        }
    }

    /// What happens on a connection, if anything does.
    pub fn detail(&mut self, index: u32) -> Option<&mut D> {
        let number = self.get(index)?.detail;
        self.details.get(number)
    }

    /// Takes out what happens on a connection.
    pub fn take_detail(&mut self, index: u32) -> D {
        let Some(slot) = self.get(index) else { return D::default() };
        let number = std::mem::replace(&mut slot.detail, NONE);
        let Some(detail) = self.details.get(number).map(std::mem::take) else {
            return D::default();
        };
        self.details.give_back(number);
        detail
    }

    /// Hangs on a connection what happens there.
    pub fn set_detail(&mut self, index: u32, detail: D) {
        let Some(slot) = self.get(index) else { return };
        let mut number = slot.detail;
        if number == NONE {
            number = self.details.lend();
        }
        if let Some(slot) = self.get(index) {
            slot.detail = number;
        }
        if let Some(place) = self.details.get(number) {
            *place = detail;
        }
    }

    /// The stream's user; empty for HTTP.
    pub fn user(&mut self, index: u32) -> &[u8] {
        let name = self.get(index).map_or(Name::NONE, |slot| slot.user);
        self.names.get(name)
    }

    /// The user's hash, by which its requests are counted.
    pub fn user_key(&mut self, index: u32) -> Key {
        let name = self.get(index).map_or(Name::NONE, |slot| slot.user);
        self.limits.hasher.name(self.names.get(name))
    }

    /// Says whose stream a connection is.
    pub fn set_user(&mut self, index: u32, user: &[u8]) {
        let old = self.get(index).map_or(Name::NONE, |slot| slot.user);
        self.names.forget(old);
        let name = self.names.keep(user);
        if let Some(slot) = self.get(index) {
            slot.user = name;
        }
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.details.trim();
        self.forget_who_asked();
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
        let there = slot.phase != Phase::Free && u64::from(slot.generation()) == conn >> INDEX_BITS;
        there.then_some((index, slot))
    }

    /// The connection id of a slot.
    pub fn conn(&mut self, index: u32) -> u64 {
        self.get(index)
            .map_or(0, |slot| u64::from(slot.generation()) << INDEX_BITS | u64::from(index))
    }

    /// Where a connection comes from.
    pub fn address(&self, index: u32) -> Address {
        self.addresses.get(index)
    }

    /// Counts a connection by another address, if that has fewer than so many.
    pub fn moves(&mut self, index: u32, to: Address, most_of_address: u32) -> bool {
        let from = self.addresses.get(index);
        let fits = from == to || self.limits.moves(from, to, most_of_address);
        if fits {
            self.addresses.set(index, to);
        }
        fits
    }
}
