//! The follows of each connection's user, and how far each subject's numbers have come: clients
//! need both to prove that nothing is missing.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use super::users::Users;
use crate::error::{Failure, Result};

/// Follows of the users that connect; of all others, nothing is kept.
#[derive(Debug, Default)]
pub struct Follows {
    /// Subjects as they stand between a JSON text's quotes, by number.
    subjects: HashMap<Box<[u8]>, u32>,
    /// The subjects of each connection, in order.
    of: Vec<Box<[u32]>>,
}

/// The last number of each subject, in the order of [`Follows`]; 0 where nothing was published.
pub type Numbers = Arc<[u32]>;

impl Follows {
    /// Reads lines `USER SUBJECT`, as `halley-load graph` writes them.
    ///
    /// # Errors
    /// If the file can't be read or has another form.
    pub fn read(path: &Path, users: &Users, connections: u64) -> Result<Self> {
        let name = path.display();
        let mut indices: HashMap<String, Vec<usize>> = HashMap::new();
        for index in 0..connections {
            let user = users.with(index, str::to_owned);
            indices.entry(user).or_default().push(index as usize);
        }
        let mut of = vec![Vec::new(); connections as usize];
        let mut subjects = HashMap::new();
        let cannot = || Failure::io(format!("can't read {name}"));
        let mut file = BufReader::new(File::open(path).map_err(cannot())?);
        let mut line = String::new();
        while file.read_line(&mut line).map_err(cannot())? > 0 {
            let Some((user, subject)) = line.trim_end().split_once(' ') else {
                let right = "expected USER SUBJECT in each line, as in `halley-load graph`";
                return Err(Failure::Message(format!("{name}: {right}")));
            };
            if let Some(indices) = indices.get(user) {
                let next = subjects.len() as u32;
                let number = *subjects.entry(in_json(subject)).or_insert(next);
                for &index in indices {
                    of[index].push(number);
                }
            }
            line.clear();
        }
        let sorted = |mut numbers: Vec<u32>| {
            numbers.sort_unstable();
            numbers.dedup();
            numbers.into_boxed_slice()
        };
        Ok(Self { subjects, of: of.into_iter().map(sorted).collect() })
    }

    /// The number of a subject, if any user that connects follows it.
    #[must_use]
    pub fn subject(&self, in_json: &[u8]) -> Option<u32> {
        self.subjects.get(in_json).copied()
    }

    /// The subjects of the connection with this index, in order.
    #[must_use]
    pub fn of(&self, index: usize) -> &[u32] {
        self.of.get(index).map_or(&[], |numbers| numbers)
    }

    /// Reads what `halley-load publish --numbers` has written.
    ///
    /// # Errors
    /// If the file can't be read or isn't that.
    pub fn numbers(&self, path: &Path) -> Result<Numbers> {
        let mut numbers = vec![0; self.subjects.len()];
        for (subject, last) in read_numbers(path)? {
            if let Some(number) = self.subject(&in_json(&subject)) {
                numbers[number as usize] = last;
            }
        }
        Ok(numbers.into())
    }
}

/// Reads a file of numbers: a JSON object of subjects and the last number of each.
///
/// # Errors
/// If the file can't be read or isn't that.
pub fn read_numbers(path: &Path) -> Result<HashMap<String, u32>> {
    let name = path.display();
    let text = std::fs::read(path).map_err(Failure::io(format!("can't read {name}")))?;
    serde_json::from_slice(&text).map_err(|error| {
        let right = "expected what `halley-load publish --numbers` writes";
        Failure::Message(format!("{name}: {error}; {right}"))
    })
}

/// The text as it stands between quotes in JSON.
fn in_json(text: &str) -> Box<[u8]> {
    let json = serde_json::Value::from(text).to_string();
    json.as_bytes()[1..json.len() - 1].into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn scratch(name: &str, text: &str) -> std::path::PathBuf {
        let name = format!("halley-load-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn only_the_follows_of_connections_are_kept() {
        let path = scratch("follows", "1 b\n2 a \"x\"\n9 c\n2 b\n2 b\n");
        let follows = Follows::read(&path, &Users::parse("1-2").unwrap(), 3).unwrap();
        assert_eq!(
            (follows.of(0), follows.of(1), follows.of(2)),
            (&[0][..], &[0, 1][..], &[0][..])
        );
        assert_eq!((follows.of(3), follows.subject(b"c")), (&[][..], None));
        assert_eq!(follows.subject(br#"a \"x\""#), Some(1));
        std::fs::write(&path, r#"{"b":7,"c":3}"#).unwrap();
        assert_eq!(*follows.numbers(&path).unwrap(), [7, 0]);
        for bad in ["[]", "{\"b\":-1}"] {
            std::fs::write(&path, bad).unwrap();
            assert!(follows.numbers(&path).is_err());
        }
        std::fs::write(&path, "alone\n").unwrap();
        let message = Follows::read(&path, &Users::parse("1-2").unwrap(), 3).unwrap_err();
        assert!(message.to_string().contains("expected USER SUBJECT"));
        std::fs::remove_file(&path).unwrap();
    }
}
