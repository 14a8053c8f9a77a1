//! A worker: one thread, one poll, one descriptor table, one link. Everything that a client or
//! the brain causes happens in [`Worker::run`]'s loop; the other files hold the worker's parts as
//! `impl Worker` blocks:
//!
//! - here `acceptor.rs` takes connections and the link in, `close.rs` ends connections, `sweep.rs`
//!   deals with time, `stop.rs` with the end,
//! - `doors/` says who may come in and who asks, `tls/` speaks TLS where a listener does,
//! - `http/` reads requests and writes answers, `sessions/` opens streams, polls and WebSockets and
//!   hears what they say,
//! - `outbox/` fills outboxes and writes them, `groups/` does so for a subject's whole crowd,
//! - `link/` deals with the brain's frames and tells it who is there; `table/` has them all.
//!
//! Invariant: nothing blocks, and nothing is written to a socket before the round's input was
//! dealt with ([`Worker::settle`]); so writes gather by themselves when there is much to do.

pub mod acceptor;
pub mod close;
pub mod frames;
pub mod listen;
pub mod stop;
pub mod sweep;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use halley_link::CloseReason;
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};

use crate::clock::Clock;
use crate::config::Config;
use crate::conns::table::wheel::{TICK_MS, Wheel};
use crate::conns::table::{Phase, Table, flag};
use crate::conns::tls::certificates::Certificates;
use crate::conns::tls::shake::Tls;
use crate::doors::Doors;
use crate::groups::Groups;
use crate::groups::crowd::{Kept, Patience};
use crate::groups::turns::{Turn, Turns, WAKE};
use crate::link::brain_link::BrainLink;
use crate::outbox::Pool;
use crate::random::Random;
use crate::sessions::detail::Detail;
use crate::sessions::hold::Hold;
use crate::sessions::tokens::Tokens;
use crate::sessions::{admit::Admission, compression::Compression, operations::Operations};
use crate::settings::Settings;
use crate::stats::{Stat, Stats};
use crate::worker::acceptor::{API, Acceptor, LINK_LISTENER, PUBLIC};
use crate::worker::stop::Stopping;
use crate::worker::sweep::Sweep;

/// The link's socket.
pub const LINK: Token = Token(3);
const FIRST_CONNECTION: usize = 16;
const EVENTS_PER_ROUND: usize = 1_024;
/// What is read at once.
pub const READ_BYTES: usize = 65_536;

/// Value of [`Shared::stop`] while the edge runs.
pub const RUN: u64 = u64::MAX;

/// What the threads of an edge share.
pub struct Shared {
    /// The command line.
    pub config: Config,
    /// Of the listeners that speak TLS.
    pub certificates: Certificates,
    /// See [`Turns`].
    pub turns: Arc<Turns>,
    /// See [`Doors`].
    pub doors: Arc<Doors>,
    /// [`RUN`], or within how many milliseconds to close everything.
    pub stop: AtomicU64,
}

