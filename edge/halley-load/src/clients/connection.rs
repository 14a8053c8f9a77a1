//! One client: a socket, and how far it has come. There may be millions of them in one process, so
//! what one takes is counted in bytes.

use mio::net::TcpStream;

use super::stream::Stream;

/// Before a lost connection is opened again, where the server didn't say.
const RECONNECT_MS: u32 = 500;

/// How far a client has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not open, but will be.
    Idle,
    /// Connect and request are sent.
    Opening,
    /// Welcomed.
    Live,
    /// Not open, and won't be.
    Over,
}

/// One client.
#[derive(Debug)]
pub struct Connection {
    /// There is one in the phases Opening and Live.
    pub socket: Option<TcpStream>,
    /// What it has read.
    pub stream: Stream,
    /// How far it has come.
    pub phase: Phase,
    /// The request is still to be sent: the connect hadn't finished.
    pub unsent: bool,
    /// When the connect began.
    pub opened_ns: u64,
    /// How long the server wants to be left alone after a loss.
    pub retry_ms: u32,
}

impl Connection {
    /// One that was never open.
    #[must_use]
    pub fn idle() -> Self {
        Self {
            socket: None,
            stream: Stream::new(),
            phase: Phase::Idle,
            unsent: false,
            opened_ns: 0,
            retry_ms: RECONNECT_MS,
        }
    }

    /// Leaves, whatever stood in the stream.
    pub fn close(&mut self, phase: Phase) {
        (self.socket, self.stream, self.phase) = (None, Stream::new(), phase);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million idle clients are 40 MB and what their threads take. Debug builds of mio keep more.
    #[test]
    fn a_client_is_forty_bytes() {
        let of_mio = size_of::<Option<TcpStream>>() - size_of::<i32>();
        assert!(size_of::<Connection>() - of_mio.next_multiple_of(8) <= 40);
    }
}
