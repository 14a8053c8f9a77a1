//! The publishing loop: one thread, a few keep-alive connections, one request at a time on each.
//!
//! Invariants: every request that was taken from the schedule ends as exactly one of answered (by
//! status) or broken; a connection has at most one request on its way. Nothing queues here: what is
//! due and finds no free connection stays in the schedule, which is arithmetic.
//!
//! Where a server doesn't answer by itself ([`Protocol::fence`]), all that is due goes out together
//! and more may follow, until [`FENCE_REQUESTS`] are unanswered on the connection: then the fence
//! goes out as well, and its answer is waited for. A last one confirms what is left at the end.
//!
//! Numbered events must not be lost on the way: their request stays with its connection and is sent
//! again, with the same ids, until the server has taken all of its events.
//!
//! The next request's time is waited for by a timer of the kernel in the same epoll: epoll's own
//! timeout knows milliseconds, too coarse for thousands of requests a second.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halley_sys::{Timer, monotonic_ns};
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::connection::Connection;
use super::counts::Counts;
use super::events::Events as Source;
use super::http::ANSWER_BYTES_MAX;
use super::protocol::{Answer, BadAnswer, Protocol, Said};
use super::schedule::Schedule;
use crate::progress::Progress;
use crate::target::Target;

/// The timer's token; connections have their index.
const TIMER: Token = Token(usize::MAX);
/// How late the loop may notice that it shall stop.
const TICK: Duration = Duration::from_millis(100);
/// The same where requests wait to be sent again.
const RESEND_TICK: Duration = Duration::from_millis(10);
/// How long to wait at the end for what was due, and for the last answers.
const DRAIN_NS_MAX: u64 = 5_000_000_000;
/// The same where every event must be taken.
const NUMBERED_DRAIN_NS_MAX: u64 = 60_000_000_000;
/// Before a connection that broke is opened again, and a request that wasn't taken sent again.
const REOPEN_NS: u64 = 100_000_000;
/// Requests on one connection before the server is asked whether it has taken them.
const FENCE_REQUESTS: u64 = 256;
/// What is to be said to a server in between, while it doesn't listen.
const WORDS_BYTES_MAX: usize = 64 * 1024;
/// Room for one read of an answer.
const READ_BYTES: usize = 64 * 1024;

/// One run.
pub struct Publisher {
    target: Target,
    poll: Poll,
    timer: Timer,
    timer_ns: u64,
    protocol: Box<dyn Protocol>,
    source: Source,
    schedule: Schedule,
    connections: Vec<Connection>,
    /// Connections without a request, the one used last on top: its memory is warm.
    free: Vec<usize>,
    buffer: Vec<u8>,
    counts: Counts,
}

impl Publisher {
    /// Opens `connections` connections.
    ///
    /// # Errors
    /// If the system refuses a descriptor.
    pub fn new(
        target: Target,
        connections: usize,
        protocol: Box<dyn Protocol>,
        source: Source,
        schedule: Schedule,
    ) -> io::Result<Self> {
        let (poll, timer) = (Poll::new()?, Timer::new()?);
        let timer_fd = timer.as_raw_fd();
        poll.registry().register(&mut SourceFd(&timer_fd), TIMER, Interest::READABLE)?;
        let mut publisher = Self {
            target,
            poll,
            timer,
            timer_ns: 0,
            protocol,
            source,
            schedule,
            connections: std::iter::repeat_with(Connection::closed).take(connections).collect(),
            free: Vec::with_capacity(connections),
            buffer: vec![0; READ_BYTES],
            counts: Counts::new()?,
        };
        for slot in (0..connections).rev() {
            publisher.open(slot)?;
        }
        Ok(publisher)
    }

