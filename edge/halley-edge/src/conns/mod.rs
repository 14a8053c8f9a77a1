//! A worker's connections to its clients: their slots, outboxes and deadlines, and how bytes come
//! and go. The parts above (`http/`, `sessions/`) know what the bytes mean.
//!
//! - here: where a connection is in its life, and its deadline; `table/` has the slots,
//! - `doom.rs` says how one ends: code that uses a connection only dooms it,
//! - `write.rs` fills outboxes and writes them, `read.rs` reads, `tls/` does both under TLS,
//! - `ages.rs` counts how old events are then,
//! - `limits.rs` and `origin.rs` refuse requests, `proxy.rs` finds the client behind a proxy.
//!
//! Invariants: a gauge of [`Stats`] for a phase is the number of slots in it
//! ([`Conns::become_of`]); [`Stat::OutboxBytes`] is what waits in all outboxes and sealed for them.

pub mod ages;
pub mod doom;
pub mod limits;
pub mod origin;
pub mod proxy;
pub mod read;
pub mod table;
#[cfg(test)]
pub mod tests;
pub mod tls;
pub mod write;

use std::sync::Arc;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::clock::Clock;
use crate::conns::ages::Ages;
use crate::conns::doom::Doom;
use crate::conns::table::wheel::{Bucket, TICK_MS, Wheel};
use crate::conns::table::{Phase, Slot, Table, flag};
use crate::conns::tls::Tls;
use crate::conns::tls::certificates::Certificates;
use crate::limits::SharedLimits;
use crate::limits::address::Address;
use crate::limits::places::Places;
use crate::outbox::Pool;
use crate::settings::Settings;
use crate::side_table::SideTable;
use crate::stats::{Stat, Stats};

/// What a client lost that was too slow: of the connection with this id, as a slot may have
/// another one by now.
#[derive(Clone, Copy, Default, PartialEq)]
struct Lost {
    conn: u64,
    dropped: u32,
    conflated: u32,
}

/// What is read at once.
pub const READ_BYTES: usize = 65_536;
/// How long a connection may take to read its last bytes and to close its side. Closing at once
/// while the client still sends would make the kernel throw the answer away (RFC 9112 section
/// 9.6).
pub const LINGER_MS: u64 = 2_000;
/// Tokens below are not connections'.
const FIRST_CONNECTION: usize = 16;

/// What hangs on a slot while something happens there, as far as connections must know.
pub trait Hung: Default {
    /// Were bytes read that are not used yet?
    fn has_kept(&self) -> bool;
}

/// See the module.
pub struct Conns<D> {
    /// The slots.
    pub table: Table<D>,
    /// What counts for them.
    pub settings: Settings,
    /// What is counted.
    pub stats: Stats,
    /// What time it is.
    pub clock: Clock,
    /// What the round delivers, by the time of it.
    pub ages: Ages,
    /// What the listeners show.
    pub certificates: Arc<Certificates>,
    /// A buffer of [`READ_BYTES`] for reading.
    pub scratch: Vec<u8>,
    /// Connections that have bytes to go on with: kept ones, or some in the socket of which no
    /// event will tell.
    pub ready: Vec<u32>,
    /// Requests that wait for the brain.
    places: Places,
    pool: Pool,
    /// What clients lost that were too slow.
    lost: SideTable<Lost>,
    /// Where a listener speaks TLS.
    tls: Option<Box<Tls>>,
    wheel: Wheel,
    registry: Registry,
    /// Connections whose outbox has something new.
    dirty: Vec<u32>,
    doomed: Vec<(u32, Doom)>,
    /// Connections whose outbox became empty, if `tells_emptied`.
    emptied: Vec<u32>,
    tells_emptied: bool,
}

impl<D: Hung> Conns<D> {
    /// None yet, for a poll with this registry.
    pub fn new(
        registry: Registry,
        certificates: Arc<Certificates>,
        limits: Arc<SharedLimits>,
    ) -> Self {
        Conns {
            table: Table::new(limits),
            settings: Settings::default(),
            stats: Stats::new(),
            clock: Clock::new(),
            ages: Ages::default(),
            tls: certificates.any().then(Box::default),
            certificates,
            scratch: vec![0; READ_BYTES],
            ready: Vec::new(),
            places: Places::default(),
            pool: Pool::default(),
            lost: SideTable::default(),
            wheel: Wheel::new(),
            registry,
            dirty: Vec::new(),
            doomed: Vec::new(),
            emptied: Vec::new(),
            tells_emptied: false,
        }
    }

    /// The round's writes are done: its events are as old as they are now.
    pub fn count_ages(&mut self) {
        self.ages.written(&mut self.stats);
    }

    /// The slot at an index.
    pub fn slot(&mut self, index: u32) -> Option<&mut Slot> {
        self.table.get(index)
    }

    /// The connection with this id, if it is there and not doomed.
    pub fn find(&mut self, conn: u64) -> Option<(u32, &mut Slot)> {
        self.table.find(conn).filter(|(_, slot)| !slot.has(flag::DOOMED))
    }

    /// Where a connection is in its life.
    pub fn phase(&mut self, index: u32) -> Phase {
        self.slot(index).map_or(Phase::Free, |slot| slot.phase())
    }

    /// Is a connection in this phase, and goes on?
    pub fn is_in(&mut self, index: u32, phase: Phase) -> bool {
        self.slot(index).is_some_and(|slot| slot.phase() == phase && !slot.has(flag::DOOMED))
    }

    /// A connection goes over to another phase, and the gauges with it.
    pub fn become_of(&mut self, index: u32, phase: Phase) {
        let Some(slot) = self.table.get(index) else { return };
        let last = slot.phase();
        debug_assert!(last.may_become(phase), "{last:?} to {phase:?}");
        slot.set_phase(phase);
        if let Some(gauge) = gauge_of(last) {
            self.stats.sub(gauge, 1);
        }
        if let Some(gauge) = gauge_of(phase) {
            self.stats.add(gauge, 1);
        }
    }

