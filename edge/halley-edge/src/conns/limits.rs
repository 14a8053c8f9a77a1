//! Requests that are refused for a while (`protocol/http.md` 16): those beyond the rate of their
//! address or user, and streams while memory is short. `worker/admit.rs` refuses connections.
//!
//! Bounds: `requests_per_address_per_s_max`, `requests_per_user_per_s_max`, the percents of free
//! memory and `requests_in_flight_max` with its shares are checked here. Nothing is kept here:
//! rates are counted in tables of a fixed size (`limits/sketch.rs`), and who waits for the brain in
//! `limits/places.rs`.

use std::net::IpAddr;

use halley_wire::HttpError;
use halley_wire::http1::head::Request;

use crate::conns::{Conns, Hung};
use crate::limits::address::Address;
use crate::limits::places::{Full, Parts, Place, Whose};
use crate::limits::rates::Rate;
use crate::limits::sketch::Key;
use crate::settings::AuthMode;
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
        let Some(key) = self.client_of(index, req).key() else { return Ok(()) };
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

    /// Where a request comes from.
    fn client_of(&mut self, index: u32, req: &Request<'_>) -> Address {
        self.forwarded(index, req).unwrap_or_else(|| self.table.address(index))
    }

    /// Whose request this is at the public listener, of the user with this hash if it names one.
    pub fn whose_request(&mut self, index: u32, req: &Request<'_>, user: Option<Key>) -> Whose {
        let address = self.client_of(index, req);
        self.whose(address, user)
    }

    /// The same of an operation of a WebSocket.
    pub fn whose_operation(&mut self, index: u32) -> Whose {
        let user = (!self.table.user(index).is_empty()).then(|| self.table.user_key(index));
        self.whose(self.table.address(index), user)
    }

    /// Anybody can name any user where none has to be proven: there it is the address that counts,
    /// and the user for addresses that are exempt (16.12).
    fn whose(&self, address: Address, user: Option<Key>) -> Whose {
        let proven = user.filter(|_| self.settings.auth_mode == AuthMode::Jwt);
        proven.or(address.key()).or(user).map_or(Whose::Unknown, Whose::User)
    }

    /// Takes a place among the requests that wait for the brain.
    ///
    /// # Errors
    /// When there is none (16.12); what is only one user's is counted.
    pub fn request_begins(&mut self, whose: Whose) -> Result<Place, Full> {
        let (all, servers, user) = (
            self.settings.requests_in_flight_max,
            self.settings.servers_share_percent,
            self.settings.user_share_percent_max,
        );
        let taken = self.places.take(whose, Parts::of(all, servers, user));
        match &taken {
            Ok(_) => self.stats.set(Stat::RequestsInFlight, self.places.len()),
            Err(Full::Own) => self.stats.count(Stat::UserInFlight),
            Err(Full::All) => {}
        }
        taken
    }

    /// The brain has answered a request, or it is given up: gives its place back, if it had one.
    pub fn request_is_over(&mut self, place: Option<Place>) {
        if let Some(place) = place {
            self.places.give_back(place);
            self.stats.set(Stat::RequestsInFlight, self.places.len());
        }
    }

    fn rate(&self, per_s: u32) -> Rate {
        Rate { per_s, burst_ms: self.settings.requests_burst_ms }
    }
}
