//! One thread of clients: its own descriptor table, one epoll loop, up to some 18,000 streams.
//!
//! Protocol: every connection goes Idle → Opening (connect and request sent) → Live (welcomed) and
//! ends as Over, or as Idle again where reconnecting is asked for. All reads go through one buffer
//! of the thread; an event costs no allocation.
//!
//! Bounds: at most `opening_max` connections between connect and welcome; one that takes longer
//! than [`OPENING_NS_MAX`] has failed.
//!
//! Readiness is edge-triggered, so a read that fills its room is followed by another; a shorter one
//! has emptied the socket (epoll(7)), unless the peer has closed as well.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halley_sys::monotonic_ns;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::request;
use super::stream::{Decoder, Item, Stream, StreamError, Transport};
use super::users::Users;
use super::window::{Window, lock};
use crate::local;
use crate::target::Target;

/// The thread's read buffer: more than the largest event that a server sends by default.
const BUFFER_BYTES: usize = 256 * 1024;
/// Events taken from epoll at once.
const EVENTS_MAX: usize = 1024;
/// From connect to welcome.
const OPENING_NS_MAX: u64 = 30_000_000_000;
/// Before a lost connection is opened again.
const RECONNECT_NS: u64 = 500_000_000;
/// How late the thread may notice that it shall stop.
const TICK: Duration = Duration::from_millis(100);

/// What all threads share.
#[derive(Debug)]
pub struct Plan {
    /// The server.
    pub target: Target,
    /// How events are framed.
    pub transport: Transport,
    /// Who connects.
    pub users: Users,
    /// Local addresses to connect from; 1 leaves the choice to the system.
    pub sources: u32,
    /// How many threads there are.
    pub threads: usize,
    /// Connections per second and thread; 0 for as many as the server takes.
    pub opens_per_s: f64,
    /// Connections between connect and welcome, per thread.
    pub opening_max: usize,
    /// Whether lost and failed connections are opened again.
    pub reconnect: bool,
    /// Whether the threads are scheduled as `SCHED_BATCH`.
    pub batch: bool,
    /// Set when all shall stop.
    pub stop: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Opening,
    Live,
    Over,
}

#[derive(Debug)]
struct Connection {
    socket: Option<TcpStream>,
    stream: Stream,
    phase: Phase,
    /// The request is still to be sent: the connect hadn't finished.
    unsent: bool,
    opened_ns: u64,
}

/// One thread's loop.
pub struct Worker {
    plan: Arc<Plan>,
    /// Which thread this is; its connections are those whose index is this modulo the threads.
    thread: usize,
    window: Arc<Mutex<Window>>,
    poll: Poll,
    decoder: Decoder,
    buffer: Vec<u8>,
    request: Vec<u8>,
    connections: Vec<Connection>,
    /// The next connection that was never opened.
    next: usize,
    started_ns: u64,
    /// Slots to open again, and when.
    again: VecDeque<(u64, usize)>,
    /// Slots in the order of their connects, those that are Live by now included.
    opening: VecDeque<(u64, usize)>,
    opening_count: usize,
}

impl Worker {
    /// Takes the calling thread's descriptor table for itself and makes `connections` idle ones.
    ///
    /// # Errors
    /// If the system refuses the table or the epoll instance.
    pub fn new(
        plan: Arc<Plan>,
        thread: usize,
        connections: usize,
        window: Arc<Mutex<Window>>,
    ) -> io::Result<Self> {
        halley_sys::own_fd_table()?;
        if plan.batch {
            halley_sys::batch_scheduling()?;
        }
        let idle = || Connection {
            socket: None,
            stream: Stream::new(),
            phase: Phase::Idle,
            unsent: false,
            opened_ns: 0,
        };
        Ok(Self {
            decoder: Decoder::new(plan.transport, BUFFER_BYTES),
            plan,
            thread,
            window,
            poll: Poll::new()?,
            buffer: vec![0; BUFFER_BYTES],
            request: Vec::new(),
            connections: std::iter::repeat_with(idle).take(connections).collect(),
            next: 0,
            started_ns: monotonic_ns(),
            again: VecDeque::new(),
            opening: VecDeque::new(),
            opening_count: 0,
        })
    }

