//! A timer that an epoll loop can wait for.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::check;

/// A `timerfd` on `CLOCK_MONOTONIC`: becomes readable at a given nanosecond, where the timeout of
/// `epoll_wait` knows milliseconds only. Non-blocking and close-on-exec.
///
/// With edge-triggered epoll it needn't be read: setting it again re-arms the edge.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that isn't set.
    ///
    /// # Errors
    /// When the table of descriptors is full.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        check(fd)?;
        // SAFETY: `fd` was just opened by the call above, and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sets it to the moment at which [`crate::monotonic_ns`] will be `at_ns`; a moment that is
    /// past makes it readable at once. Replaces an earlier setting.
    ///
    /// # Errors
    /// What `timerfd_settime` reports.
    pub fn set(&self, at_ns: u64) -> io::Result<()> {
        // All zeroes would disarm it.
        let at_ns = at_ns.max(1);
        let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec {
            tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
        };
        let setting = libc::itimerspec { it_interval: once, it_value: value };
        let (fd, flags) = (self.0.as_raw_fd(), libc::TFD_TIMER_ABSTIME);
        // SAFETY: `setting` is live and only read; the old setting isn't asked for.
        check(unsafe { libc::timerfd_settime(fd, flags, &raw const setting, std::ptr::null_mut()) })
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::monotonic_ns;
    use std::fs::File;
    use std::io::{ErrorKind, Read};

    /// How often it has fired, once it has.
    fn fired(file: &mut File) -> u64 {
        let (mut count, late_ns) = ([0u8; 8], monotonic_ns() + 30_000_000_000);
        while let Err(error) = file.read(&mut count) {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            assert!(monotonic_ns() < late_ns, "it never fired");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        u64::from_ne_bytes(count)
    }

    #[test]
    fn it_fires_at_its_time_and_once() {
        let timer = Timer::new().unwrap();
        let mut file = File::from(timer.as_fd().try_clone_to_owned().unwrap());
        let at = monotonic_ns() + 10_000_000;
        timer.set(at).unwrap();
        assert_eq!(fired(&mut file), 1);
        assert!(monotonic_ns() >= at);
        assert!(file.read(&mut [0; 8]).is_err());
        // A moment in the past is now, which is when the kernel's next interrupt comes.
        timer.set(0).unwrap();
        assert_eq!(fired(&mut file), 1);
    }
}
