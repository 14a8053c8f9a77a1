//! The price of another process: memory from `/proc`, CPU time from its clock.

use std::fs;
use std::io;

use crate::clock_ns;

/// Proportional set size of a process: its resident bytes, with shared pages divided by how many
/// share them.
///
/// # Errors
/// `NotFound` if there is no such process, `PermissionDenied` if it isn't ours,
/// `InvalidData` if the kernel's file has no `Pss:` line.
pub fn pss_bytes(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    parse_pss(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no Pss: line"))
}

/// Finds `Pss:   1234 kB` in the text of a `smaps_rollup`.
fn parse_pss(text: &str) -> Option<u64> {
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let number: u64 = kibibytes.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

/// CPU time that a process (all its threads, user and system, those that ended included) has
/// used, in nanoseconds. Finer than the 10 ms ticks of `/proc/<pid>/stat`.
///
/// # Errors
/// `NotFound` if there is no such process.
pub fn cpu_ns(pid: u32) -> io::Result<u64> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, format!("no process {pid}"));
    let pid = libc::pid_t::try_from(pid).map_err(|_| gone())?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a live, writable clockid_t for the length of the call.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    match error {
        0 => clock_ns(clock).map_err(|_| gone()),
        libc::ESRCH => Err(gone()),
        // Unlike its neighbours this call returns the error instead of setting errno.
        other => Err(io::Error::from_raw_os_error(other)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::io::ErrorKind;

    /// Above the kernel's largest pid (2^22).
    const NOBODY: u32 = 1 << 23;

    #[test]
    fn cpu_time_grows_with_work() {
        let own = std::process::id();
        let before = cpu_ns(own).unwrap();
        let started = crate::thread_cpu_ns();
        while crate::thread_cpu_ns() - started < 5_000_000 {
            std::hint::black_box(0);
        }
        assert!(cpu_ns(own).unwrap() - before >= 5_000_000);
    }

    #[test]
    fn memory_that_is_touched_is_counted() {
        let before = pss_bytes(std::process::id()).unwrap();
        let block = std::hint::black_box(vec![1u8; 32 << 20]);
        let after = pss_bytes(std::process::id()).unwrap();
        assert!(after >= before + (30 << 20), "{before} then {after}");
        drop(block);
    }

    #[test]
    fn a_process_that_is_gone_is_not_found() {
        assert_eq!(cpu_ns(NOBODY).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(cpu_ns(u32::MAX).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(pss_bytes(NOBODY).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn pss_is_read_in_kibibytes() {
        let text = "5500-7ff rw-p [rollup]\nRss: 9 kB\nPss:       12 kB\nPss_Anon: 3 kB\n";
        assert_eq!(parse_pss(text), Some(12 * 1024));
        assert_eq!(parse_pss("Pss_Anon: 3 kB\n"), None);
        assert_eq!(parse_pss("Pss: many kB\n"), None);
    }
}
