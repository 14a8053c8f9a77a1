//! Who is told to come back later (`protocol/http.md` 16): connections and requests beyond what one
//! address, one user or the edge may have, and how they hear of it.
//!
//! Bounds: `edge.connections_max`, `connections_per_address_max`, `newcomers_percent_max`,
//! `requests_per_address_per_s_max`, `requests_per_user_per_s_max` and the percents of free memory
//! are what is asked for here. Nothing is kept: who is counted
//! is in tables of a fixed size (`doors/cells.rs`).

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;

use halley_link::CloseReason;
use halley_wire::HttpError;
use halley_wire::http1::head::Request;
use halley_wire::http1::response::{ResponseOptions, http_error};
use mio::net::TcpStream;

use crate::doors::address::Address;
use crate::doors::cells::Key;
use crate::doors::rates::Rate;
use crate::stats::Stat;
use crate::worker::Worker;

const EDGE_FULL: HttpError = HttpError::new(
    503,
    "connections_max",
    "This edge holds as many connections as edge.connections_max allows: try again later, or \
     raise it.",
)
.after(5);
const MEMORY_LOW: HttpError = HttpError::new(
    503,
    "memory_low",
    "This machine is short of memory and takes nobody new in: come back as Retry-After says.",
)
.after(10);
const ADDRESS_FULL: HttpError = HttpError::new(
    429,
    "too_many_connections",
    "Your address holds as many connections as limits.connections_per_address_max allows: close \
     some, and try again later.",
)
.after(5);
const ADDRESS_ASKS: HttpError = HttpError::new(
    429,
    "too_many_requests",
    "Your address asks more often than limits.requests_per_address_per_s_max allows: come back as \
     Retry-After says.",
);
const USER_ASKS: HttpError = HttpError::new(
    429,
    "too_many_requests",
    "This user asks more often than limits.requests_per_user_per_s_max allows: come back as \
     Retry-After says.",
);

impl Worker {
    /// What a client's address counts as: none for the exempt ones.
    pub(crate) fn address_of(&self, ip: IpAddr) -> Address {
        if self.settings.exempt.contain(ip) {
            return Address::NONE;
        }
        Address::counted(self.shared.doors.hasher.address(ip))
    }

    /// Counts a connection that was accepted, if there may be one more.
    ///
    /// # Errors
    /// What it is told. Nothing was counted then.
    pub(crate) fn enter(&mut self, address: Address, api: bool) -> Result<(), HttpError> {
        if !api {
            self.memory_allows(self.settings.memory_free_connections_percent_min)?;
        }
        let doors = Arc::clone(&self.shared.doors);
        if !doors.hold(address, self.settings.connections_per_address_max) {
            return Err(self.address_full());
        }
        // Only for who may come in.
        self.make_room();
        if self.table.used() < self.acceptor.connections_max() && doors.enter() {
            return Ok(());
        }
        doors.release(address);
        self.stats.count(Stat::Full);
        Err(EDGE_FULL)
    }

    /// An address has too many connections.
    pub(crate) fn address_full(&mut self) -> HttpError {
        self.stats.count(Stat::AddressFull);
        ADDRESS_FULL
    }

    /// A stream needs memory, here and in the brain.
    ///
    /// # Errors
    /// 503 while there is too little (16.4).
    pub(crate) fn stream_may_open(&mut self) -> Result<(), HttpError> {
        self.memory_allows(self.settings.memory_free_streams_percent_min)
    }

    fn memory_allows(&mut self, percent_min: u64) -> Result<(), HttpError> {
        if self.shared.doors.memory_percent() >= percent_min {
            return Ok(());
        }
        self.stats.count(Stat::MemoryLow);
        Err(MEMORY_LOW)
    }

    /// What is left is the machine's: the sum of all workers' gauges has it once.
    pub(crate) fn gauge_memory(&mut self) {
        let available = self.shared.doors.memory[0].load(std::sync::atomic::Ordering::Relaxed);
        if self.index == 0 && available != u64::MAX {
            self.stats.set(Stat::MemoryAvailable, available);
        }
    }

    /// Drops connections that have not asked for anything yet, the oldest first, while there are
    /// more than their share of all places, or no place for another (16.5).
    fn make_room(&mut self) {
        let doors = Arc::clone(&self.shared.doors);
        let workers = usize::from(self.shared.config.workers);
        let places =
            self.acceptor.connections_max().saturating_mul(workers).min(doors.connections_max());
        let share = places.saturating_mul(self.settings.newcomers_percent_max) / 100;
        loop {
            let full = doors.are_full() || self.table.used() >= self.acceptor.connections_max();
            if !full && doors.newcomers() < share.max(1) {
                return;
            }
            let Some(index) = self.table.oldest_newcomer() else { return };
            self.stats.count(Stat::NewcomersDropped);
            self.drop_connection(index, CloseReason::Client);
        }
    }

    /// Counts a request of a connection's address.
    ///
    /// # Errors
    /// 429 if it is one too many (16.3).
    pub(crate) fn address_may_ask(
        &mut self,
        index: u32,
        req: &Request<'_>,
    ) -> Result<(), HttpError> {
        let named = self.forwarded(index, req);
        let address = named.unwrap_or_else(|| self.table.address(index));
        let Some(key) = address.key() else { return Ok(()) };
        let rate = self.rate(self.settings.requests_per_address_per_s_max);
        self.shared.doors.by_address.take(key, rate).map_err(|seconds| {
            self.stats.count(Stat::AddressAsks);
            ADDRESS_ASKS.after(seconds)
        })
    }

    /// Counts a request of a user: of any kind, over HTTP or a WebSocket.
    ///
    /// # Errors
    /// 429 if it is one too many (16.3).
    pub(crate) fn user_may_ask(&mut self, user: Key) -> Result<(), HttpError> {
        let rate = self.rate(self.settings.requests_per_user_per_s_max);
        self.shared.doors.by_user.take(user, rate).map_err(|seconds| {
            self.stats.count(Stat::UserAsks);
            USER_ASKS.after(seconds)
        })
    }

    fn rate(&self, per_s: u32) -> Rate {
        Rate { per_s, burst_ms: self.settings.requests_burst_ms }
    }

    /// A connection that may not come in: told so as far as one write goes.
    pub(crate) fn turn_away(&mut self, mut socket: TcpStream, error: &HttpError) {
        if !self.acceptor.may_turn_away() {
            return;
        }
        let options = ResponseOptions { date: Some(self.clock.date), ..ResponseOptions::default() };
        let mut out = Vec::new();
        http_error(&mut out, error, &options);
        let _ = socket.write(&out);
        // A request that is left unread would make the kernel reset the connection, answer and all.
        let _ = socket.read(&mut self.scratch);
        let _ = socket.shutdown(Shutdown::Write);
    }
}
