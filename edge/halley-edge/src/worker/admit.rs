//! Which connections are accepted (`protocol/http.md` 16): clients from the two listeners, or
//! through a proxy.
//!
//! Bounds: `edge.connections_max`, `connections_per_address_max` and
//! `pending_connections_percent_max`.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;
use std::time::Duration;

use halley_link::{CloseReason, GoodbyeCode};
use halley_wire::HttpError;
use halley_wire::http1::response::{ResponseOptions, http_error};
use mio::net::TcpStream;

use crate::conns::proxy::Peer;
use crate::conns::table::{Phase, flag};
use crate::limits::address::Address;
use crate::limits::places_of_clients;
use crate::link::goodbye::LinkEnd;
use crate::settings::AuthMode;
use crate::stats::Stat;
use crate::worker::state::Worker;

/// Connections accepted in one round, so that a storm of them doesn't starve those who are there.
const ACCEPTS_PER_ROUND: usize = 256;

const EDGE_FULL: HttpError = HttpError::new(
    503,
    "connections_max",
    "This edge holds as many connections as edge.connections_max allows at this listener: try \
     again later, or raise it.",
)
.after(5);

impl Worker {
    /// Goes on with listeners that have more.
    pub(crate) fn accept_rest(&mut self) {
        self.acceptor.try_again();
        for api in [false, true] {
            if self.acceptor.take_more(api) {
                self.accept(api);
            }
        }
    }

    /// Takes in what waits at a listener, up to a bound; true if it may have more.
    pub(crate) fn accept(&mut self, api: bool) -> bool {
        for _ in 0..ACCEPTS_PER_ROUND {
            match self.acceptor.next(api) {
                Some((socket, peer)) => self.accepted(socket, peer, api),
                None => return false,
            }
        }
        self.acceptor.has_more_at(api);
        true
    }

    fn accepted(&mut self, socket: TcpStream, peer: IpAddr, api: bool) {
        self.io.conns.stats.count(Stat::Accepted);
        let kind = self.io.conns.peer(peer, api);
        let address = match kind {
            Peer::Client => self.io.conns.address_of(peer),
            Peer::Speaks => Address::NONE,
            Peer::Forwards => Address::FORWARDS,
        };
        if let Err(error) = self.enter(address, api) {
            // 15.11: what is sent in plain text is not for a client that speaks TLS.
            if !self.shared.certificates.has(api) {
                self.turn_away(socket, &error);
            }
            return;
        }
        let Some(index) = self.io.conns.insert(socket, api, address) else { return };
        if kind == Peer::Speaks {
            self.io.conns.become_of(index, Phase::Proxy);
            let ms = self.io.conns.settings.proxies.header_ms_max;
            self.io.conns.set_deadline(index, ms);
        } else {
            self.io.conns.begin(index, api);
        }
    }

    /// Looks for what a proxy says at the beginning of a connection, which is the client's then.
    pub(crate) fn proxy_readable(&mut self, index: u32) {
        let Some(client) = self.io.conns.proxy_readable(index) else { return };
        let api = self.io.conns.slot(index).is_some_and(|slot| slot.has(flag::API));
        if let Err(error) = self.io.conns.proxied(index, client) {
            let socket = self.io.conns.take_socket(index);
            self.sessions.end(&mut self.io, index, CloseReason::Client);
            if let Some(socket) = socket.filter(|_| !self.shared.certificates.has(api)) {
                self.turn_away(socket, &error);
            }
            return;
        }
        // What is behind the header may be there already, of which no event will tell.
        self.on_readable(index);
    }

    /// Begins to accept clients, after the first handshake (3.6) and, if they show tokens, the
    /// first keys (12.4).
    ///
    /// # Errors
    /// When the listeners fail.
    pub(crate) fn let_clients_in(&mut self) -> Result<(), LinkEnd> {
        let asks = self.io.conns.settings.auth_mode == AuthMode::Jwt;
        if asks && self.sessions.tokens().keys().is_none() && !self.acceptor.is_open() {
            return Ok(());
        }
        let timeout = Duration::from_millis(self.io.conns.settings.user_timeout_ms());
        self.acceptor
            .open(self.poll.registry(), timeout)
            .map_err(|e| LinkEnd::Broken(GoodbyeCode::Handshake, format!("listeners: {e}")))
    }

    /// Counts a connection that was accepted, if there may be one more.
    ///
    /// # Errors
    /// What it is told. Nothing was counted then.
    fn enter(&mut self, address: Address, api: bool) -> Result<(), HttpError> {
        if !api {
            let least = self.io.conns.settings.memory_free_connections_percent_min;
            self.io.conns.memory_allows(least)?;
        }
        let limits = Arc::clone(&self.shared.limits);
        if !limits.hold(address, self.io.conns.settings.connections_per_address_max) {
            return Err(self.io.conns.address_full());
        }
        // Only for a client that may come in.
        self.make_room(api);
        let percent = self.io.conns.settings.servers_share_percent;
        if !self.table_is_full(api) && limits.enter(api, percent) {
            return Ok(());
        }
        limits.release(address);
        self.io.conns.stats.count(Stat::Full);
        Err(EDGE_FULL)
    }

    /// Has this worker no place for another at this listener?
    fn table_is_full(&self, api: bool) -> bool {
        let (table, most) = (&self.io.conns.table, self.acceptor.connections_max());
        let of_clients = places_of_clients(most, self.io.conns.settings.servers_share_percent);
        table.used() >= most || !api && table.used_by_clients() >= of_clients
    }

    /// Drops connections that have not asked for anything yet, the oldest first, while there are
    /// more than their share of all places, or no place for another at this listener (16.5).
    fn make_room(&mut self, api: bool) {
        let limits = Arc::clone(&self.shared.limits);
        let workers = usize::from(self.shared.config.workers);
        let places =
            self.acceptor.connections_max().saturating_mul(workers).min(limits.connections_max());
        let share =
            places.saturating_mul(self.io.conns.settings.pending_connections_percent_max) / 100;
        loop {
            let percent = self.io.conns.settings.servers_share_percent;
            let full = limits.are_full(api, percent) || self.table_is_full(api);
            if !full && limits.pending() < share.max(1) {
                return;
            }
            let Some(index) = self.io.conns.table.oldest_pending(api) else { return };
            self.io.conns.stats.count(Stat::PendingDropped);
            self.sessions.end(&mut self.io, index, CloseReason::Client);
        }
    }

    /// A connection that may not come in: told so as far as one write goes.
    fn turn_away(&mut self, mut socket: TcpStream, error: &HttpError) {
        if !self.acceptor.may_turn_away() {
            return;
        }
        let options =
            ResponseOptions { date: Some(self.io.conns.clock.date), ..ResponseOptions::default() };
        let mut out = Vec::new();
        http_error(&mut out, error, &options);
        let _ = socket.write(&out);
        // A request that is left unread would make the kernel reset the connection, answer and all.
        let _ = socket.read(&mut self.io.conns.scratch);
        let _ = socket.shutdown(Shutdown::Write);
    }
}
