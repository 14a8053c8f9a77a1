//! The counts of all workers together for the limits of `protocol/http.md` 16: connections in all
//! and by address, and requests by address and by user.
//!
//! Nothing here waits: all of it is atomics, and a look-up costs a few of them.
//!
//! `address.rs`, `rates.rs` and `sketch.rs` count, `networks.rs` says which addresses are exempt.
//! `places.rs` counts for one worker alone.
//! The parts above refuse, by these counts: `worker/admit.rs`, `conns/limits.rs`.

pub mod address;
pub mod networks;
pub mod places;
pub mod rates;
pub mod sketch;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use halley_sys::MemoryFiles;

use crate::limits::address::{Address, Hasher, Held};
use crate::limits::rates::Rates;

/// How often memory is looked at.
const MEMORY_LOOK: Duration = Duration::from_secs(1);
/// Most places that are kept for servers: these keep connections open, and need few.
const SERVERS_PLACES_MAX: usize = 1_000;

/// How many of so many places connections to the public listener may have, if so many percent are
/// for those to the API listener alone (16.13); one at least.
pub fn places_of_clients(places: usize, servers_percent: u64) -> usize {
    let percent = usize::try_from(servers_percent.min(100)).unwrap_or_default();
    let of_servers = (places.saturating_mul(percent) / 100).min(SERVERS_PLACES_MAX);
    (places - of_servers).max(1)
}

/// See the module. Invariant: `connections` and `held` are what all tables have, and those that are
/// just being accepted.
pub struct SharedLimits {
    /// Names addresses and users in the tables below.
    pub hasher: Hasher,
    /// Requests by address.
    pub by_address: Rates,
    /// Requests by user.
    pub by_user: Rates,
    /// What is left of the memory, in bytes and percent; see [`SharedLimits::watch_memory`].
    pub memory: [AtomicU64; 2],
    held: Held,
    connections: AtomicUsize,
    /// Those of them that came to the public listener.
    of_clients: AtomicUsize,
    pending: AtomicUsize,
    connections_max: usize,
}

/// Counts one more, if there are fewer than so many.
fn count_below(counted: &AtomicUsize, most: usize) -> bool {
    let fits = counted.fetch_add(1, Ordering::Relaxed) < most;
    if !fits {
        counted.fetch_sub(1, Ordering::Relaxed);
    }
    fits
}

impl SharedLimits {
    /// Of an edge that may have so many connections.
    pub fn new(connections_max: Option<u32>) -> SharedLimits {
        SharedLimits {
            hasher: Hasher::new(),
            by_address: Rates::new(),
            by_user: Rates::new(),
            memory: [AtomicU64::new(u64::MAX), AtomicU64::new(100)],
            held: Held::default(),
            connections: AtomicUsize::new(0),
            of_clients: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            connections_max: connections_max.map_or(usize::MAX, |most| most as usize),
        }
    }

    /// Looks once a second how much memory is left, for ever.
    pub fn watch_memory(&self, files: &MemoryFiles) {
        loop {
            std::thread::sleep(MEMORY_LOOK);
            self.look_at_memory(files);
        }
    }

    /// Looks how much memory is left. What can't be read any more counts as enough.
    pub fn look_at_memory(&self, files: &MemoryFiles) {
        let left = files.read().map_or([u64::MAX, 100], |left| [left.available, left.percent()]);
        for (place, value) in self.memory.iter().zip(left) {
            place.store(value, Ordering::Relaxed);
        }
    }

    /// Percent of the memory that are left.
    pub fn memory_percent(&self) -> u64 {
        self.memory[1].load(Ordering::Relaxed)
    }

    /// Most connections of all workers together.
    pub fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// Is there no place for another at this listener?
    pub fn are_full(&self, api: bool, servers_percent: u64) -> bool {
        let of_clients = places_of_clients(self.connections_max, servers_percent);
        self.connections.load(Ordering::Relaxed) >= self.connections_max
            || !api && self.of_clients.load(Ordering::Relaxed) >= of_clients
    }

