//! Connections through proxies (`protocol/http.md` 17): who the client is, by the PROXY protocol or
//! by `X-Forwarded-For`, where a proxy says so that is trusted.
//!
//! The header of the PROXY protocol stays in the socket until it is whole: it is looked at there
//! and then taken out, so the connection holds no buffer for it, and the bytes after it, HTTP or
//! TLS, are read as if there had been none.
//!
//! Bounds: `proxy_header_bytes_max`, `proxy_header_ms_max`.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;

use halley_link::CloseReason;
use halley_wire::HttpError;
use halley_wire::http1::head::Request;
use halley_wire::proxy::{self, BadProxyHeader, ProxyHeader};

use crate::conns::table::{Phase, flag};
use crate::conns::{Conns, Hung};
use crate::limits::address::Address;
use crate::stats::Stat;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// What a peer of a listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client.
    Client,
    /// A proxy that begins each connection with a header.
    Speaks,
    /// A proxy that names the client in each request.
    Forwards,
}

impl<D: Hung> Conns<D> {
    /// What the settings say of a peer.
    pub fn peer(&self, ip: IpAddr, api: bool) -> Peer {
        let proxies = &self.settings.proxies;
        let speaks = if api { proxies.api_speaks } else { proxies.public_speaks };
        match proxies.trusted.contain(ip) {
            true if speaks => Peer::Speaks,
            true if proxies.forwarded_for && !api => Peer::Forwards,
            _ => Peer::Client,
        }
    }

    /// Looks for the header at the beginning of a connection; gives what it says of the client when
    /// it is whole.
    pub fn proxy_readable(&mut self, index: u32) -> Option<Option<IpAddr>> {
        let most = self.settings.proxies.header_bytes_max;
        let mut scratch = std::mem::take(&mut self.scratch);
        let header = self.take_header(index, &mut scratch[..most]);
        self.scratch = scratch;
        match header {
            Ok(header) => header.map(|header| header.client),
            Err(_) => {
                self.bad_header(index);
                None
            }
        }
    }

    /// Takes the header out of the socket, and nothing while it isn't whole. The buffer is as long
    /// as one may be.
    fn take_header(
        &mut self,
        index: u32,
        buffer: &mut [u8],
    ) -> Result<Option<ProxyHeader>, BadProxyHeader> {
        let socket = self.table.get(index).and_then(|slot| slot.socket.as_mut());
        let socket = socket.ok_or(BadProxyHeader)?;
        let seen = match socket.peek(buffer) {
            // Closed, so nothing can follow.
            Ok(0) => return Err(BadProxyHeader),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(_) => return Err(BadProxyHeader),
        };
        let Some(header) = proxy::parse(&buffer[..seen], buffer.len())? else { return Ok(None) };
        match socket.read(&mut buffer[..header.bytes]) {
            Ok(n) if n == header.bytes => Ok(Some(header)),
            _ => Err(BadProxyHeader),
        }
    }

    /// There is no header, or not in time (17.2).
    pub fn bad_header(&mut self, index: u32) {
        self.stats.count(Stat::ProxyErrors);
        self.doom(index, CloseReason::Client);
    }

    /// The header is read: the connection is the client's.
    ///
    /// # Errors
    /// 429 if the client's address has too many connections.
    pub fn proxied(&mut self, index: u32, client: Option<IpAddr>) -> Result<(), HttpError> {
        let Some(slot) = self.table.get(index) else { return Ok(()) };
        let api = slot.has(flag::API);
        self.become_of(index, Phase::Http);
        let forwards = client.is_some_and(|ip| {
            let proxies = &self.settings.proxies;
            !api && proxies.forwarded_for && proxies.trusted.contain(ip)
        });
        let address = match client {
            _ if forwards => Address::FORWARDS,
            // 16.1: only the connection's own address can be exempt.
            Some(ip) => Address::counted(self.table.limits.hasher.address(ip)),
            None => Address::NONE,
        };
        self.comes_from(index, address)?;
        self.begin(index, api);
        Ok(())
    }

    /// Counts a connection by another address than before.
    fn comes_from(&mut self, index: u32, address: Address) -> Result<(), HttpError> {
        let most = self.settings.connections_per_address_max;
        if self.table.moves(index, address, most) {
            return Ok(());
        }
        Err(self.address_full())
    }

    /// The client of a request through a proxy that forwards: its address, if one is counted and
    /// named.
    pub fn forwarded(&mut self, index: u32, req: &Request<'_>) -> Option<Address> {
        if !self.table.address(index).forwards() {
            return None;
        }
        let proxies = &self.settings.proxies;
        let lines = req.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(FORWARDED_FOR));
        let trusted = |ip| proxies.trusted.contain(ip);
        let ip = proxy::forwarded_for(lines.map(|(_, value)| value), trusted)?;
        Some(Address::forwarded(self.table.limits.hasher.address(ip)))
    }

    /// A stream or poll through such a proxy is the client's as long as it lasts (17.4).
    ///
    /// # Errors
    /// 429 if the client's address has too many connections.
    pub fn stream_comes_from(&mut self, index: u32, req: &Request<'_>) -> Result<(), HttpError> {
        match self.forwarded(index, req) {
            Some(address) => self.comes_from(index, address),
            None => Ok(()),
        }
    }

    /// A poll through such a proxy is over: the connection is the proxy's.
    pub fn back_to_proxy(&mut self, index: u32) {
        if self.table.address(index).forwards() {
            self.table.moves(index, Address::FORWARDS, u32::MAX);
        }
    }
}
