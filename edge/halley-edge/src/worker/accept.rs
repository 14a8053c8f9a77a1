//! Taking in: clients from the two listeners, the brain from the worker's socket.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use halley_link::GoodbyeCode;
use mio::Interest;

use crate::doors::address::Address;
use crate::doors::proxy::Peer;
use crate::link::Link;
use crate::link::goodbye::LinkEnd;
use crate::settings::AuthMode;
use crate::stats::Stat;
use crate::table::{Phase, flag};
use crate::worker::listen;
use crate::worker::{API, LINK, PUBLIC, Worker};

/// Connections accepted in one round, so that a storm of them doesn't starve those who are there.
const ACCEPTS_PER_ROUND: usize = 256;

impl Worker {
    /// Goes on with listeners that have more.
    pub(crate) fn accept_rest(&mut self) {
        self.accept_failed = false;
        for api in [false, true] {
            if std::mem::take(&mut self.accept_more[usize::from(api)]) {
                self.accept(api);
            }
        }
    }

    /// Takes in what waits at a listener, up to a bound.
    pub(crate) fn accept(&mut self, api: bool) {
        for _ in 0..ACCEPTS_PER_ROUND {
            let listener = if api { &self.api } else { &self.public };
            let Some(listener) = listener else { return };
            match listener.accept() {
                Ok((socket, peer)) => self.accepted(socket, peer.ip(), api),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // The client left before it was accepted.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                // Descriptors or memory ran out. The listener won't be announced again.
                Err(_) => {
                    self.accept_failed = true;
                    break;
                }
            }
        }
        self.accept_more[usize::from(api)] = true;
    }

    fn accepted(&mut self, socket: mio::net::TcpStream, peer: IpAddr, api: bool) {
        self.stats.count(Stat::Accepted);
        let kind = self.peer(peer, api);
        let address = match kind {
            Peer::Client => self.address_of(peer),
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
        let index = self.table.insert(socket, if api { flag::API } else { 0 }, address);
        let token = self.token(index);
        let registry = self.poll.registry();
        let socket = self.table.get(index).and_then(|slot| slot.socket.as_mut());
        if socket.is_none_or(|s| registry.register(s, token, Interest::READABLE).is_err()) {
            self.table.remove(index);
            return;
        }
        match (kind, self.table.get(index)) {
            (Peer::Speaks, Some(slot)) => {
                slot.phase = Phase::Proxy;
                self.set_deadline(index, self.settings.proxies.header_ms_max);
            }
            _ => self.begin(index, api),
        }
    }

    /// Accepts the brain: the newest link takes the place of an older one (1.2).
    pub(crate) fn accept_link(&mut self) {
        while let Ok((mut socket, _)) = self.link_listener.accept() {
            self.end_link(halley_link::GoodbyeCode::Replaced, "a newer link was dialled");
            if self
                .poll
                .registry()
                .register(&mut socket, LINK, Interest::READABLE | Interest::WRITABLE)
                .is_ok()
            {
                self.link = Some(Link::new(socket, self.now_ms));
                self.link_readable = true;
            }
        }
    }

    /// Begins to accept clients, after the first handshake (3.6) and, if they show tokens, the
    /// first keys (12.4).
    ///
    /// # Errors
    /// When the listeners fail.
    pub(crate) fn let_clients_in(&mut self) -> Result<(), LinkEnd> {
        let asks = self.settings.auth_mode == AuthMode::Jwt;
        if asks && self.tokens.keys.is_none() && !self.open {
            return Ok(());
        }
        self.open_listeners()
            .map_err(|e| LinkEnd::Broken(GoodbyeCode::Handshake, format!("listeners: {e}")))
    }

    fn open_listeners(&mut self) -> io::Result<()> {
        let timeout = Duration::from_millis(self.settings.user_timeout_ms());
        let registry = self.poll.registry();
        for (listener, token) in [(&mut self.public, PUBLIC), (&mut self.api, API)] {
            let Some(listener) = listener else { continue };
            if !self.open {
                registry.register(listener, token, Interest::READABLE)?;
            }
            listen::set_user_timeout(listener, timeout)?;
        }
        self.open = true;
        Ok(())
    }
}
