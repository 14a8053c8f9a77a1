//! Where clients come from: an address as four bytes, and how many connections each has.
//!
//! An IPv4 address stands for itself, an IPv6 address for its /64, since a client has all of its
//! /64; an IPv4 address written as IPv6 is the IPv4 address. A connection keeps only a hash of its
//! address, by a key that is drawn when the edge starts, so an attacker can't choose a collision.
//!
//! [`Held`] counts the connections of all workers by two cells for each address (a count-min
//! sketch: Cormode, Muthukrishnan, 2005). It adds to both when a connection comes, and subtracts
//! when it goes. Invariant: a cell is the number of connections whose address has it. So the lower
//! of the two is at least the address's own number, and more only if other addresses share both
//! cells. A million connections from everywhere are thirty in a cell.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use crate::limits::sketch::{Key, Sketch};

/// Where a connection comes from, as its slot's neighbour keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address(u32);

impl Address {
    /// One that isn't counted.
    pub const NONE: Address = Address(0);
    /// A proxy that names its clients in their requests.
    pub const FORWARDS: Address = Address(1 << 30);
    const COUNTED: u32 = 1 << 31;
    const BITS: u32 = Address::COUNTED | Address::FORWARDS.0;

    /// Of an address that is counted.
    pub fn counted(key: Key) -> Address {
        Address(Address::COUNTED | key.0)
    }

    /// The same, as a proxy named it.
    pub fn forwarded(key: Key) -> Address {
        Address(Address::counted(key).0 | Address::FORWARDS.0)
    }

    /// Does a proxy name the client?
    pub fn forwards(self) -> bool {
        self.0 & Address::FORWARDS.0 != 0
    }

    /// The key, if the address is counted.
    pub fn key(self) -> Option<Key> {
        (self.0 & Address::COUNTED != 0).then_some(Key(self.0 & !Address::BITS))
    }
}

/// Makes keys, alike in all workers of one edge.
#[derive(Clone)]
pub struct Hasher(RandomState);

impl Hasher {
    /// With keys from the system.
    pub fn new() -> Hasher {
        Hasher(RandomState::new())
    }

    /// Of an address or its network, see the module.
    pub fn address(&self, ip: IpAddr) -> Key {
        self.key(match ip.to_canonical() {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 | 1 << 63,
        })
    }

    /// Of a user.
    pub fn name(&self, name: &[u8]) -> Key {
        self.key(name)
    }

    fn key(&self, of: impl std::hash::Hash) -> Key {
        Key(self.0.hash_one(of) as u32 & Key::MASK)
    }
}

/// Connections by address.
#[derive(Default)]
pub struct Held(Sketch);

impl Held {
    /// Counts one more, if there are fewer than `most`.
    pub fn enter(&self, address: Address, most: u32) -> bool {
        let Some(key) = address.key() else { return true };
        let both = self.0.of(key).map(|cell| cell.fetch_add(1, Ordering::Relaxed));
        let fits = both[0].min(both[1]) < most;
        if !fits {
            self.leave(address);
        }
        fits
    }

    /// One that was counted is gone.
    pub fn leave(&self, address: Address) {
        let Some(key) = address.key() else { return };
        for cell in self.0.of(key) {
            cell.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Is nobody counted?
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.all().iter().all(|cell| cell.load(Ordering::Relaxed) == 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn key(hasher: &Hasher, ip: &str) -> Key {
        hasher.address(ip.parse().unwrap())
    }

    /// http.md 16.1: "An IPv6 address counts as its /64, an IPv4 address in IPv6 as the IPv4
    /// address."
    #[test]
    fn what_counts_as_one_address() {
        let hasher = Hasher::new();
        let of = |ip| key(&hasher, ip);
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        // The same number in both families is not the same address.
        assert_ne!(of("192.0.2.1"), of("0:0:c000:201::"));
        assert_ne!(of("0.0.0.0"), of("::"));
    }

    /// Another edge has other keys, so collisions can't be known beforehand.
    #[test]
    fn keys_are_the_edges_own() {
        let (one, other) = (Hasher::new(), Hasher::new());
        let same = |n: u32| {
            let ip = IpAddr::V4(n.into());
            one.address(ip) == other.address(ip)
        };
        assert!((0..1_000).filter(|n| same(*n)).count() < 10);
    }

    /// 16.1: "A close subtracts what the opening added".
    #[test]
    fn what_comes_goes() {
        let (held, hasher) = (Held::default(), Hasher::new());
        let ann = Address::counted(key(&hasher, "192.0.2.1"));
        assert!((0..3).all(|_| held.enter(ann, 3)));
        assert!((0..5).all(|_| !held.enter(ann, 3)), "a refusal is not counted");
        held.leave(ann);
        assert!(held.enter(ann, 3) && !held.enter(ann, 3));
        assert!((0..9).all(|_| held.enter(Address::NONE, 3)), "16.1: exempt");
        (0..3).for_each(|_| held.leave(ann));
        held.leave(Address::NONE);
        assert!(held.is_empty());
    }

    /// A proxy's connection, and what it forwards for, are told from others.
    #[test]
    fn what_is_forwarded() {
        let key = key(&Hasher::new(), "192.0.2.1");
        let [own, other] = [Address::counted(key), Address::forwarded(key)];
        assert_eq!((own.key(), other.key()), (Some(key), Some(key)));
        assert_eq!((own.forwards(), other.forwards()), (false, true));
        assert_eq!((Address::FORWARDS.key(), Address::FORWARDS.forwards()), (None, true));
    }

    /// Workers come and go at the same time.
    #[test]
    fn workers_count_together() {
        let (held, hasher) = (Held::default(), Hasher::new());
        let ann = Address::counted(key(&hasher, "192.0.2.1"));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if held.enter(ann, 2) {
                            held.leave(ann);
                        }
                    }
                });
            }
        });
        assert!(held.is_empty());
    }

    proptest! {
        /// Against a plain count: never less than the address has, and exact once all have left.
        #[test]
        fn it_never_counts_too_few(
            moves in proptest::collection::vec((0u32..40, any::<bool>()), 0..300),
            most in 1u32..6,
        ) {
            let (held, hasher) = (Held::default(), Hasher::new());
            let address = |n: u32| Address::counted(hasher.address(IpAddr::V4(n.into())));
            let mut there = [0u32; 40];
            for (n, comes) in moves {
                let count = &mut there[n as usize];
                if comes {
                    let entered = held.enter(address(n), most);
                    prop_assert!(!entered || *count < most, "{n} has {count}");
                    *count += u32::from(entered);
                } else if *count > 0 {
                    held.leave(address(n));
                    *count -= 1;
                }
            }
            for (n, count) in (0..).zip(there) {
                (0..count).for_each(|_| held.leave(address(n)));
            }
            prop_assert!(held.is_empty());
        }
    }
}
