//! One thread of clients: its own descriptor table, one epoll loop, up to some 18,000 streams.
//!
//! Protocol: every connection goes Idle → Opening (connect and request sent) → Live (welcomed) and
//! ends as Over, or as Idle again where reconnecting is requested: after the server's time
//! (`retry:`, `Retry-After`), as a browser does. By order ([`super::order`]) all become Idle at
//! once, and are opened again. All reads go through one buffer of the thread; an event costs no
//! allocation.
//!
//! Bounds: at most `opening_max` connections between connect and welcome; one that takes longer
//! than [`OPENING_NS_MAX`] has failed.
//!
//! Readiness is edge-triggered, so a read that fills its room is followed by another; a shorter one
//! has emptied the socket (epoll(7)), unless the peer has closed as well.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use halley_sys::monotonic_ns;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::connection::{Connection, Phase};
use super::framing::{PONG, push_frame};
use super::order::Order;
use super::plan::Plan;
use super::reason::{describe, explain, not_yet};
use super::stream::{Item, Stream, feed};
use super::track::Tracker;
use super::window::{Window, lock};
use crate::local;
use crate::wire::Sealed;

/// The thread's read buffer: more than the largest event that a server sends by default.
const BUFFER_BYTES: usize = 256 * 1024;
/// Events taken from epoll at once.
const EVENTS_MAX: usize = 1024;
/// From connect to welcome.
const OPENING_NS_MAX: u64 = 30_000_000_000;
/// For how long a thread opens nothing after a connection was refused.
const REFUSED_NS: u64 = 100_000_000;
/// How late the thread may notice that it shall stop, or has an order.
const TICK: Duration = Duration::from_millis(100);
/// The same where orders are to be timed.
const TRACKING_TICK: Duration = Duration::from_millis(5);