    /// Gives a connection until so many milliseconds from now.
    pub fn set_deadline(&mut self, index: u32, ms: u64) {
        let tick = self.tick_in(ms);
        let Some(slot) = self.table.get(index) else { return };
        slot.deadline = u32::try_from(tick).unwrap_or(u32::MAX);
        if slot.check.is_none_or(|bucket| self.wheel.tick(bucket) > tick) {
            slot.check = Some(self.wheel.schedule(tick, index));
        }
    }

    /// The same, unless it has less time already.
    pub fn lower_deadline(&mut self, index: u32, ms: u64) {
        let tick = self.tick_in(ms);
        let Some(slot) = self.table.get(index) else { return };
        if slot.deadline == 0 || u64::from(slot.deadline) > tick {
            self.set_deadline(index, ms);
        }
    }

    fn tick_in(&self, ms: u64) -> u64 {
        self.clock.now_ms.saturating_add(ms).div_ceil(TICK_MS)
    }

    /// The connections that have to be looked at up to this tick, one bucket a call.
    pub fn checks_due(&mut self, tick: u64) -> Option<(Bucket, Vec<u32>)> {
        self.wheel.due(tick)
    }

    /// The check that was scheduled in this bucket: is the connection late?
    pub fn is_late(&mut self, index: u32, bucket: Bucket, tick: u32) -> bool {
        let Some(slot) = self.table.get(index).filter(|slot| slot.check == Some(bucket)) else {
            return false;
        };
        slot.check = None;
        let doomed = slot.has(flag::DOOMED);
        match slot.deadline {
            0 => false,
            late if late <= tick => !doomed,
            later => {
                slot.check = Some(self.wheel.schedule(later.into(), index));
                false
            }
        }
    }

    /// Takes a connection in that was accepted and counted; `None` if the poll won't have it.
    pub fn insert(&mut self, socket: TcpStream, api: bool, address: Address) -> Option<u32> {
        let index = self.table.insert(socket, if api { flag::API } else { 0 }, address);
        let token = self.token(index);
        let registry = &self.registry;
        let socket = self.table.get(index).and_then(|slot| slot.socket.as_mut());
        if socket.is_none_or(|s| registry.register(s, token, Interest::READABLE).is_err()) {
            self.table.remove(index);
            return None;
        }
        Some(index)
    }

    /// By which the poll names a connection.
    fn token(&mut self, index: u32) -> Token {
        Token(self.table.conn(index) as usize + FIRST_CONNECTION)
    }

    /// The connection of a poll's event, unless it was dropped in this round: the event must not
    /// reach the next connection in the slot.
    pub fn named(&mut self, token: Token) -> Option<u32> {
        let conn = token.0.wrapping_sub(FIRST_CONNECTION) as u64;
        self.find(conn).map(|(index, _)| index)
    }

    /// Asks the poll for writability as well, or not any more.
    pub fn watch(&mut self, index: u32, writable: bool) {
        let interest =
            if writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let token = self.token(index);
        let Some(slot) = self.table.get(index) else { return };
        if let Some(socket) = slot.socket.as_mut() {
            let _ = self.registry.reregister(socket, token, interest);
        }
    }

    /// Asks for the socket's events anew, under the connection's present id.
    pub fn watch_again(&mut self, index: u32) {
        let blocked = self.slot(index).is_some_and(|slot| slot.has(flag::BLOCKED));
        self.watch(index, blocked);
    }

    /// Takes a connection's socket away, which is to be answered without a slot.
    pub fn take_socket(&mut self, index: u32) -> Option<TcpStream> {
        let mut socket = self.table.get(index).and_then(|slot| slot.socket.take())?;
        let _ = self.registry.deregister(&mut socket);
        Some(socket)
    }

    /// The socket may have more, or bytes are kept: goes on with it in the next round.
    pub fn turn_is_over(&mut self, index: u32) {
        let Some(slot) = self.table.get(index).filter(|slot| slot.socket.is_some()) else { return };
        slot.set(flag::UNREAD);
        self.ready.push(index);
    }

    /// What happens on a connection was read ahead of, and not used?
    pub fn has_kept(&mut self, index: u32) -> bool {
        self.table.detail(index).is_some_and(|detail| detail.has_kept())
    }

    /// Is there something to do that no event will tell of?
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty()
            || !self.dirty.is_empty()
            || !self.doomed.is_empty()
            || self.handshakes_wait()
    }

    /// Tells from now on whose outbox became empty, or doesn't; see [`Conns::next_emptied`].
    pub fn tell_emptied(&mut self, tells: bool) {
        self.tells_emptied = tells;
        if !tells {
            self.emptied.clear();
        }
    }

    /// One whose outbox became empty.
    pub fn next_emptied(&mut self) -> Option<u32> {
        self.emptied.pop()
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.ages.trim();
        self.places.trim();
        self.pool.trim();
        self.table.trim();
        for list in [&mut self.dirty, &mut self.ready, &mut self.emptied] {
            list.shrink_to(2 * list.len());
        }
        self.doomed.shrink_to(2 * self.doomed.len());
        if let Some(tls) = self.tls.as_mut() {
            tls.trim(&mut self.table);
        }
    }
}

/// The gauge of a phase, if it has one.
fn gauge_of(phase: Phase) -> Option<Stat> {
    match phase {
        Phase::Waiting => Some(Stat::Waiting),
        Phase::Opening => Some(Stat::Opening),
        Phase::Live => Some(Stat::Sessions),
        Phase::Left => Some(Stat::Left),
        _ => None,
    }
}
