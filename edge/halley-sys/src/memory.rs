//! How much memory is left: on the machine, and in the control groups that the process is in.
//!
//! The memory that is left of the machine is `MemAvailable` of `/proc/meminfo` (proc_meminfo(5)). A
//! control group (version 2) leaves `memory.max` less `memory.current`, and the pages of files that
//! it would give up first, `inactive_file` of `memory.stat`. The least of all of them counts, by
//! its share of the whole.
//!
//! The files are opened once, as a sandbox may forbid it later; reading them again tells what is
//! now. Groups without the files are as if they weren't there, version 1 among them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Longest of the files that are read; `memory.stat` has about 1,500 bytes.
const BYTES_MAX: usize = 16_384;

/// What is left, of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that can be had without swapping.
    pub available: u64,
    /// Bytes that there are.
    pub total: u64,
}

impl Memory {
    /// The part that is left, rounded down.
    #[must_use]
    pub fn percent(self) -> u64 {
        let percent = u128::from(self.available) * 100 / u128::from(self.total.max(1));
        percent.min(100) as u64
    }
}

/// A control group's files.
struct Group {
    max: File,
    current: File,
    stat: File,
}

/// See the module.
pub struct MemoryFiles {
    machine: File,
    groups: Vec<Group>,
}

impl MemoryFiles {
    /// Opens the files of this machine and process.
    ///
    /// # Errors
    /// What the kernel says to `/proc/meminfo`.
    pub fn open() -> io::Result<MemoryFiles> {
        MemoryFiles::open_in(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
    }

    fn open_in(proc: &Path, groups: &Path) -> io::Result<MemoryFiles> {
        let machine = File::open(proc.join("meminfo"))?;
        let own = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
        let path = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        // A group's parents bound it as well. `..` is a group outside of what can be seen here.
        let path = if path.split('/').any(|part| part == "..") { "" } else { path };
        let all = Path::new(path).ancestors().filter_map(|group| {
            let open = |name| File::open(groups.join(group).join(name)).ok();
            let (max, current) = (open("memory.max")?, open("memory.current")?);
            Some(Group { max, current, stat: open("memory.stat")? })
        });
        Ok(MemoryFiles { groups: all.collect(), machine })
    }

    /// What is left now.
    ///
    /// # Errors
    /// What the kernel says, or that a file of the machine isn't as it should be.
    pub fn read(&self) -> io::Result<Memory> {
        let text = text(&self.machine)?;
        let kibibytes = |name| field(&text, name).and_then(|n| n.checked_mul(1_024));
        let (Some(available), Some(total)) = (kibibytes("MemAvailable:"), kibibytes("MemTotal:"))
        else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no MemAvailable:"));
        };
        let machine = Memory { available, total };
        let groups = self.groups.iter().filter_map(|group| group.read(total));
        Ok(groups
            .fold(machine, |least, next| if share(next) < share(least) { next } else { least }))
    }
}

impl Group {
    /// `None` without a bound below the machine's.
    fn read(&self, machine: u64) -> Option<Memory> {
        let number = |file| text(file).ok()?.trim().parse::<u64>().ok();
        let total = number(&self.max).filter(|max| *max < machine)?;
        let files = text(&self.stat).ok().and_then(|text| field(&text, "inactive_file"));
        let used = number(&self.current)?.saturating_sub(files.unwrap_or_default());
        Some(Memory { available: total.saturating_sub(used), total })
    }
}

/// For comparing: parts in 2^64.
fn share(memory: Memory) -> u128 {
    (u128::from(memory.available) << 64) / u128::from(memory.total.max(1))
}

fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; BYTES_MAX];
    let mut length = 0;
    loop {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            n => length += n,
        }
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().map(str::split_whitespace);
    words.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::fs::{create_dir_all, write};
    use std::path::PathBuf;

    fn place(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("halley-memory-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        create_dir_all(dir.join("self")).unwrap();
        write(dir.join("meminfo"), "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   400 kB\n")
            .unwrap();
        dir
    }

    fn group(dir: &Path, max: &str, current: &str, inactive: &str) {
        create_dir_all(dir).unwrap();
        write(dir.join("memory.max"), max).unwrap();
        write(dir.join("memory.current"), current).unwrap();
        write(dir.join("memory.stat"), format!("anon 7\ninactive_file {inactive}\n")).unwrap();
    }

    #[test]
    fn this_machine() {
        let memory = MemoryFiles::open().unwrap().read().unwrap();
        assert!(memory.available > 0 && memory.available <= memory.total);
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        assert!(memory.total <= field(&text, "MemTotal:").unwrap() * 1_024);
    }

    #[test]
    fn the_machine_alone() {
        let dir = place("alone");
        let files = MemoryFiles::open_in(&dir, &dir.join("none")).unwrap();
        let memory = files.read().unwrap();
        assert_eq!(memory, Memory { available: 409_600, total: 1_024_000 });
        assert_eq!(memory.percent(), 40);
        // The same file tells what is now.
        write(dir.join("meminfo"), "MemTotal: 1000 kB\nMemAvailable: 20 kB\n").unwrap();
        assert_eq!(files.read().unwrap().percent(), 2);
        write(dir.join("meminfo"), "MemTotal: many kB\n").unwrap();
        assert!(files.read().is_err());
        let _ = std::fs::remove_dir_all(dir);
    }

    #[test]
    fn the_tightest_group_counts() {
        let dir = place("groups");
        let groups = dir.join("groups");
        write(dir.join("self/cgroup"), "1:name=x:/y\n0::/a/b\n").unwrap();
        group(&groups, "max", "5", "0");
        group(&groups.join("a"), "100000", "95000", "15000");
        group(&groups.join("a/b"), "max", "0", "0");
        let files = MemoryFiles::open_in(&dir, &groups).unwrap();
        assert_eq!(files.read().unwrap(), Memory { available: 20_000, total: 100_000 });
        // A bound beyond the machine is none; one that is passed leaves nothing.
        write(groups.join("a/memory.max"), "99999999").unwrap();
        assert_eq!(files.read().unwrap().percent(), 40);
        write(groups.join("a/b/memory.max"), "1000").unwrap();
        write(groups.join("a/b/memory.current"), "2000").unwrap();
        assert_eq!(files.read().unwrap(), Memory { available: 0, total: 1_000 });
        let _ = std::fs::remove_dir_all(dir);
    }
}
