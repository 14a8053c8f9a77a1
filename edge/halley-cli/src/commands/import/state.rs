//! How far an import is, in a file that outlives a kill and a crash.
//!
//! All lines up to `offset` are done. The next run sends those after it; some of them may be
//! `already` done as well.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::whole_file;

/// How much of the input's beginning tells it from others.
const MARK_BYTES_MAX: u64 = 1 << 16;
const STATE_BYTES_MAX: u64 = 1 << 16;

/// Which import it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The server.
    url: String,
    /// Follows are ended, not made.
    unfollow: bool,
    /// So many bytes of the beginning …
    mark_bytes: u64,
    /// … have this SHA-256.
    mark: String,
}

/// Counts of what is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Bytes of the input.
    pub offset: u64,
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
struct State {
    job: Job,
    done: Done,
}

impl Job {
    /// The import of this input, read from its beginning.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn of(url: &str, unfollow: bool, input: &File, mark_bytes: Option<u64>) -> Result<Self> {
        let mut start = Vec::new();
        let mark_bytes = mark_bytes.unwrap_or(MARK_BYTES_MAX).min(MARK_BYTES_MAX);
        input
            .take(mark_bytes)
            .read_to_end(&mut start)
            .map_err(Failure::io("can't read the input"))?;
        let mark = digest(&SHA256, &start);
        let mark = mark.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { url: url.to_owned(), unfollow, mark_bytes: start.len() as u64, mark })
    }
}

/// Reads how far the import of this input is; nothing is done where there is no file.
///
/// # Errors
/// If the file is of another import, or can't be read.
pub fn read(path: &Path, job: impl Fn(Option<u64>) -> Result<Job>) -> Result<(Job, Done)> {
    let name = path.display();
    let mut text = String::new();
    match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok((job(None)?, Done::default()));
        }
        Err(error) => return Err(Failure::Io(format!("can't read {name}"), error)),
        Ok(file) => file
            .take(STATE_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(Failure::io(format!("can't read {name}")))?,
    };
    let remedy = "; --restart begins anew, --state names another file";
    let State { job: before, done } = serde_json::from_str(&text)
        .map_err(|_| Failure::Usage(format!("{name} is no state of an import{remedy}")))?;
    // The input may have grown since: as much of it is compared as there was.
    let job = job(Some(before.mark_bytes))?;
    let other = if before.url != job.url {
        Some(format!("server, {}", before.url))
    } else if before.unfollow != job.unfollow {
        Some("direction (--unfollow)".to_owned())
    } else {
        (before != job).then(|| "input".to_owned())
    };
    match other {
        Some(other) => Err(Failure::Usage(format!("{name} is of another {other}{remedy}"))),
        None => Ok((job, done)),
    }
}

/// Writes it; when it returns, it is on disk.
///
/// # Errors
/// If the system refuses.
pub fn write(path: &Path, job: &Job, done: &Done) -> Result<()> {
    let state = State { job: job.clone(), done: done.clone() };
    let text = serde_json::to_string(&state)
        .map_err(|error| Failure::Io("can't write the state".into(), error.into()))?;
    whole_file::write(path, format!("{text}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_state_belongs_to_one_import() {
        let folder = std::env::temp_dir().join(format!("halley-cli-state-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (input, state) = (folder.join("input"), folder.join("state"));
        let job_of = |url: &'static str, unfollow| {
            let input = input.clone();
            move |bytes| Job::of(url, unfollow, &File::open(&input).unwrap(), bytes)
        };
        std::fs::write(&input, "a b\n").unwrap();
        let (job, done) = read(&state, job_of("u", false)).unwrap();
        assert_eq!(done, Done::default());
        let done = Done { offset: 4, lines: 1, changed: 1, same: 0, errors: 0 };
        write(&state, &job, &done).unwrap();
        // It has grown.
        std::fs::write(&input, "a b\nc d\n").unwrap();
        assert_eq!(read(&state, job_of("u", false)).unwrap().1, done);
        for (url, unfollow) in [("v", false), ("u", true)] {
            assert!(matches!(read(&state, job_of(url, unfollow)), Err(Failure::Usage(_))));
        }
        std::fs::write(&input, "x y\nc d\n").unwrap();
        assert!(matches!(read(&state, job_of("u", false)), Err(Failure::Usage(_))));
        std::fs::write(&state, "{}").unwrap();
        assert!(matches!(read(&state, job_of("u", false)), Err(Failure::Usage(_))));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
