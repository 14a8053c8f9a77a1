//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel holds for a worker that is busy. `net.core.somaxconn` bounds it too.
const BACKLOG: i32 = 65_535;
/// What the kernel may hold of one connection's output. Small: what doesn't fit waits in the
/// outbox, where it is shared, counted and bounded.
const SEND_BUFFER_BYTES: usize = 262_144;

/// Takes an address for a moment, to find out whether it is free. Workers share a port by
/// `SO_REUSEPORT`, which would share it with a second edge as well: so this is without, unless such
/// an edge is known to be there and to stop (`beside`). It never listens then, as a connection that
/// it was given would be lost.
///
/// # Errors
/// What the kernel says to the address.
pub fn probe(address: SocketAddr, beside: bool) -> io::Result<TcpListener> {
    if !beside {
        return TcpListener::bind(address);
    }
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// One worker's share of an address. Accepted sockets inherit the options.
///
/// # Errors
/// What the kernel says to the address.
pub fn tcp(address: SocketAddr) -> io::Result<mio::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(mio::net::TcpListener::from_std(socket.into()))
}

/// The edge's socket for the brain. A socket file that was left behind is replaced: the probe of
/// the addresses has shown by now that no other edge runs here, or one that this one replaces.
/// Nobody removes it at the end, when it may be another edge's.
///
/// # Errors
/// What the kernel says to the path.
pub fn unix(path: &Path) -> io::Result<mio::net::UnixListener> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => mio::net::UnixListener::bind(path),
    }
}
