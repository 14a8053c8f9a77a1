//! The kernel's knowledge of the other end of a TCP connection (`TCP_INFO`, tcp(7)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// As much of `struct tcp_info` as is read. A kernel that knows less of it writes less.
const BYTES: usize = 232;

// Offsets in `struct tcp_info` (`include/uapi/linux/tcp.h`), which only ever grows at its end.
const LAST_ACK_RECV: usize = 56;
const BYTES_ACKED: usize = 120;
const NOTSENT_BYTES: usize = 144;
const SND_WND: usize = 228;

/// How far the peer of a connection has taken what it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpProgress {
    /// Bytes that the peer's kernel has acknowledged since the connection was made.
    pub acked: u64,
    /// Bytes for which the peer had room when it was last heard; 0 before Linux 5.4.
    pub window: u32,
    /// Bytes that were written and not sent yet: for these there was no room.
    pub unsent: u32,
    /// For how long no acknowledgement has come, in milliseconds.
    pub unheard_ms: u32,
}

impl TcpProgress {
    /// Up to which byte the peer's kernel has room. It grows as the peer's program reads, and never
    /// shrinks.
    #[must_use]
    pub fn room_up_to(&self) -> u64 {
        self.acked + u64::from(self.window)
    }
}

/// How far the peer has taken what it was sent.
///
/// # Errors
/// `EBADF`, `ENOTSOCK` or `EOPNOTSUPP` for what is no TCP socket.
pub fn tcp_progress(socket: BorrowedFd<'_>) -> io::Result<TcpProgress> {
    let mut info = [0u8; BYTES];
    let mut size = BYTES as libc::socklen_t;
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: `info` lives as long as the call, and at most `size` bytes of it are written.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, info.as_mut_ptr().cast(), &raw mut size)
    })?;
    Ok(TcpProgress {
        acked: u64::from_ne_bytes(at(&info, BYTES_ACKED)),
        window: u32::from_ne_bytes(at(&info, SND_WND)),
        unsent: u32::from_ne_bytes(at(&info, NOTSENT_BYTES)),
        unheard_ms: u32::from_ne_bytes(at(&info, LAST_ACK_RECV)),
    })
}

fn at<const N: usize>(info: &[u8; BYTES], offset: usize) -> [u8; N] {
    std::array::from_fn(|n| info[offset + n])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::*;

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_peer_that_reads_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let progress = || tcp_progress(socket.as_fd()).unwrap();
        (&socket).write_all(b"hello").unwrap();
        until("what was sent is acknowledged", || progress().acked >= 5);
        assert_eq!(progress().unsent, 0);
        socket.set_nonblocking(true).unwrap();
        let mut written = 5;
        while let Ok(n) = (&socket).write(&[0; 65_536]) {
            written += n;
        }
        until("there is room for no more", || progress().unsent > 0 && progress().window < 65_536);
        let (before, mut buffer) = (progress().room_up_to(), vec![0; written]);
        peer.read_exact(&mut buffer).unwrap();
        until("all was taken", || progress().unsent == 0 && progress().room_up_to() > before);
        socket.flush().unwrap();
    }

    #[test]
    fn what_is_no_socket() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(tcp_progress(file.as_fd()).is_err());
    }
}
