//! The subjects of events: how they are drawn.

use std::fmt;
use std::io::Write;
use std::path::Path;

use crate::error::{Failure, Result};
use crate::graph::barabasi::Graph;
use crate::rng::{Rng, scale};

/// Ranks that a Zipf distribution may have: its table takes eight bytes each.
const ZIPF_RANKS_MAX: u64 = 16_000_000;

/// What every bad `--subjects` is told.
const FORMS: &str = "expected uniform:LO-HI, zipf:LO-HI:EXPONENT, groups:COUNT, \
     graph:USERS:DEGREE[:SEED] or file:FILE";

/// A distribution of subjects.
#[derive(Debug)]
pub enum Subjects {
    /// The numbers `first..first + count`, each as likely.
    Uniform {
        /// The smallest number.
        first: u64,
        /// How many.
        count: u64,
    },
    /// The numbers from `first`, the k-th as likely as k to the power of -s.
    Zipf {
        /// The most likely number.
        first: u64,
        /// The sum of all weights up to each rank.
        sums: Vec<f64>,
    },
    /// `g0`, `g1`, … each as likely: the groups of `halley-load graph --groups`.
    Groups(u64),
    /// Users of a generated graph, in proportion to their followers.
    Followed(Graph),
    /// The lines of a file, each as likely.
    Lines(Vec<Box<str>>),
}

/// A subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name<'a> {
    /// A word and a number.
    Numbered(&'static str, u64),
    /// Any text.
    Text(&'a str),
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbered(word, number) => write!(f, "{word}{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Subjects {
    /// Reads the value of `--subjects`.
    ///
    /// # Errors
    /// Says what would be right, or that a file can't be read.
    pub fn parse(text: &str) -> Result<Self> {
        let (form, rest) = text.split_once(':').unwrap_or((text, ""));
        let parsed = match form {
            "file" => return Self::read(Path::new(rest)),
            "uniform" => range(rest).map(|(first, count)| Self::Uniform { first, count }),
            "zipf" => rest.split_once(':').and_then(|(numbers, exponent)| {
                let (first, ranks) = range(numbers).filter(|&(_, n)| n <= ZIPF_RANKS_MAX)?;
                let exponent: f64 = exponent.parse().ok().filter(|s| (0.0..=10.0).contains(s))?;
                Some(Self::Zipf { first, sums: zipf_sums(ranks, exponent) })
            }),
            "groups" => rest.parse().ok().filter(|&count| count > 0).map(Self::Groups),
            "graph" => graph(rest).map(Self::Followed),
            _ => None,
        };
        parsed.ok_or_else(|| Failure::Message(format!("--subjects {text}: {FORMS}")))
    }

    fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text =
            std::fs::read_to_string(path).map_err(Failure::io(format!("can't read {name}")))?;
        let lines = text.lines().filter(|line| !line.is_empty());
        let lines: Vec<Box<str>> = lines.map(Into::into).collect();
        if lines.is_empty() {
            return Err(Failure::Message(format!(
                "{name}: no subjects in it, expected one a line"
            )));
        }
        Ok(Self::Lines(lines))
    }

    /// How many there are. They are numbered from 0.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Uniform { count, .. } | Self::Groups(count) => *count,
            Self::Zipf { sums, .. } => sums.len() as u64,
            Self::Followed(graph) => graph.users(),
            Self::Lines(lines) => lines.len() as u64,
        }
    }

    /// Draws one.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match self {
            Self::Uniform { count, .. } | Self::Groups(count) => rng.below(*count),
            Self::Zipf { sums, .. } => {
                let drawn = rng.unit() * sums.last().copied().unwrap_or(0.0);
                sums.partition_point(|&sum| sum <= drawn) as u64
            }
            Self::Followed(graph) => graph.popular_subject(rng.next()),
            Self::Lines(lines) => scale(rng.next(), lines.len() as u64),
        }
    }

    /// The one with this number.
    #[must_use]
    pub fn name(&self, number: u64) -> Name<'_> {
        match self {
            Self::Uniform { first, .. } | Self::Zipf { first, .. } => {
                Name::Numbered("", first + number)
            }
            Self::Groups(_) => Name::Numbered("g", number),
            Self::Followed(_) => Name::Numbered("", number + 1),
            Self::Lines(lines) => Name::Text(lines.get(number as usize).map_or("", |line| line)),
        }
    }

    /// Appends the one with this number to `json`, quotes included.
    pub fn push(&self, number: u64, json: &mut Vec<u8>) {
        // Writing to a Vec can't fail.
        match self.name(number) {
            Name::Text(text) => drop(serde_json::to_writer(json, text)),
            name @ Name::Numbered(..) => drop(write!(json, "\"{name}\"")),
        }
    }
}

