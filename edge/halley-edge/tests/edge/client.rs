//! A client that writes and reads bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustls::{ClientConnection, Stream};

use crate::brain::{Brain, Edge, WAIT};

pub struct Client {
    pub socket: TcpStream,
    /// What it speaks TLS with, if it does; `tls.rs` gives it.
    pub tls: Option<Box<ClientConnection>>,
    read: Vec<u8>,
}

/// An answer as it came.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Response {
    /// A header's value; the name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

pub fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

impl Client {
    pub fn to(address: SocketAddr) -> Client {
        Client::of(TcpStream::connect_timeout(&address, WAIT).unwrap())
    }

    pub fn of(socket: TcpStream) -> Client {
        socket.set_read_timeout(Some(WAIT)).unwrap();
        socket.set_write_timeout(Some(WAIT)).unwrap();
        Client { socket, tls: None, read: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        match &mut self.tls {
            None => self.socket.write_all(bytes.as_ref()).unwrap(),
            Some(tls) => {
                Stream::new(&mut **tls, &mut self.socket).write_all(bytes.as_ref()).unwrap()
            }
        }
    }

    /// Goes through with the handshake.
    pub fn shake_hands(&mut self) -> io::Result<()> {
        let tls = self.tls.as_mut().unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut self.socket)?;
        }
        Ok(())
    }

    /// Sends close_notify.
    pub fn say_goodbye(&mut self) {
        let tls = self.tls.as_mut().unwrap();
        tls.send_close_notify();
        tls.write_tls(&mut self.socket).unwrap();
    }

    /// Sends bytes past TLS.
    pub fn send_plain(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Reads a byte that isn't needed.
    pub fn read_byte(&mut self) -> io::Result<()> {
        self.read_once(&mut [0; 1]).map(drop)
    }

    fn read_once(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match &mut self.tls {
                None => self.socket.read(buffer),
                Some(tls) => Stream::new(&mut **tls, &mut self.socket).read(buffer),
            };
            // A test that was stopped reads again.
            if !matches!(&read, Err(e) if e.kind() == ErrorKind::Interrupted) {
                return read;
            }
        }
    }

    /// Sends a request without a body; `lines` are further headers, each with its CR LF.
    pub fn ask(&mut self, method: &str, target: &str, lines: &str) {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{lines}\r\n"));
    }

    /// Reads more; false at the end.
    fn more(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        match self.read_once(&mut buffer) {
            Ok(0) => false,
            Ok(n) => {
                self.read.extend_from_slice(&buffer[..n]);
                true
            }
            Err(e) if e.kind() == ErrorKind::ConnectionReset => false,
            Err(e) => panic!("{e}; read so far: {:?}", String::from_utf8_lossy(&self.read)),
        }
    }

    /// Waits until something is there to be read.
    pub fn peek(&mut self) {
        assert!(!self.read.is_empty() || self.more());
    }

    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        while self.read.len() < n {
            assert!(self.more(), "the end after {:?}", String::from_utf8_lossy(&self.read));
        }
        self.read.drain(..n).collect()
    }

    /// The next bytes are these.
    pub fn expect(&mut self, expected: &str) {
        let bytes = self.bytes(expected.len());
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
    }

    /// The next chunk of a chunked body is this.
    pub fn expect_chunk(&mut self, expected: &str) {
        self.expect(&format!("{:x}\r\n{expected}\r\n", expected.len()));
    }

    /// A head, with its empty line.
    pub fn head(&mut self) -> String {
        loop {
            if let Some(at) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                return String::from_utf8(self.bytes(at + 4)).unwrap();
            }
            assert!(self.more(), "no head in {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    /// An answer with `Content-Length`, or without a body.
    pub fn response(&mut self) -> Response {
        let head = self.head();
        let length = header(&head, "content-length").map_or(0, |n| n.parse().unwrap());
        let body = String::from_utf8(self.bytes(length)).unwrap();
        let status = head[9..12].parse().unwrap();
        Response { status, head, body }
    }

    /// All up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.read)
    }

    /// The connection ends with nothing more in it.
    pub fn expect_end(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest()), "");
    }

    /// Nothing comes for so long.
    pub fn expect_silence(&mut self, ms: u64) {
        assert_eq!(String::from_utf8_lossy(&self.read), "");
        self.socket.set_read_timeout(Some(Duration::from_millis(ms))).unwrap();
        let end = self.read_once(&mut [0; 1]).map_err(|e| e.kind());
        assert_eq!(end, Err(ErrorKind::WouldBlock));
        self.socket.set_read_timeout(Some(WAIT)).unwrap();
    }

    /// Leaves by a reset, as a process that is killed with unread bytes does.
    pub fn reset(self) {
        let socket = socket2::Socket::from(self.socket);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// Asks for a stream and opens its session; the client has read the head, not the welcome.
pub fn stream(edge: &Edge, brain: &mut Brain, target: &str, lines: &str) -> (Client, u64, String) {
    let mut client = edge.public();
    client.ask("GET", target, lines);
    let (conn, ..) = brain.open();
    brain.opened(conn, 1_000);
    let head = client.head();
    (client, conn, head)
}

pub const SSE_WELCOME: &str = ": welcome\nretry: 1\n\n";

/// An SSE stream whose client has read the welcome.
pub fn sse(edge: &Edge, brain: &mut Brain, user: &str) -> (Client, u64) {
    let (mut client, conn, _) = stream(edge, brain, &format!("/v1/stream?user={user}"), "");
    client.expect_chunk(SSE_WELCOME);
    (client, conn)
}

/// What the stream writes for an event.
pub fn sse_event(cursor: &str, event: &str) -> String {
    format!("id: {cursor}\ndata: {event}\n\n")
}
