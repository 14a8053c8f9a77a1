//! A small file that is replaced as a whole: after a kill or a crash it is the old or the new one.
//! A file that tells where a run is ([`Held`]) is one run's at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::failure::{Failure, Result};

/// Writes the file; when it returns, the bytes and the name are on disk.
///
/// # Errors
/// If the system refuses; the old file is still there.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path.display();
    replace(path, bytes).map(drop).map_err(Failure::io(format!("can't write {name}")))
}

/// The file that was put there, which this process holds.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let beside = with_suffix(path, ".new");
    let mut file = File::create(&beside)?;
    hold(&file)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

/// The path with these letters behind its name.
#[must_use]
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Whether no other process holds it. On a file system without locks every process does.
fn hold(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A file that no other run holds. The system's lock ends with the process, however that ends.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    file: File,
    /// It wasn't there, and has only the text that it was made with.
    is_new: bool,
}

impl Held {
    /// Takes it; gives its text, of so many bytes at most. If there is none, it is made with the
    /// text `first`, and an empty text is given.
    ///
    /// # Errors
    /// If another run holds it, or the system refuses.
    pub fn take(path: &Path, bytes_max: u64, first: &str) -> Result<(Self, String)> {
        let name = path.display();
        let cannot = || Failure::io(format!("can't use {name}"));
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let mut file = options.open(path).map_err(cannot())?;
            if !hold(&file).map_err(cannot())? {
                return Err(Failure::Usage(format!(
                    "another run is at work with {name}: wait for its end, or end it"
                )));
            }
            // The run that held it may have put another in its place before it ended.
            if same(&file, path) {
                let mut text = String::new();
                (&file).take(bytes_max).read_to_string(&mut text).map_err(cannot())?;
                let is_new = text.is_empty();
                if is_new {
                    file.write_all(first.as_bytes()).map_err(cannot())?;
                }
                return Ok((Self { path: path.to_owned(), file, is_new }, text));
            }
        }
    }

    /// Replaces it; when it returns, the bytes are on disk.
    ///
    /// # Errors
    /// If the system refuses; the old file is still there.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let name = self.path.display();
        let replaced = replace(&self.path, bytes);
        self.file = replaced.map_err(Failure::io(format!("can't write {name}")))?;
        self.is_new = false;
        Ok(())
    }

    /// Removes it.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn remove(mut self) -> Result<()> {
        self.is_new = false;
        let name = self.path.display();
        fs::remove_file(&self.path).map_err(Failure::io(format!("can't remove {name}")))
    }
}

/// A run that ends before it has written anything leaves nothing.
impl Drop for Held {
    fn drop(&mut self) {
        if self.is_new {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn same(file: &File, path: &Path) -> bool {
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => place(one) == place(other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("halley-cli-{name}-{}", std::process::id()))
    }

    #[test]
    fn the_new_file_takes_the_place_of_the_old() {
        let path = path("whole");
        for text in ["one", "two"] {
            write(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(write(&path.join("below"), b""), Err(Failure::Io(..))));
    }

    #[test]
    fn a_file_is_one_runs_at_a_time() {
        let path = path("held");
        let take = || Held::take(&path, 100, "first");
        let (mut held, text) = take().unwrap();
        assert_eq!((text.as_str(), fs::read_to_string(&path).unwrap().as_str()), ("", "first"));
        // Before and after it was replaced.
        assert!(matches!(take(), Err(Failure::Usage(_))));
        held.write(b"one").unwrap();
        assert!(matches!(take(), Err(Failure::Usage(_))));
        drop(held);
        let (held, text) = take().unwrap();
        assert_eq!(text, "one");
        held.remove().unwrap();
        assert!(!path.exists());
        drop(take().unwrap());
        assert!(!path.exists(), "nothing was written");
    }
}