/// See the module.
pub struct Worker {
    pub(crate) index: u16,
    pub(crate) shared: Arc<Shared>,
    pub(crate) poll: Poll,
    pub(crate) acceptor: Acceptor,
    pub(crate) link: BrainLink,
    pub(crate) settings: Settings,
    pub(crate) tokens: Tokens,
    pub(crate) table: Table<Detail>,
    /// Where a listener speaks TLS.
    pub(crate) tls: Option<Box<Tls>>,
    pub(crate) pool: Pool,
    pub(crate) compression: Compression,
    pub(crate) stats: Stats,
    pub(crate) wheel: Wheel,
    /// Connections whose outbox has something new.
    pub(crate) dirty: Vec<u32>,
    /// Connections that have bytes to go on with: kept ones, or some in the socket of which no
    /// event will tell.
    pub(crate) ready: Vec<u32>,
    /// Uploads that wait until the link's queue is shorter.
    pub(crate) paused: Vec<u32>,
    pub(crate) admission: Admission,
    pub(crate) groups: Groups<Kept>,
    pub(crate) turn: Turn,
    /// Members that were served in this turn.
    pub(crate) turn_served: usize,
    pub(crate) patience: Patience,
    /// By index: the sessions that wait for the end of their replay.
    pub(crate) holds: HashMap<u32, Hold>,
    /// By index: WebSockets of which the brain has a request.
    pub(crate) operations: HashMap<u32, Box<Operations>>,
    /// By connection id: polls that have their answer, or no more time.
    pub(crate) polls_due: Vec<u64>,
    /// That of the event in hand.
    pub(crate) event_cursor: Vec<u8>,
    sweep: Sweep,
    pub(crate) scratch: Vec<u8>,
    pub(crate) items: Vec<u8>,
    pub(crate) clock: Clock,
    pub(crate) now_ms: u64,
    pub(crate) random: Random,
    pub(crate) stopping: Option<Stopping>,
}

impl Worker {
    /// A worker with a descriptor table of its own, for the calling thread, that listens. The poll
    /// is one of [`Turns::new`].
    ///
    /// # Errors
    /// What the kernel says to the addresses or the socket path.
    pub fn new(index: u16, poll: Poll, shared: Arc<Shared>) -> io::Result<Worker> {
        halley_sys::own_fd_table()?;
        Ok(Worker {
            index,
            acceptor: Acceptor::new(index, &shared.config, poll.registry())?,
            poll,
            link: BrainLink::default(),
            settings: Settings::default(),
            tokens: Tokens::default(),
            table: Table::new(Arc::clone(&shared.doors)),
            tls: shared.certificates.any().then(Box::default),
            pool: Pool::default(),
            compression: Compression::default(),
            stats: Stats::new(),
            wheel: Wheel::new(),
            dirty: Vec::new(),
            ready: Vec::new(),
            paused: Vec::new(),
            admission: Admission::default(),
            groups: Groups::default(),
            turn: Turn::new(Arc::clone(&shared.turns), index),
            turn_served: 0,
            patience: Patience::default(),
            holds: HashMap::new(),
            operations: HashMap::new(),
            polls_due: Vec::new(),
            event_cursor: Vec::new(),
            sweep: Sweep::new(),
            scratch: vec![0; READ_BYTES],
            items: Vec::new(),
            clock: Clock::new(),
            now_ms: 0,
            random: Random::new(),
            stopping: None,
            shared,
        })
    }

