//! One keep-alive connection of the publisher, and what is on its way on it.

use std::io::{self, Write};

use mio::net::TcpStream;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// `None` while it is closed.
    pub socket: Option<TcpStream>,
    /// When the last request that an answer is waited for was due; `None` if there is none.
    pub due_ns: Option<u64>,
    /// What is said in between: a greeting, replies to prompts. Never inside a request.
    pub words: Vec<u8>,
    /// The request, or several behind each other.
    pub request: Vec<u8>,
    /// The numbers of the subjects that it is about.
    pub about: Vec<u64>,
    /// How much of it was written.
    pub written: usize,
    /// Requests that are sent or on their way, and have no answer yet.
    pub unanswered: u64,
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
            words: Vec::new(),
            request: Vec::new(),
            about: Vec::new(),
            written: 0,
            unanswered: 0,
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

    /// Whether all of the request is written.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.written == self.request.len()
    }

    /// Forgets what was sent: the next request begins.
    pub fn clear_request(&mut self) {
        self.request.clear();
        self.about.clear();
        self.written = 0;
    }

    /// Closes it. A request without an answer stays, to be sent again.
    pub fn close(&mut self, reopen_ns: u64) {
        (self.socket, self.reopen_ns) = (None, reopen_ns);
        if self.due_ns.is_none() {
            self.clear_request();
        }
    }

    /// Gives up the requests without an answer, and says how many these are.
    pub fn give_up(&mut self) -> u64 {
        self.due_ns = None;
        self.clear_request();
        std::mem::take(&mut self.unanswered)
    }

    /// Writes what is left; what doesn't fit waits for the socket.
    ///
    /// # Errors
    /// If the connection is of no more use.
    pub fn write(&mut self) -> io::Result<()> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        loop {
            let request = self.request.get(self.written..).unwrap_or_default();
            let between = self.written == 0 || request.is_empty();
            let is_words = between && !self.words.is_empty();
            let bytes = if is_words { &self.words[..] } else { request };
            if bytes.is_empty() {
                return Ok(());
            }
            match socket.write(bytes) {
                Ok(written) if is_words => drop(self.words.drain(..written)),
                Ok(written) => self.written += written,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }
}