    fn open(&mut self, slot: usize) -> io::Result<()> {
        let mut socket = TcpStream::connect(self.target.address)?;
        socket.set_nodelay(true)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut socket, Token(slot), interest)?;
        let connection = &mut self.connections[slot];
        connection.socket = Some(socket);
        connection.answer.clear();
        connection.words.clear();
        connection.words.extend_from_slice(self.protocol.greeting());
        // What was on its way when the last one broke goes out with the first readiness.
        (connection.written, connection.resend_ns) = (0, None);
        if connection.due_ns.is_none() {
            self.free.push(slot);
        }
        Ok(())
    }

    /// Publishes by the schedule until its end or until `stop`, then waits a little for answers.
    /// Numbered events that are on their way at a `stop` are waited for as well.
    ///
    /// # Errors
    /// If epoll or the timer fails; what happens to a request is counted.
    pub fn run(mut self, progress: &Progress, stop: &AtomicBool) -> io::Result<(Counts, Source)> {
        let numbered = self.source.is_numbered();
        let fenced = self.protocol.fence().is_some();
        let drain_ns_max = if numbered { NUMBERED_DRAIN_NS_MAX } else { DRAIN_NS_MAX };
        let tick = if numbered { RESEND_TICK } else { TICK };
        let mut drained_ns = u64::MAX;
        let mut events = Events::with_capacity(256);
        let started_ns = monotonic_ns();
        self.counts.first_due_ns = self.schedule.next_due_ns(started_ns).unwrap_or(started_ns);
        loop {
            let now = monotonic_ns();
            progress.set((now - started_ns) / 1_000_000_000);
            let stopped = stop.load(Ordering::Relaxed);
            if !stopped {
                self.send_due(now);
            }
            if fenced && (stopped || self.schedule.is_over(now)) {
                self.send_last_fences(now);
            }
            let waiting = self.connections.iter().any(|c| c.due_ns.is_some() || !c.is_written());
            let over = (stopped || self.schedule.is_over(now)) && !waiting;
            // From the first look behind the end on: who was held up then waits as long as others.
            if stopped || now >= self.schedule.end_ns() {
                drained_ns = drained_ns.min(now + drain_ns_max);
            }
            if over || now > drained_ns || stopped && !numbered && !fenced {
                break;
            }
            self.set_timer(now)?;
            match self.poll.poll(&mut events, Some(tick)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                if event.token() != TIMER {
                    self.ready(event);
                }
            }
            self.repair();
        }
        self.counts.unsent = if stop.load(Ordering::Relaxed) { 0 } else { self.schedule.left() };
        self.counts.broken += self.connections.iter().map(|c| c.unanswered).sum::<u64>();
        Ok((self.counts, self.source))
    }

    /// Sends what is due, as long as a connection is free.
    fn send_due(&mut self, now_ns: u64) {
        while let Some(&slot) = self.free.last() {
            if !self.source.is_ready() {
                return;
            }
            let Some(due_ns) = self.schedule.take(now_ns) else { return };
            self.free.pop();
            self.connections[slot].clear_request();
            self.push_request(slot, due_ns);
            if self.protocol.fence().is_none() {
                self.connections[slot].due_ns = Some(due_ns);
            } else {
                self.gather(slot, due_ns, now_ns);
            }
            self.send(slot);
        }
    }

    fn push_request(&mut self, slot: usize, due_ns: u64) {
        let Connection { request, about, unanswered, .. } = &mut self.connections[slot];
        self.protocol.push_request(&mut self.source, due_ns, request, about);
        *unanswered += 1;
    }

    /// Puts what else is due behind the first request, and the fence if it is time for one.
    fn gather(&mut self, slot: usize, first_due_ns: u64, now_ns: u64) {
        let mut last_due_ns = first_due_ns;
        while self.connections[slot].unanswered < FENCE_REQUESTS {
            let Some(due_ns) = self.schedule.take(now_ns) else { return };
            self.push_request(slot, due_ns);
            last_due_ns = due_ns;
        }
        self.push_fence(slot, last_due_ns);
    }

    fn push_fence(&mut self, slot: usize, due_ns: u64) {
        let connection = &mut self.connections[slot];
        connection.request.extend_from_slice(self.protocol.fence().unwrap_or_default());
        connection.due_ns = Some(due_ns);
    }

    /// Asks whether what is left without an answer was taken.
    fn send_last_fences(&mut self, now_ns: u64) {
        for slot in 0..self.connections.len() {
            let connection = &self.connections[slot];
            if connection.unanswered > 0 && connection.due_ns.is_none() {
                self.free.retain(|&free| free != slot);
                self.push_fence(slot, now_ns);
                self.send(slot);
            }
        }
    }

    /// Writes the request; the connection is free again if nothing is to be waited for.
    fn send(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        match connection.write() {
            Ok(()) if connection.is_written() && connection.due_ns.is_none() => {
                self.free.push(slot);
            }
            Ok(()) => {}
            Err(error) => self.break_off(slot, &error.to_string()),
        }
    }

    /// Has the timer wake the loop for the next request, if that could be sent then.
    fn set_timer(&mut self, now_ns: u64) -> io::Result<()> {
        if self.free.is_empty() || !self.source.is_ready() {
            return Ok(());
        }
        let next_ns = self.schedule.next_due_ns(now_ns).unwrap_or(self.schedule.end_ns());
        if next_ns == self.timer_ns {
            return Ok(());
        }
        self.timer_ns = next_ns;
        self.timer.set(next_ns)
    }

    fn ready(&mut self, event: &mio::event::Event) {
        let Token(slot) = event.token();
        if event.is_writable() {
            if !self.connections[slot].is_written() {
                self.send(slot);
            } else if let Err(error) = self.connections[slot].write() {
                self.break_off(slot, &error.to_string());
            }
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            if let Err(reason) = self.read(slot, event.is_read_closed()) {
                self.break_off(slot, &reason);
            }
        }
    }

    /// Reads until the socket is empty, which a short read says as well unless the peer has closed.
    /// An error is why the connection is of no more use.
    fn read(&mut self, slot: usize, closed: bool) -> Result<(), String> {
        loop {
            let connection = &mut self.connections[slot];
            let Some(socket) = &mut connection.socket else { return Ok(()) };
            let size = match socket.read(&mut self.buffer) {
                // An idle connection that the server is tired of: nothing was lost.
                Ok(0) if connection.unanswered == 0 => {
                    self.close(slot);
                    return Ok(());
                }
                Ok(0) => return Err("the server closed the connection".to_owned()),
                Ok(size) => size,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            connection.answer.extend_from_slice(&self.buffer[..size]);
            self.listen(slot)?;
            if size < self.buffer.len() && !closed {
                return Ok(());
            }
        }
    }

    /// Takes in all that the server has said.
    fn listen(&mut self, slot: usize) -> Result<(), String> {
        loop {
            let connection = &mut self.connections[slot];
            let bad = |BadAnswer(what)| format!("the server sent {what}");
            let said = self.protocol.read(&connection.answer).map_err(bad)?;
            let Some((said, length)) = said else { break };
            connection.answer.drain(..length);
            match said {
                Said::Nothing => {}
                Said::Prompt(words) => {
                    connection.words.extend_from_slice(words);
                    connection.write().map_err(|error| error.to_string())?;
                }
                Said::Answer(answer) => self.answered(slot, &answer)?,
            }
        }
        let connection = &self.connections[slot];
        if connection.answer.len() > ANSWER_BYTES_MAX || connection.words.len() > WORDS_BYTES_MAX {
            return Err("the server says much and doesn't listen".to_owned());
        }
        Ok(())
    }

    /// Counts the answer and frees the connection for the next request.
    fn answered(&mut self, slot: usize, answer: &Answer) -> Result<(), String> {
        let connection = &mut self.connections[slot];
        let Some(due_ns) = connection.due_ns else {
            return Err("the server sent an answer to no request".to_owned());
        };
        *self.counts.statuses.entry(answer.status).or_default() += connection.unanswered;
        // What is answered before it is all sent can't be followed by anything.
        let close = answer.close || !connection.is_written();
        if self.is_to_be_resent(answer) {
            self.counts.resent += 1;
            self.connections[slot].resend_ns = Some(monotonic_ns() + REOPEN_NS);
        } else {
            self.connections[slot].due_ns = None;
            self.count(slot, due_ns, answer);
        }
        if close {
            self.close(slot);
        } else if self.connections[slot].due_ns.is_none() {
            self.free.push(slot);
        }
        Ok(())
    }

    /// Numbered events that the server couldn't take now, as opposed to those it never will.
    fn is_to_be_resent(&self, answer: &Answer) -> bool {
        let whole = answer.status == 200 && answer.accepted == self.source.batch();
        let never = (400..500).contains(&answer.status) && answer.status != 429;
        self.source.is_numbered() && !whole && !never
    }

    fn count(&mut self, slot: usize, due_ns: u64, answer: &Answer) {
        let (counts, connection) = (&mut self.counts, &mut self.connections[slot]);
        let sent = std::mem::take(&mut connection.unanswered) * self.source.batch();
        let accepted = answer.accepted.min(sent);
        counts.last_answer_ns = monotonic_ns();
        counts.latency.record(counts.last_answer_ns.saturating_sub(due_ns));
        counts.accepted += accepted;
        counts.refused += sent - accepted;
        counts.sessions += answer.sessions;
        self.source.taken(&connection.about);
    }

    /// A connection broke: its request, if any, is lost, or to be sent again.
    fn break_off(&mut self, slot: usize, reason: &str) {
        let connection = &mut self.connections[slot];
        if self.source.is_numbered() {
            self.counts.resent += u64::from(connection.due_ns.is_some() && connection.written > 0);
        } else {
            self.counts.broken += connection.give_up();
        }
        self.counts.first_problem.get_or_insert_with(|| reason.to_owned());
        self.close(slot);
    }

    fn close(&mut self, slot: usize) {
        self.free.retain(|&free| free != slot);
        self.connections[slot].close(monotonic_ns() + REOPEN_NS);
    }

    /// Opens again what was closed a while ago, and sends again what wasn't taken.
    fn repair(&mut self) {
        if self.connections.iter().all(Connection::is_settled) {
            return;
        }
        let now = monotonic_ns();
        for slot in 0..self.connections.len() {
            let connection = &mut self.connections[slot];
            let result = if connection.socket.is_none() && connection.reopen_ns <= now {
                self.open(slot)
            } else if connection.resend_ns.is_some_and(|resend_ns| resend_ns <= now) {
                (connection.written, connection.resend_ns) = (0, None);
                connection.write()
            } else {
                Ok(())
            };
            if let Err(error) = result {
                self.break_off(slot, &error.to_string());
            }
        }
    }
}
