//! Options of sockets.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use halley_sys::TcpProgress;

/// How long written bytes may stay unacknowledged before the kernel gives a connection up: so a
/// client that vanished without a word is found by the next heartbeat. Accepted sockets inherit
/// it. The kernel counts a client that takes nothing as one of these (`conns/write.rs`).
///
/// # Errors
/// What the kernel says.
pub fn set_user_timeout(socket: &impl AsFd, timeout: Duration) -> io::Result<()> {
    socket2::SockRef::from(socket).set_tcp_user_timeout(Some(timeout))
}

/// What the kernel was told last.
pub fn user_timeout(socket: &impl AsFd) -> Option<Duration> {
    socket2::SockRef::from(socket).tcp_user_timeout().ok().flatten()
}

/// How far the client has taken what it was sent, if the kernel says.
pub fn progress(socket: &impl AsFd) -> Option<TcpProgress> {
    halley_sys::tcp_progress(socket.as_fd()).ok()
}
