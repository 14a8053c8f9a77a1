//! The places of a worker's requests that wait for the brain (`requests_in_flight_max`), and who
//! has them (`protocol/http.md` 16.12): one user has a part at most, and users together leave the
//! rest to servers.
//!
//! A request has its place from when it goes to the brain until its answer has come whole, or its
//! client is gone: so also while its body comes. Whoever takes a [`Place`] gives it back.
//!
//! Invariants: `of_users` is the number of the users' places, and `by_user` has how many of them
//! each has that has any. Bound: as many entries as places, and nothing for who has none.

use std::collections::HashMap;

use crate::limits::sketch::Key;

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A server's.
    Server,
    /// A user's, who has this hash.
    User(Key),
    /// A user's of which nothing tells it from the others.
    Unknown,
}

/// A request's place. It isn't copied, so that it is given back once.
#[must_use]
#[derive(Debug)]
pub struct Place(Whose);

/// Why there is none.
#[derive(Debug, PartialEq, Eq)]
pub enum Full {
    /// All are taken, or all that are the users'.
    All,
    /// The user has its share.
    Own,
}

/// How many places there are: in all, for users together, and for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    all: u64,
    users: u64,
    user: u64,
}

impl Parts {
    /// Of so many places. One is always a user's, however few there are.
    pub fn of(all: u64, servers_percent: u64, user_percent: u64) -> Parts {
        let part = |percent: u64| all.saturating_mul(percent.min(100)) / 100;
        Parts { all, users: (all - part(servers_percent)).max(1), user: part(user_percent).max(1) }
    }
}

/// See the module.
#[derive(Default)]
pub struct Places {
    of_servers: u64,
    of_users: u64,
    by_user: HashMap<Key, u64>,
}

impl Places {
    /// Takes a place.
    ///
    /// # Errors
    /// When there is none.
    pub fn take(&mut self, whose: Whose, parts: Parts) -> Result<Place, Full> {
        let of_user = match whose {
            Whose::User(user) => self.by_user.get(&user).copied().unwrap_or(0),
            Whose::Server | Whose::Unknown => 0,
        };
        if of_user >= parts.user {
            return Err(Full::Own);
        }
        if self.len() >= parts.all || whose != Whose::Server && self.of_users >= parts.users {
            return Err(Full::All);
        }
        match whose {
            Whose::Server => self.of_servers += 1,
            Whose::User(user) => {
                self.of_users += 1;
                self.by_user.insert(user, of_user + 1);
            }
            Whose::Unknown => self.of_users += 1,
        }
        Ok(Place(whose))
    }

    /// Gives a place back.
    pub fn give_back(&mut self, Place(whose): Place) {
        let count = match whose {
            Whose::Server => &mut self.of_servers,
            Whose::User(_) | Whose::Unknown => &mut self.of_users,
        };
        *count = count.saturating_sub(1);
        if let Whose::User(user) = whose {
            match self.by_user.get_mut(&user) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.by_user.remove(&user)),
            }
        }
    }

    /// Places that are taken.
    pub fn len(&self) -> u64 {
        self.of_servers + self.of_users
    }

    /// Gives back the memory that a storm took.
    pub fn trim(&mut self) {
        self.by_user.shrink_to(2 * self.by_user.len());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    const PARTS: Parts = Parts { all: 20, users: 18, user: 2 };

    fn user(n: u32) -> Whose {
        Whose::User(Key(n))
    }

    /// http.md 16.12: "One user has at most `user_share_percent_max` percent of them, at least
    /// one".
    #[test]
    fn parts_of_many_and_of_few() {
        let parts = |all, servers, user| {
            let Parts { users, user, .. } = Parts::of(all, servers, user);
            (users, user)
        };
        assert_eq!(parts(4_096, 10, 5), (3_687, 204));
        assert_eq!(parts(20, 10, 10), (18, 2));
        assert_eq!(parts(10, 10, 5), (9, 1));
        assert_eq!(parts(1, 10, 5), (1, 1));
        assert_eq!(parts(100, 100, 1), (1, 1));
        assert_eq!(parts(100, 1, 100), (99, 100));
    }

    /// One user takes its part; others then take theirs, and leave the servers' to servers.
    #[test]
    fn a_user_leaves_room_to_others_and_users_to_servers() {
        let mut places = Places::default();
        let own: Vec<Place> = (0..2).map(|_| places.take(user(1), PARTS).unwrap()).collect();
        assert_eq!(places.take(user(1), PARTS).unwrap_err(), Full::Own);
        let mut others: Vec<Place> =
            (0..15).map(|n| places.take(user(2 + n / 2), PARTS).unwrap()).collect();
        others.push(places.take(Whose::Unknown, PARTS).unwrap());
        for whose in [user(99), Whose::Unknown] {
            assert_eq!(places.take(whose, PARTS).unwrap_err(), Full::All);
        }
        let servers: Vec<Place> =
            (0..2).map(|_| places.take(Whose::Server, PARTS).unwrap()).collect();
        assert_eq!(places.take(Whose::Server, PARTS).unwrap_err(), Full::All);
        assert_eq!(places.len(), 20);
        for place in own.into_iter().chain(others).chain(servers) {
            places.give_back(place);
        }
        assert_eq!((places.len(), places.by_user.len()), (0, 0), "nobody is left in the table");
        // Servers may have all.
        let all: Vec<_> = (0..20).map(|_| places.take(Whose::Server, PARTS).unwrap()).collect();
        assert_eq!(places.take(user(1), PARTS).unwrap_err(), Full::All);
        drop(all);
    }

    /// A new brain may bring lower limits while places are taken.
    #[test]
    fn lower_limits_refuse_until_enough_is_given_back() {
        let mut places = Places::default();
        let [one, two] = [(); 2].map(|()| places.take(user(1), PARTS).unwrap());
        let fewer = Parts { all: 2, users: 2, user: 1 };
        assert_eq!(places.take(user(1), fewer).unwrap_err(), Full::Own);
        assert_eq!(places.take(Whose::Server, fewer).unwrap_err(), Full::All);
        places.give_back(one);
        assert_eq!(places.take(user(1), fewer).unwrap_err(), Full::Own);
        places.give_back(two);
        assert!(places.take(user(1), fewer).is_ok());
    }

    proptest! {
        /// Whoever comes and goes, the parts hold, and the table has who is there alone.
        #[test]
        fn parts_hold(moves in proptest::collection::vec((0u32..12, any::<bool>()), 0..200)) {
            let mut places = Places::default();
            let mut there: Vec<(u32, Place)> = Vec::new();
            for (n, comes) in moves {
                let whose = match n {
                    0..8 => user(n),
                    8 => Whose::Unknown,
                    _ => Whose::Server,
                };
                if comes {
                    if let Ok(place) = places.take(whose, PARTS) {
                        there.push((n, place));
                    }
                } else if let Some(at) = there.iter().position(|(of, _)| *of == n) {
                    places.give_back(there.swap_remove(at).1);
                }
                let of = |which: &dyn Fn(u32) -> bool| {
                    there.iter().filter(|(n, _)| which(*n)).count() as u64
                };
                prop_assert!((0..8).all(|n| of(&|of| of == n) <= PARTS.user));
                prop_assert!(of(&|n| n <= 8) <= PARTS.users && places.len() <= PARTS.all);
                prop_assert_eq!(places.len(), there.len() as u64);
                let users = (0..8).filter(|n| of(&|of| of == *n) > 0).count();
                prop_assert_eq!(places.by_user.len(), users);
            }
        }
    }
}
