//! Which user each connection is.

use std::path::Path;

use crate::error::{Failure, Result};

/// User ids by index. A list shorter than the connections is used again from its start.
#[derive(Debug)]
pub enum Users {
    /// The numbers from `first`, `count` of them.
    Range {
        /// The first id.
        first: u64,
        /// How many; at least 1.
        count: u64,
    },
    /// The lines of a file: their text, and where each ends.
    Lines {
        /// All lines, without line ends.
        text: String,
        /// End of each line in `text`; not empty.
        ends: Vec<usize>,
    },
}

impl Users {
    /// Reads `first-last` or `first:count`.
    ///
    /// # Errors
    /// Says what would be right.
    pub fn parse(text: &str) -> Result<Self> {
        let number = |digits: &str| digits.parse::<u64>().ok();
        let range = if let Some((first, last)) = text.split_once('-') {
            number(first)
                .zip(number(last))
                .filter(|(first, last)| first <= last)
                .map(|(first, last)| (first, last - first + 1))
        } else if let Some((first, count)) = text.split_once(':') {
            number(first).zip(number(count)).filter(|&(_, count)| count > 0)
        } else {
            None
        };
        let (first, count) = range.ok_or_else(|| {
            let right = "expected first-last or first:count, as in 1-15000 or 1:15000";
            Failure::Message(format!("--users {text}: {right}"))
        })?;
        Ok(Self::Range { first, count })
    }

    /// Reads a file of one id per line; empty lines don't count.
    ///
    /// # Errors
    /// If it can't be read or names nobody.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let file =
            std::fs::read_to_string(path).map_err(Failure::io(format!("can't read {name}")))?;
        let (mut text, mut ends) = (String::with_capacity(file.len()), Vec::new());
        for line in file.lines().filter(|line| !line.is_empty()) {
            text.push_str(line);
            ends.push(text.len());
        }
        if ends.is_empty() {
            return Err(Failure::Message(format!("{name}: no users in it, expected one per line")));
        }
        Ok(Self::Lines { text, ends })
    }

    /// The position of connection `index` among all users, counted from 0: of numbers the user 1
    /// is the first, whichever of them are connected here.
    #[must_use]
    pub fn position(&self, index: u64) -> u64 {
        match self {
            Self::Range { first, count } => (first + index % count).saturating_sub(1),
            Self::Lines { ends, .. } => index % ends.len() as u64,
        }
    }

    /// Calls `with` with the id of connection `index`.
    pub fn with<R>(&self, index: u64, with: impl FnOnce(&str) -> R) -> R {
        match self {
            Self::Range { first, count } => with(&(first + index % count).to_string()),
            Self::Lines { text, ends } => {
                let line = (index % ends.len() as u64) as usize;
                let start = if line == 0 { 0 } else { ends[line - 1] };
                with(&text[start..ends[line]])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn of(users: &Users, indices: std::ops::Range<u64>) -> Vec<String> {
        indices.map(|index| users.with(index, str::to_owned)).collect()
    }

    #[test]
    fn ranges_wrap_around() {
        assert_eq!(of(&Users::parse("5-7").unwrap(), 0..4), ["5", "6", "7", "5"]);
        assert_eq!(of(&Users::parse("1:2").unwrap(), 0..3), ["1", "2", "1"]);
        let positions = |users: &Users| [0, 1, 2, 3].map(|index| users.position(index));
        assert_eq!(positions(&Users::parse("5-7").unwrap()), [4, 5, 6, 4]);
        assert_eq!(positions(&Users::parse("0-9").unwrap()), [0, 0, 1, 2]);
        for bad in ["", "7", "7-5", "1:0", "a-b", "-1"] {
            assert!(Users::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_have_one_id_a_line() {
        let path = std::env::temp_dir().join(format!("halley-load-users-{}", std::process::id()));
        std::fs::write(&path, "ann\n\nbob é\n").unwrap();
        assert_eq!(of(&Users::read(&path).unwrap(), 0..3), ["ann", "bob é", "ann"]);
        std::fs::write(&path, "\n").unwrap();
        assert!(Users::read(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(Users::read(&path).is_err());
    }
}