/// `LO-HI` as the first number and how many.
fn range(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < u64::MAX).then(|| (first, last - first + 1))
}

/// `USERS:DEGREE[:SEED]`, with the seed that the `graph` subcommand has by default.
fn graph(text: &str) -> Option<Graph> {
    let mut parts = text.split(':');
    let users: u32 = parts.next()?.parse().ok().filter(|&users| users > 0)?;
    let degree: u32 = parts.next()?.parse().ok().filter(|degree| (1..=10_000).contains(degree))?;
    let seed = parts.next().map_or(Some(1), |seed| seed.parse().ok())?;
    parts.next().is_none().then(|| Graph::new(users, degree, seed))
}

fn zipf_sums(ranks: u64, exponent: f64) -> Vec<f64> {
    let weights = (1..=ranks).map(|rank| (rank as f64).powf(-exponent));
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::collections::BTreeMap;

    fn draw(text: &str, draws: u32) -> BTreeMap<String, u32> {
        let subjects = Subjects::parse(text).unwrap();
        let mut rng = Rng::new(5);
        let mut counts = BTreeMap::new();
        for _ in 0..draws {
            let mut json = Vec::new();
            let number = subjects.draw(&mut rng);
            assert!(number < subjects.count());
            subjects.push(number, &mut json);
            let subject: String = serde_json::from_slice(&json).unwrap();
            assert_eq!(subjects.name(number).to_string(), subject);
            *counts.entry(subject).or_default() += 1;
        }
        counts
    }

    #[test]
    fn uniform_and_groups_are_even() {
        for (text, names) in
            [("uniform:7-10", ["10", "7", "8", "9"]), ("groups:4", ["g0", "g1", "g2", "g3"])]
        {
            let counts = draw(text, 40_000);
            assert!(counts.keys().eq(names.iter()), "{counts:?}");
            assert!(counts.values().all(|n| (9_500..10_500).contains(n)), "{counts:?}");
        }
    }

    #[test]
    fn zipf_follows_its_law() {
        let counts = draw("zipf:1-100:1", 100_000);
        let of = |n: &str| f64::from(counts[n]);
        assert!((of("1") / of("2") - 2.0).abs() < 0.15);
        assert!((of("1") / of("10") - 10.0).abs() < 1.0);
        assert!(counts.contains_key("100") && !counts.contains_key("101"));
    }

    #[test]
    fn the_graphs_popular_are_drawn_more_often() {
        let counts = draw("graph:10000:4:3", 20_000);
        let most = counts.values().max().unwrap();
        assert!(*most > 100 && counts.len() > 2_000, "{most} of {}", counts.len());
        assert!(!counts.contains_key("0"));
    }

    #[test]
    fn lines_of_a_file_become_json() {
        let path =
            std::env::temp_dir().join(format!("halley-load-subjects-{}", std::process::id()));
        std::fs::write(&path, "plain\n\nwith \"quotes\"\n").unwrap();
        let counts = draw(&format!("file:{}", path.display()), 100);
        std::fs::remove_file(&path).unwrap();
        assert!(counts.keys().eq(["plain", "with \"quotes\""].iter()), "{counts:?}");
    }

    #[test]
    fn what_cant_be_used_says_what_can() {
        for bad in [
            "",
            "uniform",
            "uniform:9-1",
            "zipf:1-9",
            "zipf:1-9:x",
            "zipf:1-99999999:1",
            "groups:0",
            "graph",
            "graph:0:1",
            "graph:9:0",
            "graph:9:1:1:1",
            "subjects:1",
        ] {
            let message = Subjects::parse(bad).unwrap_err().to_string();
            assert!(message.contains("expected uniform:LO-HI"), "{message}");
        }
        assert!(Subjects::parse("file:/nowhere").is_err());
    }
}