    /// Counts a connection among all, unless there are too many.
    pub fn enter(&self, api: bool, servers_percent: u64) -> bool {
        let most = places_of_clients(self.connections_max, servers_percent);
        if !api && !count_below(&self.of_clients, most) {
            return false;
        }
        let fits = count_below(&self.connections, self.connections_max);
        if !fits && !api {
            self.of_clients.fetch_sub(1, Ordering::Relaxed);
        }
        fits
    }

    /// Counts a connection of an address, if that has fewer than so many.
    pub fn hold(&self, address: Address, most_of_address: u32) -> bool {
        self.held.enter(address, most_of_address)
    }

    /// A connection that its address was counted for doesn't come in.
    pub fn release(&self, address: Address) {
        self.held.leave(address);
    }

    /// Connections of all workers that have not sent a whole request yet.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// One of them came.
    pub fn pending_came(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// One of them has asked, or is gone.
    pub fn pending_asked(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    /// A connection is counted by another address, if that has fewer than so many.
    pub fn moves(&self, from: Address, to: Address, most_of_address: u32) -> bool {
        let fits = self.held.enter(to, most_of_address);
        if fits {
            self.held.leave(from);
        }
        fits
    }

    /// A connection that was counted, by this address and at this listener, is gone.
    pub fn leave(&self, address: Address, api: bool) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        if !api {
            self.of_clients.fetch_sub(1, Ordering::Relaxed);
        }
        self.held.leave(address);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// http.md 16.1: "both hold for all workers together", and what is refused isn't counted.
    #[test]
    fn both_bounds_are_exact() {
        let limits = SharedLimits::new(Some(2));
        let of = |ip: &str| Address::counted(limits.hasher.address(ip.parse().unwrap()));
        let (ann, bob) = (of("192.0.2.1"), of("192.0.2.2"));
        let comes = |address| limits.hold(address, 1) && limits.enter(false, 10);
        assert!(comes(ann) && !comes(ann) && comes(bob));
        assert!(limits.are_full(false, 10) && !comes(Address::NONE));
        limits.leave(ann, false);
        assert!(comes(ann));
        [ann, bob].into_iter().for_each(|address| limits.leave(address, false));
        assert_eq!(limits.connections.load(Ordering::Relaxed), 0);
        assert_eq!(limits.of_clients.load(Ordering::Relaxed), 0);
        assert!(limits.held.is_empty());
    }

    /// 16.13: "The last `servers_share_percent` percent of the places, 1,000 at most".
    #[test]
    fn servers_have_places_of_their_own() {
        let of_clients = |places| places_of_clients(places, 10);
        assert_eq!([1, 9, 10, 20, 1_000].map(of_clients), [1, 9, 9, 18, 900]);
        assert_eq!([10_000, 1_000_000].map(of_clients), [9_000, 999_000]);
        assert_eq!(of_clients(usize::MAX), usize::MAX - 1_000);
        assert_eq!(places_of_clients(10, 100), 1);
        let limits = SharedLimits::new(Some(10));
        let comes = |api| limits.enter(api, 20);
        let leaves = |api| limits.leave(Address::NONE, api);
        assert_eq!((0..10).filter(|_| comes(false)).count(), 8);
        assert!(limits.are_full(false, 20) && !limits.are_full(true, 20));
        assert!(comes(true) && comes(true) && !comes(true) && !comes(false));
        // A place that a client leaves is for whoever comes next, one that a server leaves isn't.
        leaves(false);
        assert!(comes(true) && !comes(false));
        leaves(true);
        assert!(comes(false) && !comes(true));
        (0..8).for_each(|_| leaves(false));
        (0..2).for_each(|_| leaves(true));
        assert_eq!((0..11).filter(|_| comes(true)).count(), 10, "servers may have all");
    }
}
