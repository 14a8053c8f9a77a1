//! Requests that are refused for a while (`protocol/http.md` 16): those beyond the rate of their
//! address or user, and streams while memory is short. `worker/admit.rs` refuses connections.
//!
//! Bounds: `requests_per_address_per_s_max`, `requests_per_user_per_s_max` and the percents of free
//! memory are checked here. Nothing is kept here: addresses and users are counted in tables of a
//! fixed size (`limits/sketch.rs`).

use std::net::IpAddr;

use halley_wire::HttpError;
use halley_wire::http1::head::Request;

use crate::conns::{Conns, Hung};
use crate::limits::address::Address;
use crate::limits::rates::Rate;
use crate::limits::sketch::Key;
use crate::stats::Stat;

const MEMORY_LOW: HttpError = HttpError::new(
    503,
    "memory_low",
    "This machine is short of memory and takes no new clients: come back after Retry-After.",
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

impl<D: Hung> Conns<D> {
    /// What a client's address counts as: none for the exempt ones.
    pub fn address_of(&self, ip: IpAddr) -> Address {
        if self.settings.exempt.contain(ip) {
            return Address::NONE;
        }
        Address::counted(self.table.limits.hasher.address(ip))
    }

    /// An address has too many connections.
    pub fn address_full(&mut self) -> HttpError {
        self.stats.count(Stat::AddressFull);
        ADDRESS_FULL
    }

    /// A stream needs memory, here and in the brain.
    ///
    /// # Errors
    /// 503 while there is too little (16.4).
    pub fn stream_may_open(&mut self) -> Result<(), HttpError> {
        self.memory_allows(self.settings.memory_free_streams_percent_min)
    }

    /// Is so much of the memory left?
    ///
    /// # Errors
    /// 503 where it isn't (16.4).
    pub fn memory_allows(&mut self, percent_min: u64) -> Result<(), HttpError> {
        if self.table.limits.memory_percent() >= percent_min {
            return Ok(());
        }
        self.stats.count(Stat::MemoryLow);
        Err(MEMORY_LOW)
    }

    /// What is left is the machine's: the sum of all workers' gauges has it once.
    pub fn gauge_memory(&mut self, index: u16) {
        let available = self.table.limits.memory[0].load(std::sync::atomic::Ordering::Relaxed);
        if index == 0 && available != u64::MAX {
            self.stats.set(Stat::MemoryAvailable, available);
        }
    }

    /// Counts a request of a connection's address.
    ///
    /// # Errors
    /// 429 if it is one too many (16.3).
    pub fn address_may_ask(&mut self, index: u32, req: &Request<'_>) -> Result<(), HttpError> {
        let named = self.forwarded(index, req);
        let address = named.unwrap_or_else(|| self.table.address(index));
        let Some(key) = address.key() else { return Ok(()) };
        let rate = self.rate(self.settings.requests_per_address_per_s_max);
        self.table.limits.by_address.take(key, rate).map_err(|seconds| {
            self.stats.count(Stat::AddressAsks);
            ADDRESS_ASKS.after(seconds)
        })
    }

    /// Counts a request of a user: of any kind, over HTTP or a WebSocket.
    ///
    /// # Errors
    /// 429 if it is one too many (16.3).
    pub fn user_may_ask(&mut self, user: Key) -> Result<(), HttpError> {
        let rate = self.rate(self.settings.requests_per_user_per_s_max);
        self.table.limits.by_user.take(user, rate).map_err(|seconds| {
            self.stats.count(Stat::UserAsks);
            USER_ASKS.after(seconds)
        })
    }

    fn rate(&self, per_s: u32) -> Rate {
        Rate { per_s, burst_ms: self.settings.requests_burst_ms }
    }
}
