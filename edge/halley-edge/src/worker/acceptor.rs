//! Taking in clients from the two listeners.
//!
//! [`Acceptor`] has the sockets that listen, and knows which of them have more and whether clients
//! are let in at all. `admit.rs` decides about each client.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use crate::config::Config;
use crate::conns::table::CONNECTIONS_LIMIT;
use crate::worker::listen;

/// The listener for clients' streams.
pub const PUBLIC: Token = Token(0);
/// The listener for the server API.
pub const API: Token = Token(1);

/// Refused connections that are told why in a second. A flood of them is closed without a word, so
/// that it costs little more than to accept it.
const TURNED_AWAY_PER_S: u32 = 500;

/// A listener for clients.
struct Door {
    /// Until nobody is taken in any more.
    listener: Option<TcpListener>,
    /// It may have more, of which no event will tell.
    more: bool,
}

/// See the module.
pub struct Acceptor {
    public: Door,
    api: Door,
    /// Has there been a handshake? Clients are accepted from then on (3.6).
    open: bool,
    /// What the worker's descriptors allow.
    connections_max: usize,
    /// Refused connections that were told so in this second.
    turned_away: u32,
    /// The kernel had nothing for one more connection: the next try has a tick's time.
    failed: bool,
}

impl Acceptor {
    /// One that listens, and lets in nobody yet.
    ///
    /// # Errors
    /// What the kernel says to the addresses.
    pub fn new(config: &Config) -> io::Result<Acceptor> {
        let descriptors = halley_sys::descriptors_max()?;
        let door = |address| {
            Ok::<_, io::Error>(Door { listener: Some(listen::tcp(address)?), more: false })
        };
        Ok(Acceptor {
            public: door(config.public)?,
            api: door(config.api)?,
            open: false,
            connections_max: config.worker_connections_max(descriptors).min(CONNECTIONS_LIMIT),
            turned_away: 0,
            failed: false,
        })
    }

    fn door(&mut self, api: bool) -> &mut Door {
        if api { &mut self.api } else { &mut self.public }
    }

    /// Most connections of this worker.
    pub fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// Is there something to accept that no event will tell of?
    pub fn has_more(&self) -> bool {
        (self.public.more || self.api.more) && !self.failed
    }

    /// A round begins: what failed in the last one is tried again.
    pub fn try_again(&mut self) {
        self.failed = false;
    }

    /// May a listener have more? The caller then accepts, so the next answer is no.
    pub fn take_more(&mut self, api: bool) -> bool {
        std::mem::take(&mut self.door(api).more)
    }

    /// The next that a listener has.
    pub fn next(&mut self, api: bool) -> Option<(TcpStream, IpAddr)> {
        loop {
            match self.door(api).listener.as_ref()?.accept() {
                Ok((socket, peer)) => return Some((socket, peer.ip())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return None,
                // The client left before it was accepted.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                // Descriptors or memory ran out. The listener won't be announced again.
                Err(_) => {
                    self.failed = true;
                    self.door(api).more = true;
                    return None;
                }
            }
        }
    }

    /// May one more that is refused be told why?
    pub fn may_turn_away(&mut self) -> bool {
        let may = self.turned_away < TURNED_AWAY_PER_S;
        self.turned_away += u32::from(may);
        may
    }

    /// Another second began.
    pub fn new_second(&mut self) {
        self.turned_away = 0;
    }

    /// Are clients let in?
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Lets clients in; sockets get this for what they have written and nobody acknowledges.
    pub fn open(&mut self, registry: &Registry, user_timeout: Duration) -> io::Result<()> {
        for (door, token) in [(&mut self.public, PUBLIC), (&mut self.api, API)] {
            let Some(listener) = &mut door.listener else { continue };
            if !self.open {
                registry.register(listener, token, Interest::READABLE)?;
            }
            crate::socket::set_user_timeout(listener, user_timeout)?;
        }
        self.open = true;
        Ok(())
    }

    /// A listener may have more than it was asked for.
    pub fn has_more_at(&mut self, api: bool) {
        self.door(api).more = true;
    }

    /// Takes in nobody any more at a listener.
    pub fn close(&mut self, api: bool) {
        *self.door(api) = Door { listener: None, more: false };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::TcpStream as Client;

    use clap::Parser;

    use super::*;

    fn acceptor() -> Acceptor {
        let config = ["edge", "--public=127.0.0.1:0", "--api=127.0.0.1:0", "--socket-dir=/"];
        Acceptor::new(&Config::parse_from(config)).unwrap()
    }

    /// Waiting clients are accepted until the listener is closed; "more" is told once.
    #[test]
    fn a_listener_has_more_until_it_has_not() {
        let mut acceptor = acceptor();
        let address = acceptor.public.listener.as_ref().unwrap().local_addr().unwrap();
        let _clients = [Client::connect(address).unwrap(), Client::connect(address).unwrap()];
        assert!(!acceptor.is_open() && !acceptor.has_more());
        assert!(acceptor.next(true).is_none(), "the other listener");
        assert!(acceptor.next(false).is_some());
        acceptor.has_more_at(false);
        assert!(acceptor.has_more() && acceptor.take_more(false) && !acceptor.take_more(false));
        assert!(acceptor.next(false).is_some() && acceptor.next(false).is_none());
        acceptor.has_more_at(false);
        acceptor.close(false);
        assert!(!acceptor.has_more() && acceptor.next(false).is_none());
    }

    /// A flood is refused without a word, until the next second.
    #[test]
    fn few_are_told_why() {
        let mut acceptor = acceptor();
        assert!((0..TURNED_AWAY_PER_S).all(|_| acceptor.may_turn_away()));
        assert!(!acceptor.may_turn_away());
        acceptor.new_second();
        assert!(acceptor.may_turn_away());
    }
}
