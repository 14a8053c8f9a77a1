//! TLS between a client and its socket, by rustls, for `https` and `wss`.
//!
//! Purpose: a [`Wire`] reads and writes like the socket it is made of, plain text inside. Clients
//! of plain targets have none and pay nothing.
//!
//! Shape: a non-blocking socket's `WouldBlock` is passed on in both directions; a write that was
//! refused has taken nothing and may be repeated. A read goes on until its room is full or the
//! socket is empty, as the loops here want it (edge-triggered).

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::error::{Failure, Result};

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
        if !resume {
            config.resumption = Resumption::disabled();
        }
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Failure::Message(format!("{host}: no name that a certificate has")))?;
        Ok(Self { config: Arc::new(config), name })
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
