//! How far an import is, in a file that outlives a kill and a crash.
//!
//! All lines up to `offset` are done. The next run sends those after it; some of them may be
//! `already` done as well. The mark of all that is done tells that it is the same input still,
//! which may have grown: an input that was made anew may begin alike, and none of its lines must be
//! left out, or begin in its middle.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::whole_file::Held;

const STATE_BYTES_MAX: u64 = 1 << 16;
/// What is read at a time to compare.
const PART_BYTES: usize = 1 << 18;

/// Which import it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The server.
    pub url: String,
    /// Follows are ended, not made.
    pub unfollow: bool,
    /// `Content-Type` of the lines.
    pub form: String,
}

/// Counts of what is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Bytes of the input.
    pub offset: u64,
    /// The mark of these bytes; empty as long as nothing is done.
    pub mark: String,
    /// Lines of it, blank ones too.
    pub lines: u64,
    /// Follows that were made, or ended.
    pub changed: u64,
    /// Follows that were there, or weren't.
    pub same: u64,
    /// Lines that were refused.
    pub errors: u64,
}

/// The file's content.
#[derive(Debug, Serialize, Deserialize)]
struct Content {
    job: Job,
    done: Done,
}

/// SHA-256 of an input from its beginning on.
#[derive(Clone)]
pub struct Mark(Context);

impl Mark {
    /// Of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    /// Of so many bytes, which are read from where the input is; `None` if it has fewer.
    ///
    /// # Errors
    /// If the input can't be read.
    pub fn of_next(input: &File, bytes: u64) -> io::Result<Option<Self>> {
        let (mut mark, mut left) = (Self::new(), bytes);
        let mut part = Vec::with_capacity(PART_BYTES);
        while left > 0 {
            part.clear();
            let read = input.take(left.min(PART_BYTES as u64)).read_to_end(&mut part)?;
            if read == 0 {
                return Ok(None);
            }
            mark.add(&part);
            left -= read as u64;
        }
        Ok(Some(mark))
    }

    /// These follow.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// In hexadecimal digits.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.clone().finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The state of one import, which is this run's alone.
#[derive(Debug)]
pub struct State {
    file: Held,
    job: Job,
}

impl State {
    /// Takes the file; nothing is done where there is none, or with `restart`.
    ///
    /// # Errors
    /// If another run is at work with it, it is of another import, or can't be read.
    pub fn take(path: &Path, job: Job, restart: bool) -> Result<(Self, Done)> {
        let name = path.display();
        let first = content(&job, &Done::default())?;
        let (file, text) = Held::take(path, STATE_BYTES_MAX, &first)?;
        let done = if restart || text.is_empty() {
            Done::default()
        } else {
            let Content { job: before, done } = serde_json::from_str(&text)
                .map_err(|_| Failure::Usage(format!("{name} is no state of an import{REMEDY}")))?;
            match other(&before, &job) {
                Some(other) => return Err(is_of_another(path, &other)),
                None => done,
            }
        };
        Ok((Self { file, job }, done))
    }

    /// Writes it; when it returns, it is on disk.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn write(&mut self, done: &Done) -> Result<()> {
        self.file.write(content(&self.job, done)?.as_bytes())
    }

    /// All is done: removes the file.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn remove(self) -> Result<()> {
        self.file.remove()
    }
}

fn content(job: &Job, done: &Done) -> Result<String> {
    let content = Content { job: job.clone(), done: done.clone() };
    let text = serde_json::to_string(&content)
        .map_err(|error| Failure::Io("can't write the state".into(), error.into()))?;
    Ok(format!("{text}\n"))
}

const REMEDY: &str = "; --restart begins anew, --state names another file";

/// The state isn't that of this import.
#[must_use]
pub fn is_of_another(path: &Path, what: &str) -> Failure {
    Failure::Usage(format!("{} is of another {what}{REMEDY}", path.display()))
}

fn other(before: &Job, job: &Job) -> Option<String> {
    if before.url != job.url {
        Some(format!("server, {}", before.url))
    } else if before.unfollow != job.unfollow {
        Some("direction (--unfollow)".to_owned())
    } else {
        (before.form != job.form).then(|| "form of lines (--format)".to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_state_belongs_to_one_import() {
        let path = std::env::temp_dir().join(format!("halley-cli-state-{}", std::process::id()));
        let job_of = |url: &str, unfollow, form: &str| Job {
            url: url.to_owned(),
            unfollow,
            form: form.to_owned(),
        };
        let job = job_of("u", false, "text/plain");
        let (mut state, done) = State::take(&path, job.clone(), false).unwrap();
        assert_eq!(done, Done::default());
        let done = Done { offset: 4, lines: 1, changed: 1, ..Done::default() };
        state.write(&done).unwrap();
        drop(state);
        assert_eq!(State::take(&path, job.clone(), false).unwrap().1, done);
        assert_eq!(State::take(&path, job.clone(), true).unwrap().1, Done::default());
        for other in [
            job_of("v", false, "text/plain"),
            job_of("u", true, "text/plain"),
            job_of("u", false, "application/x-ndjson"),
        ] {
            assert!(matches!(State::take(&path, other, false), Err(Failure::Usage(_))));
        }
        std::fs::write(&path, "{}").unwrap();
        assert!(matches!(State::take(&path, job, false), Err(Failure::Usage(_))));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_mark_is_of_every_byte() {
        let path = std::env::temp_dir().join(format!("halley-cli-mark-{}", std::process::id()));
        let text = "u s\n".repeat(PART_BYTES);
        std::fs::write(&path, &text).unwrap();
        let of = |bytes| Mark::of_next(&File::open(&path).unwrap(), bytes).unwrap();
        let mut mark = Mark::new();
        mark.add(text.as_bytes());
        assert_eq!(of(text.len() as u64).unwrap().text(), mark.text());
        assert!(of(text.len() as u64 + 1).is_none());
        assert_ne!(of(text.len() as u64 - 1).unwrap().text(), mark.text());
        std::fs::remove_file(&path).unwrap();
    }
}