    /// Runs until the plan says stop.
    ///
    /// # Errors
    /// If epoll itself fails; what happens to a connection is counted, not returned.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let window = Arc::clone(&self.window);
        while !self.plan.stop.load(Ordering::Relaxed) {
            let wait = self.open_due(&mut lock(&window));
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let window = &mut lock(&window);
            for event in &events {
                self.ready(event, window);
            }
            self.expire(window);
        }
        Ok(())
    }

    /// Opens what is due and fits in; returns how long to wait for what isn't due yet.
    fn open_due(&mut self, window: &mut Window) -> Duration {
        let now = monotonic_ns();
        while self.opening_count < self.plan.opening_max {
            if let Some(&(due, slot)) = self.again.front() {
                if due <= now {
                    self.again.pop_front();
                    self.open(slot, window);
                    continue;
                }
            }
            if self.next == self.connections.len() {
                break;
            }
            if self.plan.opens_per_s > 0.0 {
                let due = self.started_ns + (self.next as f64 * 1e9 / self.plan.opens_per_s) as u64;
                if due > now {
                    return TICK.min(Duration::from_nanos(due - now));
                }
            }
            self.next += 1;
            self.open(self.next - 1, window);
        }
        TICK
    }

    fn open(&mut self, slot: usize, window: &mut Window) {
        let now = monotonic_ns();
        if window.counts.first_connect_ns == 0 {
            window.counts.first_connect_ns = now;
        }
        let index = self.thread as u64 + slot as u64 * self.plan.threads as u64;
        let connection = &mut self.connections[slot];
        connection.stream = Stream::new();
        connection.opened_ns = now;
        connection.phase = Phase::Opening;
        connection.unsent = true;
        self.opening.push_back((now, slot));
        self.opening_count += 1;
        match self.connect(slot, index) {
            Ok(()) => {}
            Err(error) => self.end(slot, window, || describe(&error)),
        }
    }

    /// Begins the connect and, where it is done at once as on loopback, sends the request.
    fn connect(&mut self, slot: usize, index: u64) -> io::Result<()> {
        let (address, sources) = (self.plan.target.address, u64::from(self.plan.sources));
        let source = (sources > 1).then(|| local::loopback((index % sources) as u32));
        let mut socket = TcpStream::from_std(local::connect(address, source)?.into());
        self.write_request(index);
        let mut interest = Interest::READABLE;
        match socket.write(&self.request) {
            Ok(written) if written == self.request.len() => self.connections[slot].unsent = false,
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if not_yet(&error) => interest |= Interest::WRITABLE,
            Err(error) => return Err(error),
        }
        self.poll.registry().register(&mut socket, Token(slot), interest)?;
        self.connections[slot].socket = Some(socket);
        Ok(())
    }

    fn write_request(&mut self, index: u64) {
        let (plan, request) = (&self.plan, &mut self.request);
        plan.users.with(index, |user| {
            request::write(plan.transport, &plan.target.host, user, request);
        });
    }

    /// Something happened to one socket.
    fn ready(&mut self, event: &mio::event::Event, window: &mut Window) {
        let Token(slot) = event.token();
        if self.connections[slot].unsent && (event.is_writable() || event.is_error()) {
            if let Err(error) = self.send_request(slot) {
                self.end(slot, window, || describe(&error));
                return;
            }
        }
        while event.is_readable() || event.is_read_closed() {
            match self.read(slot, window, event.is_read_closed()) {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => {
                    self.end(slot, window, || reason);
                    break;
                }
            }
        }
    }

    fn send_request(&mut self, slot: usize) -> io::Result<()> {
        let index = self.thread as u64 + slot as u64 * self.plan.threads as u64;
        self.write_request(index);
        let connection = &mut self.connections[slot];
        let Some(socket) = &mut connection.socket else { return Ok(()) };
        match socket.write(&self.request) {
            Ok(written) if written == self.request.len() => connection.unsent = false,
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if not_yet(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.poll.registry().reregister(socket, Token(slot), Interest::READABLE)
    }

    /// Reads once. Says whether there may be more; an error is why the stream is over.
    fn read(&mut self, slot: usize, window: &mut Window, closed: bool) -> Result<bool, String> {
        let connection = &mut self.connections[slot];
        let Some(socket) = &mut connection.socket else { return Ok(false) };
        let held = connection.stream.lend(&mut self.buffer).map_err(|e| explain(e, window))?;
        let room = &mut self.buffer[held..];
        let (size, more) = match socket.read(room) {
            Ok(0) => return Err("the server closed the connection".to_owned()),
            Ok(size) => (size, closed || size == room.len()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (0, false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (0, true),
            Err(error) => return Err(describe(&error)),
        };
        let now = monotonic_ns();
        window.counts.bytes += size as u64;
        let (phase, opened_ns) = (&mut connection.phase, connection.opened_ns);
        let opening_count = &mut self.opening_count;
        let mut sink = |item: Item<'_>| match item {
            Item::Event(stamp) => window.event(stamp, now),
            Item::Welcome => {
                *phase = Phase::Live;
                *opening_count -= 1;
                window.welcomed(opened_ns, now);
            }
            Item::Ping(payload) => {
                // A socket too full for eleven bytes shows soon enough as a lost stream.
                let _ = socket.write(&request::pong(payload));
            }
        };
        let bytes = &self.buffer[..held + size];
        let end = self.decoder.feed(&mut connection.stream, bytes, &mut sink);
        end.map(|()| more).map_err(|error| explain(error, window))
    }

    /// A connection is over: counts why, and closes it.
    fn end(&mut self, slot: usize, window: &mut Window, reason: impl FnOnce() -> String) {
        let connection = &mut self.connections[slot];
        match connection.phase {
            Phase::Idle | Phase::Over => return,
            Phase::Opening => {
                self.opening_count -= 1;
                window.counts.failed += 1;
            }
            Phase::Live => {
                window.connected -= 1;
                window.counts.lost += 1;
            }
        }
        window.counts.problem(reason);
        connection.socket = None;
        connection.stream = Stream::new();
        if self.plan.reconnect {
            connection.phase = Phase::Idle;
            self.again.push_back((monotonic_ns() + RECONNECT_NS, slot));
        } else {
            connection.phase = Phase::Over;
            window.given_up += 1;
        }
    }

    /// Gives up connections whose welcome takes too long.
    fn expire(&mut self, window: &mut Window) {
        let now = monotonic_ns();
        while let Some(&(opened_ns, slot)) = self.opening.front() {
            let connection = &self.connections[slot];
            if connection.phase == Phase::Opening && connection.opened_ns == opened_ns {
                if now - opened_ns < OPENING_NS_MAX {
                    break;
                }
                self.end(slot, window, || "no welcome within 30 s".to_owned());
            }
            self.opening.pop_front();
        }
    }
}

fn not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected)
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            format!("{error}: no local port is free, raise --sources")
        }
        _ => error.to_string(),
    }
}

/// Says why a stream is over, and counts a refusal by its status.
fn explain(error: StreamError, window: &mut Window) -> String {
    match error {
        StreamError::Refused(status) => {
            *window.counts.refused.entry(status).or_default() += 1;
            format!("the server answered {status}")
        }
        StreamError::Ended => "the server ended the stream".to_owned(),
        StreamError::Malformed(what) => format!("the server sent {what}"),
    }
}
