//! The loop: requests that were written before, over a few keep-alive connections, one batch on its
//! way on each. One thread: it makes more requests than a server on two cores refuses.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halley_sys::monotonic_ns;
use memchr::memmem;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::progress::Progress;
use crate::publish::http;
use crate::report::Latency;
use crate::target::Target;

/// How late the loop may notice that it shall stop.
const TICK: Duration = Duration::from_millis(50);
/// Room for one read.
const READ_BYTES: usize = 64 * 1024;
/// Before a connection that was closed is opened again.
const REOPEN_NS: u64 = 10_000_000;
/// Codes that are told apart.
const CODES_MAX: usize = 64;

/// What came of it.
#[derive(Debug)]
pub struct Counts {
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Answers by the code in them.
    pub codes: BTreeMap<String, u64>,
    /// Connections that ended.
    pub closed: u64,
    /// From the sending of a batch to its last answer.
    pub latency: Latency,
    /// For how long.
    pub ns: u64,
    /// Why the first connection ended.
    pub first_problem: Option<String>,
}

/// One connection.
#[derive(Default)]
struct Sender {
    socket: Option<TcpStream>,
    /// The batch, and how much of it is written.
    batch: Vec<u8>,
    written: usize,
    /// Answers that are waited for.
    waiting: u32,
    answer: Vec<u8>,
    sent_ns: u64,
    reopen_ns: u64,
}

/// One run.
pub struct Flood {
    target: Target,
    poll: Poll,
    senders: Vec<Sender>,
    pipeline: u32,
    requests: Vec<Vec<u8>>,
    next: usize,
    buffer: Vec<u8>,
    counts: Counts,
}

impl Flood {
    /// Opens the connections. `requests` are whole, and sent in turn.
    ///
    /// # Errors
    /// If the system refuses a descriptor.
    pub fn new(
        target: Target,
        connections: usize,
        pipeline: u32,
        requests: Vec<Vec<u8>>,
    ) -> io::Result<Self> {
        let counts = Counts {
            statuses: BTreeMap::new(),
            codes: BTreeMap::new(),
            closed: 0,
            latency: Latency::new().map_err(io::Error::other)?,
            ns: 0,
            first_problem: None,
        };
        let mut flood = Self {
            target,
            poll: Poll::new()?,
            senders: std::iter::repeat_with(Sender::default).take(connections).collect(),
            pipeline,
            requests,
            next: 0,
            buffer: vec![0; READ_BYTES],
            counts,
        };
        for slot in 0..connections {
            flood.open(slot)?;
        }
        Ok(flood)
    }

