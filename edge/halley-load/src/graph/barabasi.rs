//! Barabási–Albert graphs without an edge array.
//!
//! Purpose: who follows whom in a network that grew by preferential attachment, as a pure function
//! of (users, degree, seed, user). Any user's follows are computed alone, in any order, on any
//! thread, so other subcommands use the graph without a file.
//!
//! Method: Batagelj and Brandes write the graph as an array E of 2·users·degree endpoints, where
//! `E[2i]` is the user who makes follow `i` and `E[2i+1] = E[r]` with `r` uniform in `0..=2i`:
//! copying a random earlier endpoint *is* choosing in proportion to degree. Sanders and Schulz
//! ("Scalable generation of scale-free graphs", 2016) replace the array by a hash: `r = h(2i+1)`,
//! and if `r` is odd, what would stand there is found by hashing on, `r = h(r)`, until `r` is even.
//! That takes two hashes on average.
//!
//! Invariants: no user follows itself, none follows the same subject twice, and the number of
//! follows is exact: `degree` each, and for the first `degree` users all before them. To that end a
//! pick that repeats is picked again with another key. A later user's chain that passes through
//! such a follow sees the first pick, a difference no statistic of the graph shows.
//!
//! It is not a model of communities; it has none.

use crate::rng::{hash, mix, scale};

/// How many times a repeated pick is picked again before the nearest free user below is taken.
const PICKS_MAX: u64 = 32;

/// A graph: three numbers. Users are `0..users` here; the command prints them from 1.
#[derive(Debug, Clone, Copy)]
pub struct Graph {
    users: u64,
    degree: u64,
    key: u64,
}

impl Graph {
    /// The graph of `users` users of whom each follows `degree` others, chosen by `seed`.
    #[must_use]
    pub fn new(users: u32, degree: u32, seed: u64) -> Self {
        Self { users: users.into(), degree: degree.into(), key: mix(seed) }
    }

    /// How many users there are.
    #[must_use]
    pub fn users(&self) -> u64 {
        self.users
    }

    /// How many follows there are, exactly.
    #[must_use]
    pub fn follows(&self) -> u64 {
        let short = self.users.min(self.degree);
        short * short.saturating_sub(1) / 2 + (self.users - short) * self.degree
    }

    /// Puts the subjects that `user` follows into `subjects`, which is cleared first.
    pub fn following(&self, user: u64, subjects: &mut Vec<u64>) {
        subjects.clear();
        if user <= self.degree {
            subjects.extend(0..user);
            return;
        }
        for follow in user * self.degree..(user + 1) * self.degree {
            let subject = (0..PICKS_MAX)
                .map(|attempt| self.pick(follow, attempt))
                .find(|subject| *subject != user && !subjects.contains(subject));
            let subject = subject.or_else(|| (0..user).rev().find(|s| !subjects.contains(s)));
            subjects.extend(subject);
        }
    }

    /// The subject of a random follow: a subject drawn in proportion to its followers. `uniform`
    /// is any uniform u64.
    #[must_use]
    pub fn popular_subject(&self, uniform: u64) -> u64 {
        self.pick(scale(uniform, self.users * self.degree), 0)
    }

    /// The endpoint at position `2 * follow + 1` of the implicit array.
    fn pick(&self, follow: u64, attempt: u64) -> u64 {
        let mut position = 2 * follow + 1;
        let key = self.key.wrapping_add(mix(attempt));
        position = scale(hash(key, position), position);
        while position % 2 == 1 {
            position = scale(hash(self.key, position), position);
        }
        position / 2 / self.degree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followers(graph: Graph) -> Vec<u32> {
        let mut counts = vec![0u32; graph.users() as usize];
        let mut subjects = Vec::new();
        for user in 0..graph.users() {
            graph.following(user, &mut subjects);
            for &subject in &subjects {
                counts[subject as usize] += 1;
            }
        }
        counts
    }

    #[test]
    fn nobody_follows_themself_or_anyone_twice_and_the_number_is_exact() {
        for (users, degree) in [(1, 3), (2, 5), (4, 3), (5, 7), (200, 15), (5000, 1), (3000, 8)] {
            let graph = Graph::new(users, degree, 42);
            let mut all = 0;
            let mut subjects = Vec::new();
            for user in 0..graph.users() {
                graph.following(user, &mut subjects);
                assert!(subjects.iter().all(|&s| s < user), "{user} follows {subjects:?}");
                all += subjects.len() as u64;
                subjects.sort_unstable();
                subjects.dedup();
                assert_eq!(subjects.len() as u64, user.min(degree.into()));
            }
            assert_eq!(all, graph.follows());
        }
        assert_eq!(Graph::new(1_000_000, 15, 0).follows(), 14_999_880);
    }

    #[test]
    fn a_seed_is_a_graph() {
        let of = |seed| followers(Graph::new(1000, 5, seed));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    /// In a Barabási–Albert graph the largest degree grows like the root of the number of users;
    /// in a uniformly random one it would hardly grow at all.
    #[test]
    fn the_most_followed_grows_like_the_root_of_the_users() {
        let most = |users| {
            let sum: u32 = (0..8)
                .map(|seed| followers(Graph::new(users, 4, seed)).into_iter().max().unwrap_or(0))
                .sum();
            f64::from(sum) / 8.0
        };
        let (small, large) = (most(2_000), most(32_000));
        assert!((2.8..5.6).contains(&(large / small)), "16 times the users: {small} to {large}");
    }

    /// The tail is a power law: P(degree ≥ k) ~ k^-2, estimated by Hill's estimator over the
    /// thousand largest total degrees.
    #[test]
    fn the_tail_is_a_power_law_with_exponent_two() {
        let mut degrees: Vec<f64> =
            followers(Graph::new(100_000, 6, 9)).into_iter().map(|n| f64::from(n + 6)).collect();
        degrees.sort_by(|a, b| b.total_cmp(a));
        let (tail, smallest) = (&degrees[..1000], degrees[1000]);
        let mean_log = tail.iter().map(|d| (d / smallest).ln()).sum::<f64>() / 1000.0;
        let exponent = 1.0 / mean_log;
        assert!((1.75..2.25).contains(&exponent), "exponent {exponent}");
    }

    #[test]
    fn popular_subjects_are_drawn_in_proportion_to_followers() {
        let graph = Graph::new(2_000, 4, 5);
        let followers = followers(graph);
        let mut rng = crate::rng::Rng::new(1);
        let mut drawn = vec![0u32; 2_000];
        for _ in 0..80_000 {
            drawn[graph.popular_subject(rng.next()) as usize] += 1;
        }
        // 80,000 draws over some 8,000 follows: about ten draws a follower.
        let top: usize = (0..2_000).max_by_key(|&s| followers[s]).unwrap_or(0);
        let ratio = f64::from(drawn[top]) / f64::from(followers[top]);
        assert!((8.0..12.0).contains(&ratio), "{} for {}", drawn[top], followers[top]);
    }
}
