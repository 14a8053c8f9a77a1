//! One keep-alive connection of the publisher and the request on its way.

use std::io::{self, Write};

use mio::net::TcpStream;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// `None` while it is closed.
    pub socket: Option<TcpStream>,
    /// When the request on its way was due; `None` if there is none.
    pub due_ns: Option<u64>,
    /// The request.
    pub request: Vec<u8>,
    /// The numbers of the subjects that it is about.
    pub about: Vec<u64>,
    /// How much of it was written.
    pub written: usize,
    /// What came of the answer.
    pub answer: Vec<u8>,
    /// When a closed one is to be opened again.
    pub reopen_ns: u64,
    /// When the request is to be sent again, if it is.
    pub resend_ns: Option<u64>,
}

impl Connection {
    /// One that isn't open.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            socket: None,
            due_ns: None,
            request: Vec::new(),
            about: Vec::new(),
            written: 0,
            answer: Vec::new(),
            reopen_ns: 0,
            resend_ns: None,
        }
    }

    /// Whether there is nothing to be done for it when time passes.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.socket.is_some() && self.resend_ns.is_none()
    }

    /// Writes what is left of the request; what doesn't fit waits for the socket.
    ///
    /// # Errors
    /// If the connection is of no more use.
    pub fn write(&mut self) -> io::Result<()> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        while self.due_ns.is_some() && self.written < self.request.len() {
            match socket.write(&self.request[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }
}