    /// Works until the edge is told to stop.
    ///
    /// # Errors
    /// When the poll itself fails, which it doesn't.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_ROUND);
        self.tell_time();
        loop {
            let pause = if self.has_more() { 0 } else { TICK_MS };
            match self.poll.poll(&mut events, Some(self.clock.poll_for(pause))) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            self.tell_time();
            for event in &events {
                self.on_event(event);
            }
            self.accept_rest();
            self.shake_hands();
            self.read_link();
            self.on_time();
            self.admit_waiting();
            self.settle();
            if self.stopped() {
                self.end_link(halley_link::GoodbyeCode::Stopping, "the edge stops");
                return Ok(());
            }
        }
    }

    fn tell_time(&mut self) {
        let (now_ms, new_second) = self.clock.look();
        self.now_ms = now_ms;
        if new_second {
            self.acceptor.new_second();
        }
    }

    /// Is there something to do that no event will tell of?
    fn has_more(&self) -> bool {
        let upload = !self.paused.is_empty() && self.link_has_room();
        let write = !self.ready.is_empty() || !self.dirty.is_empty();
        self.link_may_be_read()
            || self.turn.is_taken()
            || self.acceptor.has_more()
            || upload
            || write
            || self.link.sync_may_go_on()
            || self.handshakes_wait()
    }

    fn on_event(&mut self, event: &Event) {
        match event.token() {
            PUBLIC => {
                self.accept(false);
            }
            API => {
                self.accept(true);
            }
            LINK_LISTENER => self.accept_link(),
            LINK if event.is_readable() => self.link.became_readable(),
            LINK => {}
            // The round is for what it waited for.
            WAKE => {}
            // By connection id: an event of one that was dropped in this round must not meet the
            // one that was accepted into its slot.
            Token(token) => {
                let conn = token.wrapping_sub(FIRST_CONNECTION) as u64;
                if let Some((index, _)) = self.table.find(conn) {
                    self.on_connection(index, event);
                }
            }
        }
    }

    fn on_connection(&mut self, index: u32, event: &Event) {
        // Both sides closed is how a connection in phase Closing ends well. Who polls and closes
        // one side has left; another request's answer may still be read.
        let polls = self.poll_of(index).is_some();
        if event.is_error() || event.is_read_closed() && (event.is_write_closed() || polls) {
            let reason = if event.is_error() {
                self.stats.count(Stat::Vanished);
                CloseReason::Vanished
            } else {
                CloseReason::Client
            };
            return self.drop_connection(index, reason);
        }
        if event.is_writable() {
            self.on_writable(index);
        }
        if event.is_readable() {
            self.on_readable(index);
        }
    }

    /// Reads what a client sent.
    pub(crate) fn on_readable(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        match slot.phase {
            Phase::Proxy => self.proxy_readable(index),
            Phase::Handshake => self.handshake_readable(index),
            Phase::Http => self.http_readable(index),
            Phase::Waiting | Phase::Opening | Phase::Live => self.stream_readable(index),
            Phase::Closing => self.discard(index),
            Phase::Free | Phase::Left => {}
        }
    }

    /// By which the poll names a connection.
    pub(crate) fn token(&mut self, index: u32) -> Token {
        Token(self.table.conn(index) as usize + FIRST_CONNECTION)
    }

    /// Asks the poll for writability as well, or not any more.
    pub(crate) fn watch(&mut self, index: u32, writable: bool) {
        let interest =
            if writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let token = self.token(index);
        let Some(slot) = self.table.get(index) else { return };
        if let Some(socket) = slot.socket.as_mut() {
            let _ = self.poll.registry().reregister(socket, token, interest);
        }
    }

    /// Writes everything that the round brought about. Every connection gets one turn: one whose
    /// client sends without end must not keep the others waiting, so what is ready after its turn
    /// is for the next round.
    pub(crate) fn settle(&mut self) {
        if self.link_has_room() {
            self.ready.append(&mut self.paused);
        }
        self.serve_groups();
        self.answer_polls();
        self.flush_dirty();
        for index in std::mem::take(&mut self.ready) {
            self.resume(index);
        }
        self.flush_dirty();
        self.link.announce();
        self.flush_link();
    }

    /// Gives back what a storm left in the worker's own lists; called now and then.
    pub(crate) fn trim(&mut self) {
        self.pool.trim();
        self.compression.rest();
        self.table.trim();
        self.admission.trim();
        self.tokens.trim();
        self.holds.shrink_to(2 * self.holds.len());
        self.operations.shrink_to(2 * self.operations.len());
        for list in [&mut self.dirty, &mut self.ready, &mut self.paused] {
            list.shrink_to(2 * list.len());
        }
        self.link.trim();
        if let Some(tls) = self.tls.as_mut() {
            tls.trim(&mut self.table);
        }
    }

    /// Goes on with a connection that waited for its turn.
    fn resume(&mut self, index: u32) {
        let Some(slot) = self.table.get(index) else { return };
        match slot.phase {
            Phase::Http => self.resume_http(index),
            Phase::Free | Phase::Proxy | Phase::Handshake | Phase::Left => {}
            Phase::Waiting | Phase::Opening | Phase::Live | Phase::Closing => {
                if slot.clear(flag::UNREAD) {
                    self.on_readable(index);
                }
            }
        }
    }
}
