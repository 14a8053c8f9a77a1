//! Numbers of events: each subject's are numbered from 1, without a gap and in the order in which
//! the server gets them, so that a client that follows the subject knows what it has missed.
//!
//! Invariant: of each subject at most one event is on its way. It is sent again until the server
//! has taken it, so a number that was given away is taken sooner or later, before the next one is.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::subjects::Subjects;
use crate::clients::follows::read_numbers;
use crate::error::{Failure, Result};

/// Subjects that can have numbers: the table takes four bytes for each.
const SUBJECTS_MAX: u64 = 16_000_000;

/// The numbers of all subjects.
#[derive(Debug)]
pub struct Numbers {
    /// The last number given away, by the number of the subject.
    last: Vec<u32>,
    /// Subjects with an event on its way.
    busy: HashSet<u64>,
}

impl Numbers {
    /// None is given away yet. There will be at most `on_their_way_max` events at a time.
    ///
    /// # Errors
    /// If there are too many subjects, or too few for so many events.
    pub fn new(subjects: &Subjects, on_their_way_max: u64) -> Result<Self> {
        let count = subjects.count();
        if count > SUBJECTS_MAX {
            let what = format!("--numbers: {SUBJECTS_MAX} subjects at most, not {count}");
            return Err(Failure::Message(what));
        }
        if count < on_their_way_max {
            return Err(Failure::Message(format!(
                "--numbers: of each subject one event is on its way; expected at least \
                 {on_their_way_max} subjects (connections times batch), not {count}"
            )));
        }
        Ok(Self { last: vec![0; count as usize], busy: HashSet::new() })
    }

    /// Goes on from a file, if it is there.
    ///
    /// # Errors
    /// Those of [`Numbers::new`], and if the file isn't what [`Numbers::write`] writes.
    pub fn read(path: &Path, subjects: &Subjects, on_their_way_max: u64) -> Result<Self> {
        let mut numbers = Self::new(subjects, on_their_way_max)?;
        if path.exists() {
            let known = read_numbers(path)?;
            for (subject, last) in numbers.last.iter_mut().enumerate() {
                *last = known.get(&subjects.name(subject as u64).to_string()).copied().unwrap_or(0);
            }
        }
        Ok(numbers)
    }

    /// Writes the last numbers, to be read by `halley-load clients` and by the next run. What
    /// another run wrote about other subjects stays.
    ///
    /// # Errors
    /// If the file can't be read or written.
    pub fn write(&self, path: &Path, subjects: &Subjects) -> Result<()> {
        let mut all = BTreeMap::new();
        if path.exists() {
            all.extend(read_numbers(path)?);
        }
        for (subject, &last) in self.last.iter().enumerate() {
            if last > 0 {
                all.insert(subjects.name(subject as u64).to_string(), last);
            }
        }
        let cannot = || Failure::io(format!("can't write {}", path.display()));
        let mut file = BufWriter::new(File::create(path).map_err(cannot())?);
        serde_json::to_writer(&mut file, &all).map_err(|error| cannot()(error.into()))?;
        file.flush().map_err(cannot())
    }

    /// Whether no event about the subject is on its way.
    #[must_use]
    pub fn is_free(&self, subject: u64) -> bool {
        !self.busy.contains(&subject)
    }

    /// The next number of a subject; `None` while one is on its way.
    pub fn take(&mut self, subject: u64) -> Option<u32> {
        let last = self.last.get_mut(subject as usize)?;
        if !self.busy.insert(subject) {
            return None;
        }
        *last += 1;
        Some(*last)
    }

    /// The events about these subjects are no longer on their way.
    pub fn free(&mut self, subjects: &[u64]) {
        for subject in subjects {
            self.busy.remove(subject);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn numbers_go_on_where_the_file_ends() {
        let path = std::env::temp_dir().join(format!("halley-load-numbers-{}", std::process::id()));
        let subjects = Subjects::parse("groups:3").unwrap();
        let mut numbers = Numbers::read(&path, &subjects, 3).unwrap();
        assert_eq!((numbers.take(1), numbers.take(1), numbers.take(2)), (Some(1), None, Some(1)));
        numbers.free(&[1]);
        assert_eq!(numbers.take(1), Some(2));
        numbers.write(&path, &subjects).unwrap();
        let others = Subjects::parse("uniform:7-9").unwrap();
        let mut numbers = Numbers::read(&path, &others, 3).unwrap();
        assert_eq!(numbers.take(0), Some(1));
        numbers.write(&path, &others).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, r#"{"7":1,"g1":2,"g2":1}"#);
        let mut numbers = Numbers::read(&path, &subjects, 3).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!([0, 1, 2].map(|subject| numbers.take(subject)), [Some(1), Some(3), Some(2)]);
    }

    #[test]
    fn there_are_subjects_for_all_that_may_be_on_its_way() {
        let message = Numbers::new(&Subjects::parse("groups:3").unwrap(), 4).unwrap_err();
        assert!(message.to_string().contains("expected at least 4 subjects"), "{message}");
        let many = Subjects::parse("uniform:1-99999999").unwrap();
        assert!(Numbers::new(&many, 1).is_err());
    }
}
