//! Halley's calls of Linux beyond the standard library.
//!
//! Purpose: the one crate of the workspace where `unsafe` is allowed. Every function wraps one
//! system call (or reads one file of `/proc`) with a safe signature, and every `unsafe` block says
//! why it is sound.
//!
//! Two scopes matter. Functions that speak of *the calling thread* ([`own_fd_table`],
//! [`batch_scheduling`], [`thread_cpu_ns`]) change or read that thread alone; the others concern
//! the whole process, or another process named by its pid.
//!
//! It is not an abstraction over operating systems. Halley's native programs are for Linux.

#![allow(unsafe_code)]

mod allocator;
mod memory;
mod privileges;
mod process;
mod tcp;
mod timer;

pub use allocator::allocator_settings;
pub use memory::{Memory, MemoryFiles};
pub use privileges::{
    CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_NET_BIND_SERVICE, CAP_SETGID, CAP_SETUID, User,
    is_root, keep_capabilities,
};
pub use process::{cpu_ns, pss_bytes};
pub use tcp::{TcpProgress, tcp_progress};
pub use timer::Timer;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Turns the C convention "-1 and errno" into a `Result`.
fn check(returned: libc::c_int) -> io::Result<()> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives the calling thread a descriptor table of its own, and with it a limit of its own.
///
/// `RLIMIT_NOFILE` bounds a *table*, not a process: threads that each call this hold that many
/// descriptors each (design.md, "The path of one event").
///
/// The new table starts as a copy. What was open before stays open in both, so a socket that
/// another thread closes is still held here: call this first in a new thread, before the threads
/// around it have opened much. What is opened afterwards is meaningless to other threads: a
/// descriptor (or a value that owns one) must not be sent to or taken from a thread with another
/// table, except those opened before the call.
///
/// # Errors
/// `ENOMEM`, or `EPERM`/`ENOSYS` where a sandbox forbids `unshare`.
pub fn own_fd_table() -> io::Result<()> {
    // SAFETY: no pointers. CLONE_FILES only copies the table: every descriptor that was valid for
    // this thread stays valid under the same number, so owners of descriptors notice nothing.
    check(unsafe { libc::unshare(libc::CLONE_FILES) })
}

/// Raises the soft limit of descriptors to the hard one and returns it: how many descriptors one
/// table may hold.
///
/// # Errors
/// What `getrlimit` and `setrlimit` report.
pub fn descriptors_max() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live, writable rlimit for the length of the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is a live, initialised rlimit that the call only reads.
        check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    }
    Ok(limit.rlim_cur)
}

/// Schedules the calling thread (and threads it starts from now on) as `SCHED_BATCH`: it is woken
/// without pre-empting who runs, so on a busy machine work gathers and is done in larger pieces.
///
/// # Errors
/// `EPERM` where a sandbox forbids it. Nothing depends on it but speed.
pub fn batch_scheduling() -> io::Result<()> {
    // SAFETY: sched_param is plain integers, for which all zeroes is a valid value; SCHED_BATCH
    // asks for priority 0.
    let param: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: `param` is live and only read; pid 0 names the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const param) })
}

/// Makes the calling process the leader of a session of its own (`setsid`), so that it outlives
/// the terminal and the process group that started it.
///
/// # Errors
/// `EPERM` if the process leads a process group already.
pub fn new_session() -> io::Result<()> {
    // SAFETY: takes and touches no memory.
    check(unsafe { libc::setsid() })
}

/// Lets a later `bind` to an address with port 0 leave the choice of the port to `connect`
/// (`IP_BIND_ADDRESS_NO_PORT`). Otherwise the port is taken for all destinations at once.
///
/// # Errors
/// `EBADF`, `ENOTSOCK` or `ENOPROTOOPT` for what isn't an Internet socket.
pub fn bind_address_no_port(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    let size = size_of_val(&on) as libc::socklen_t;
    let (level, name) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
    // SAFETY: `on` is live for the length of the call and `size` is its size.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), size)
    })
}

/// `CLOCK_MONOTONIC` in nanoseconds. Unlike `std::time::Instant` the number means the same in
/// every process of the machine, so one process can stamp what another measures.
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// CPU time that the calling thread has used, in nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// Reads one clock. Fails with `EINVAL` for a clock that doesn't exist (a process that is gone);
/// the fixed clocks above always exist.
fn clock_ns(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, writable timespec for the length of the call.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_limit_is_the_hard_one_afterwards() {
        let limit = descriptors_max().unwrap();
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[3..5], [limit.to_string(), limit.to_string()]);
    }

    #[test]
    fn a_table_of_its_own_hides_what_is_opened_in_it() {
        let opened = std::thread::spawn(|| {
            own_fd_table().unwrap();
            let files: Vec<File> = (0..64).map(|_| File::open("/dev/null").unwrap()).collect();
            let highest = files.iter().map(AsRawFd::as_raw_fd).max().unwrap();
            // The thread's own view of its table has it, the process's (the main thread's) not.
            let own = format!("/proc/thread-self/fd/{highest}");
            let main = format!("/proc/self/fd/{highest}");
            (std::fs::read_link(own).is_ok(), std::fs::read_link(main).is_ok())
        });
        assert_eq!(opened.join().unwrap(), (true, false));
    }

    #[test]
    fn batch_scheduling_is_the_threads_own() {
        fn policy() -> libc::c_int {
            // SAFETY: no pointers; 0 is the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        }
        let inside = std::thread::spawn(|| batch_scheduling().map(|()| policy()));
        assert_eq!(inside.join().unwrap().unwrap(), libc::SCHED_BATCH);
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

    #[test]
    fn a_port_can_be_chosen_late() {
        use std::os::fd::{AsFd, FromRawFd, OwnedFd};
        // SAFETY: takes no pointers; the descriptor is checked before it is owned.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
        assert!(fd >= 0);
        // SAFETY: just opened, and nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        bind_address_no_port(socket.as_fd()).unwrap();
        let file = File::open("/dev/null").unwrap();
        assert!(bind_address_no_port(file.as_fd()).is_err());
    }

    #[test]
    fn clocks_advance_and_agree_with_the_standard_library() {
        // What is asked in between can't have taken longer, nor less than what it is around.
        let outer = std::time::Instant::now();
        let before = monotonic_ns();
        let inner = std::time::Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let inner = inner.elapsed().as_nanos();
        let ours = u128::from(monotonic_ns() - before);
        assert!(inner <= ours && ours <= outer.elapsed().as_nanos());
    }
}
