//! TLS between a client and its socket, by rustls, for `https` and `wss`.
//!
//! Purpose: a [`Wire`] reads and writes like the socket it is made of, plain text inside. Clients
//! of plain targets have none and pay nothing.
//!
//! Shape: a non-blocking socket's `WouldBlock` is passed on in both directions; a write that was
//! refused has taken nothing and may be repeated. A read goes on until its room is full or the
//! socket is empty, as the loops here want it (edge-triggered).

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::net::TcpStream;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, NamedGroup, RootCertStore};

use crate::error::{Failure, Result};

/// Tickets that are kept.
const TICKETS_MAX: usize = 100_000;

/// What all connections to a server share.
#[derive(Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// For the server `host`, whose certificate a CA in the file `ca` has signed. Without `resume`
    /// each handshake is a full one.
    ///
    /// # Errors
    /// For a file or a host that can't be used.
    pub fn new(host: &str, ca: &Path, tls12: bool, resume: bool) -> Result<Self> {
        let bad = |what: String| Failure::Message(format!("--ca {}: {what}", ca.display()));
        let certificate = CertificateDer::from_pem_file(ca).map_err(|e| bad(e.to_string()))?;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).map_err(|e| bad(e.to_string()))?;
        let version = if tls12 { &TLS12 } else { &TLS13 };
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .map_err(|e| bad(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = if resume {
            Resumption::store(Arc::new(Tickets::default()))
        } else {
            Resumption::disabled()
        };
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Failure::Message(format!("{host}: no name that a certificate has")))?;
        Ok(Self { config: Arc::new(config), name })
    }
}

/// What the clients were given to resume by, for whoever opens next: rustls's own store keeps eight
/// for a server, and here are thousands of clients of one. A ticket of TLS 1.3 is used once.
#[derive(Debug, Default)]
struct Tickets {
    tls12: Mutex<Option<Tls12ClientSessionValue>>,
    tls13: Mutex<VecDeque<Tls13ClientSessionValue>>,
}

/// A thread that panicked has left a whole value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        *lock(&self.tls12) = Some(session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        lock(&self.tls12).clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        *lock(&self.tls12) = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut tickets = lock(&self.tls13);
        if tickets.len() < TICKETS_MAX {
            tickets.push_back(ticket);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        lock(&self.tls13).pop_front()
    }
}

/// The connections of a thread, by slot; empty where TLS isn't spoken.
#[derive(Default)]
pub struct Sealed(Vec<Option<Box<ClientConnection>>>);

impl Sealed {
    /// One more, which has said nothing yet, if TLS is spoken.
    ///
    /// # Errors
    /// What rustls says.
    pub fn begin(&mut self, slot: usize, tls: Option<&Tls>) -> io::Result<()> {
        let Some(tls) = tls else { return Ok(()) };
        let connection = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone());
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(Box::new(connection.map_err(io::Error::other)?));
        Ok(())
    }

    /// What is read and written through the slot's socket.
    pub fn wire<'a>(&'a mut self, slot: usize, socket: &'a mut TcpStream) -> Wire<'a> {
        Wire { socket, tls: self.0.get_mut(slot).and_then(Option::as_deref_mut) }
    }

    /// It is over.
    pub fn end(&mut self, slot: usize) {
        self.0.get_mut(slot).map(Option::take);
    }
}

/// A socket, and the TLS that is spoken on it.
#[derive(Debug)]
pub struct Wire<'a> {
    socket: &'a mut TcpStream,
    /// `None` for a plain one.
    tls: Option<&'a mut ClientConnection>,
}

/// Writes what rustls has to say, until there is nothing or the socket is full.
fn say(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(socket)?;
    }
    Ok(())
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.write(bytes) };
        say(tls, self.socket)?;
        let taken = tls.writer().write(bytes)?;
        match say(tls, self.socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Wire<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(room) };
        let mut filled = 0;
        loop {
            let outcome = match tls.reader().read(&mut room[filled..]) {
                Ok(0) => return Ok(filled),
                Ok(size) => {
                    filled += size;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tls.read_tls(self.socket)
                }
                Err(error) => Err(error),
            };
            let outcome = outcome.and_then(|_| {
                tls.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
            });
            match (outcome, say(tls, self.socket)) {
                (Err(_), _) if filled > 0 => return Ok(filled),
                (Err(error), _) => return Err(error),
                (Ok(_), Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Err(error);
                }
                _ => {}
            }
        }
    }
}
