//! Sockets to a server on this machine, from as many addresses as their ports need.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};

/// Connections from one local address to one server. Linux looks for a free port among those of
/// one parity first, some 14,000 by default, and all over again for each connect once they are
/// taken: beyond that a connect costs a millisecond of CPU.
pub const SOURCE_CONNECTIONS_MAX: u64 = 12_000;

/// `EINPROGRESS`: a non-blocking connect has begun.
const IN_PROGRESS: i32 = 115;

/// The loopback address with this number: 127.0.0.1, 127.0.0.2, …
#[must_use]
pub fn loopback(number: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(0x7f00_0001 + number), 0))
}

/// Begins a non-blocking connect to `address`, from `source` if there is one.
///
/// # Errors
/// What the system says at once; a refusal may also come later, on the socket.
pub fn connect(address: SocketAddr, source: Option<SocketAddr>) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    if let Some(source) = source {
        halley_sys::bind_address_no_port(socket.as_fd())?;
        socket.bind(&source.into())?;
    }
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(IN_PROGRESS) => Err(error),
        _ => Ok(socket),
    }
}