    fn open(&mut self, slot: usize) -> io::Result<()> {
        let mut socket = TcpStream::connect(self.target.address)?;
        socket.set_nodelay(true)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut socket, Token(slot), interest)?;
        self.senders[slot] = Sender { socket: Some(socket), ..Sender::default() };
        self.send(slot);
        Ok(())
    }

    /// Shows tokens until the time is over or `stop`.
    ///
    /// # Errors
    /// If epoll fails or no descriptor is left; what happens to a connection is counted.
    pub fn run(
        mut self,
        time: Duration,
        progress: &Progress,
        stop: &AtomicBool,
    ) -> io::Result<Counts> {
        let mut events = Events::with_capacity(256);
        let started_ns = monotonic_ns();
        let end_ns = started_ns + time.as_nanos() as u64;
        loop {
            let now = monotonic_ns();
            progress.set((now - started_ns) / 1_000_000_000);
            if now >= end_ns || stop.load(Ordering::Relaxed) {
                self.counts.ns = now - started_ns;
                return Ok(self.counts);
            }
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                self.ready(event);
            }
            for slot in 0..self.senders.len() {
                let sender = &self.senders[slot];
                if sender.socket.is_none() && sender.reopen_ns <= now {
                    self.open(slot)?;
                }
            }
        }
    }

    /// Begins the next batch.
    fn send(&mut self, slot: usize) {
        let sender = &mut self.senders[slot];
        sender.batch.clear();
        for _ in 0..self.pipeline {
            sender.batch.extend_from_slice(&self.requests[self.next]);
            self.next = (self.next + 1) % self.requests.len();
        }
        (sender.written, sender.waiting) = (0, self.pipeline);
        sender.sent_ns = monotonic_ns();
        self.write(slot);
    }

    fn write(&mut self, slot: usize) {
        let Sender { socket: Some(socket), batch, written, .. } = &mut self.senders[slot] else {
            return;
        };
        while *written < batch.len() {
            match socket.write(&batch[*written..]) {
                Ok(size) => *written += size,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => return,
                    io::ErrorKind::Interrupted => {}
                    _ => return self.close(slot, &error.to_string()),
                },
            }
        }
    }

    fn ready(&mut self, event: &mio::event::Event) {
        let Token(slot) = event.token();
        if event.is_writable() {
            self.write(slot);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            if let Err(reason) = self.read(slot) {
                self.close(slot, &reason);
            }
        }
    }

    /// Reads until the socket is empty; an error is why the connection is of no more use.
    fn read(&mut self, slot: usize) -> Result<(), String> {
        loop {
            let sender = &mut self.senders[slot];
            let Some(socket) = &mut sender.socket else { return Ok(()) };
            let size = match socket.read(&mut self.buffer) {
                Ok(0) => return Err("the server closed the connection".to_owned()),
                Ok(size) => size,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            sender.answer.extend_from_slice(&self.buffer[..size]);
            self.listen(slot)?;
            if self.senders[slot].waiting == 0 {
                let now = monotonic_ns();
                self.counts.latency.record(now.saturating_sub(self.senders[slot].sent_ns));
                self.send(slot);
            }
        }
    }

    /// Counts the answers that are whole.
    fn listen(&mut self, slot: usize) -> Result<(), String> {
        let sender = &mut self.senders[slot];
        let mut used = 0;
        while let Some(answer) = http::read(&sender.answer[used..])
            .map_err(|bad| format!("the server sent {}", bad.0))?
        {
            used += answer.bytes;
            sender.waiting = sender.waiting.checked_sub(1).ok_or("an answer to no request")?;
            *self.counts.statuses.entry(answer.status).or_default() += 1;
            count_code(&mut self.counts.codes, &answer.body);
            if answer.close {
                return Err(format!("the server closed after {}", answer.status));
            }
        }
        sender.answer.drain(..used);
        if sender.answer.len() > READ_BYTES {
            return Err("an answer that is too long".to_owned());
        }
        Ok(())
    }

    fn close(&mut self, slot: usize, reason: &str) {
        self.counts.closed += 1;
        self.counts.first_problem.get_or_insert_with(|| reason.to_owned());
        let reopen_ns = monotonic_ns() + REOPEN_NS;
        self.senders[slot] = Sender { reopen_ns, ..Sender::default() };
    }
}

/// Counts what an error says (http.md 5.3).
fn count_code(codes: &mut BTreeMap<String, u64>, body: &[u8]) {
    const NAME: &[u8] = b"\"code\":\"";
    let Some(at) = memmem::find(body, NAME) else { return };
    let rest = &body[at + NAME.len()..];
    let end = rest.iter().position(|byte| *byte == b'"').unwrap_or(rest.len());
    let Ok(code) = std::str::from_utf8(&rest[..end]) else { return };
    if let Some(count) = codes.get_mut(code) {
        *count += 1;
    } else if codes.len() < CODES_MAX {
        codes.insert(code.to_owned(), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_counted() {
        let mut codes = BTreeMap::new();
        for body in [
            r#"{"error":{"code":"token_signature","message":"x"}}"#,
            r#"{"error":{"code":"token_signature","message":"y"}}"#,
            r#"{"error":{"code":"token_expired"#,
            "",
            "no code",
        ] {
            count_code(&mut codes, body.as_bytes());
        }
        let expected = [("token_expired".to_owned(), 1), ("token_signature".to_owned(), 2)];
        assert_eq!(codes, BTreeMap::from(expected));
    }
}