/// One thread's loop.
pub struct Worker {
    plan: Arc<Plan>,
    /// Which thread this is; its connections are those whose index is this modulo the threads.
    thread: usize,
    window: Arc<Mutex<Window>>,
    orders: Receiver<Order>,
    /// Where cursors or numbers are of interest.
    tracker: Option<Tracker>,
    poll: Poll,
    buffer: Vec<u8>,
    /// What is said next: a request, or the reply to a prompt.
    words: Vec<u8>,
    connections: Vec<Connection>,
    sealed: Sealed,
    /// The next connection that was never opened, or not since the last return.
    next: usize,
    /// Since when connections are opened, and how many in a second; 0 for no limit.
    started_ns: u64,
    opens_per_s: f64,
    /// Slots to open again, and when.
    again: BinaryHeap<Reverse<(u64, usize)>>,
    /// Slots in the order of their connects, those that are Live by now included.
    opening: VecDeque<(u64, usize)>,
    opening_count: usize,
    /// Until when nothing is opened.
    refused_until_ns: u64,
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
        orders: Receiver<Order>,
    ) -> io::Result<Self> {
        halley_sys::own_fd_table()?;
        if plan.batch {
            halley_sys::batch_scheduling()?;
        }
        let indices = (0..connections).map(|slot| thread + slot * plan.threads);
        let follows = plan.follows.clone().unwrap_or_default();
        Ok(Self {
            tracker: plan.cursors.then(|| Tracker::new(follows, indices)),
            opens_per_s: plan.opens_per_s,
            plan,
            thread,
            window,
            orders,
            poll: Poll::new()?,
            buffer: vec![0; BUFFER_BYTES],
            words: Vec::new(),
            connections: std::iter::repeat_with(Connection::idle).take(connections).collect(),
            sealed: Sealed::default(),
            next: 0,
            started_ns: monotonic_ns(),
            again: BinaryHeap::new(),
            opening: VecDeque::new(),
            opening_count: 0,
            refused_until_ns: 0,
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
            if let Ok(order) = self.orders.try_recv() {
                self.obey(order, &mut lock(&window));
            }
            let wait = self.open_due(&mut lock(&window));
            if self.opening_count == 0 && !events.is_empty() {
                thread::sleep(self.plan.pause);
            }
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let window = &mut lock(&window);
            for event in &events {
                self.ready(event, window);
            }
            self.expire(window);
            if let Some(tracker) = &mut self.tracker {
                window.counts.found.merge(&std::mem::take(&mut tracker.found));
                window.standing = tracker.standing;
            }
        }
        Ok(())
    }

    fn obey(&mut self, order: Order, window: &mut Window) {
        match order {
            Order::Drop => self.leave(window),
            Order::Return { with_cursors, opens_per_s } => {
                if let Some(tracker) = self.tracker.as_mut().filter(|_| !with_cursors) {
                    (0..self.connections.len()).for_each(|slot| tracker.forget(slot));
                }
                self.leave(window);
                (self.next, self.opens_per_s) = (0, opens_per_s);
                self.started_ns = monotonic_ns();
            }
            Order::Expect(numbers) => {
                self.tracker.iter_mut().for_each(|tracker| tracker.owe(Arc::clone(&numbers)));
            }
            Order::Flow(since) => self.tracker.iter_mut().for_each(|tracker| tracker.flow(since)),
        }
        window.standing = self.tracker.as_ref().map_or(window.standing, |tracker| tracker.standing);
        window.obeyed += 1;
    }

    /// Closes everything and opens nothing until told to.
    fn leave(&mut self, window: &mut Window) {
        for connection in &mut self.connections {
            connection.close(Phase::Idle);
        }
        self.again.clear();
        self.opening.clear();
        (window.connected, window.given_up, self.opening_count) = (0, 0, 0);
        self.next = self.connections.len();
    }

    /// Opens what is due and fits in; returns how long to wait for what isn't due yet.
    fn open_due(&mut self, window: &mut Window) -> Duration {
        let now = monotonic_ns();
        let tick = if self.tracker.is_some() { TRACKING_TICK } else { TICK };
        while self.opening_count < self.plan.opening_max && self.refused_until_ns <= now {
            if let Some(&Reverse((due, slot))) = self.again.peek() {
                if due <= now {
                    self.again.pop();
                    self.open(slot, window);
                    continue;
                }
            }
            if self.next == self.connections.len() {
                break;
            }
            if self.opens_per_s > 0.0 {
                let due = self.started_ns + (self.next as f64 * 1e9 / self.opens_per_s) as u64;
                if due > now {
                    return tick.min(Duration::from_nanos(due - now));
                }
            }
            self.next += 1;
            self.open(self.next - 1, window);
        }
        tick
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
            Err(error) => self.broken(slot, &error, window),
        }
    }

    /// A connection that the system refuses or breaks. Where nobody listens, the others wait a
    /// moment: clients that are refused cost elsewhere what here the starting server needs.
    fn broken(&mut self, slot: usize, error: &io::Error, window: &mut Window) {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            self.refused_until_ns = monotonic_ns() + REFUSED_NS;
        }
        self.end(slot, window, || describe(error));
    }

    /// Begins the connect and, where it is done at once as on loopback, sends the request.
    fn connect(&mut self, slot: usize, index: u64) -> io::Result<()> {
        let (address, sources) = (self.plan.target.address, u64::from(self.plan.sources));
        let source = (sources > 1).then(|| local::loopback((index % sources) as u32));
        let mut socket = TcpStream::from_std(local::connect(address, source)?.into());
        self.sealed.begin(slot, self.plan.tls.as_ref())?;
        self.prepare_request(slot, index);
        let mut interest = Interest::READABLE;
        match self.sealed.wire(slot, &mut socket).write(&self.words) {
            Ok(written) if written == self.words.len() => self.connections[slot].unsent = false,
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if not_yet(&error) => interest |= Interest::WRITABLE,
            Err(error) => return Err(error),
        }
        self.poll.registry().register(&mut socket, Token(slot), interest)?;
        self.connections[slot].socket = Some(socket);
        Ok(())
    }

    fn prepare_request(&mut self, slot: usize, index: u64) {
        let (plan, words) = (&self.plan, &mut self.words);
        let cursor = self.tracker.as_ref().and_then(|tracker| tracker.cursor_of(slot));
        words.clear();
        plan.who(index, cursor, |who| plan.protocol.push_request(&plan.target.host, who, words));
    }

    /// Something happened to one socket.
    fn ready(&mut self, event: &mio::event::Event, window: &mut Window) {
        let Token(slot) = event.token();
        if self.connections[slot].unsent && (event.is_writable() || event.is_error()) {
            if let Err(error) = self.send_request(slot) {
                self.broken(slot, &error, window);
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
        self.prepare_request(slot, index);
        let connection = &mut self.connections[slot];
        let Some(socket) = &mut connection.socket else { return Ok(()) };
        match self.sealed.wire(slot, socket).write(&self.words) {
            Ok(written) if written == self.words.len() => connection.unsent = false,
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
        let mut wire = self.sealed.wire(slot, socket);
        let held = connection.stream.lend(&mut self.buffer).map_err(|e| explain(e, window))?;
        let room = &mut self.buffer[held..];
        let (size, more) = match wire.read(room) {
            Ok(0) => return Err("the server closed the connection".to_owned()),
            Ok(size) => (size, closed || size == room.len()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (0, false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (0, true),
            Err(error) => return Err(describe(&error)),
        };
        let now = monotonic_ns();
        window.counts.bytes += size as u64;
        let Connection { phase, opened_ns, retry_ms, .. } = connection;
        let (opening_count, tracker) = (&mut self.opening_count, &mut self.tracker);
        let (plan, words) = (&self.plan, &mut self.words);
        let mut is_busy = false;
        let mut sink = |item: Item<'_>| match (item, tracker.as_mut()) {
            (Item::Event(event), tracker) => {
                let stamp = event.stamp();
                window.event(stamp, now);
                if let Some(tracker) = tracker {
                    tracker.event(slot, event, stamp, now);
                }
            }
            (Item::Cursor(cursor), Some(tracker)) => tracker.cursor(slot, cursor),
            (Item::Cursor(_), None) => {}
            (Item::Gap, _) => window.counts.found.gaps_told += 1,
            (Item::Retry(ms), _) => *retry_ms = ms,
            (Item::Busy, _) => is_busy = true,
            (Item::Welcome, _) => {
                *phase = Phase::Live;
                *opening_count -= 1;
                window.welcomed(*opened_ns, now);
            }
            (Item::Ping(payload), _) => {
                words.clear();
                push_frame(PONG, payload, words);
                // A socket too full for so few bytes shows soon enough as a lost stream.
                let _ = wire.write(words);
            }
            (Item::Prompt(prompt), _) => {
                words.clear();
                let index = self.thread as u64 + slot as u64 * plan.threads as u64;
                plan.who(index, None, |who| plan.protocol.push_reply(prompt, who, words));
                let _ = wire.write(words);
            }
        };
        let bytes = &self.buffer[..held + size];
        let end = feed(&*plan.protocol, &mut connection.stream, bytes, &mut sink);
        if is_busy {
            window.counts.busy += 1;
            return Err("the server is busy".to_owned());
        }
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
        self.sealed.end(slot);
        if self.plan.reconnect {
            connection.close(Phase::Idle);
            let due_ns = monotonic_ns() + u64::from(connection.retry_ms) * 1_000_000;
            self.again.push(Reverse((due_ns, slot)));
        } else {
            connection.close(Phase::Over);
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
