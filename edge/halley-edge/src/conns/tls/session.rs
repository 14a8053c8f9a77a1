//! One connection's TLS, without its socket: bytes in, bytes out, by rustls's unbuffered API.
//!
//! The worker lends the buffers ([`Buffers`]); a connection keeps only what can't be helped: an
//! unfinished record, and sealed bytes that the socket hasn't taken. So an idle one holds its keys
//! and rustls's state, and no buffer ([`Sessions`] is a table of its own, by slot;
//! `docs/internals/tls.md` has the sizes).
//!
//! Bounds: what is sealed ahead of the socket is one record of [`SEALED_BYTES_MAX`] and what a
//! handshake or an alert says; what is kept of what came is at most [`HANDSHAKE_BYTES_MAX`] until
//! the handshake is over, then a record, and nothing once its client has said all.

use std::io::{self, Write};
use std::sync::Arc;

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus,
};
use rustls::{Error, HandshakeKind, ServerConfig};

use crate::conns::READ_BYTES;
use crate::outbox::{Flush, Flushed, Outbox};
use crate::side_table::SideTable;

/// What is sealed at once: the most that one record may hold (RFC 8446 section 5.1).
const SEALED_BYTES_MAX: usize = 16_384;
/// What a record adds to what is in it, at most (RFC 8446 section 5.2).
const RECORD_EXTRA_BYTES: usize = 5 + 256;
/// Most bytes of a record, as it travels.
pub const RECORD_BYTES_MAX: usize = SEALED_BYTES_MAX + RECORD_EXTRA_BYTES;
/// What a client may send until its handshake is over. A chain of certificates is most of it.
pub const HANDSHAKE_BYTES_MAX: usize = 32_768;

/// The worker's, for all of its connections.
pub struct Buffers {
    /// What came: of the connection's [`Session::begun`] bytes, then the socket's.
    pub incoming: Vec<u8>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            incoming: vec![0; READ_BYTES],
            plain: Vec::with_capacity(SEALED_BYTES_MAX),
            sealed: vec![0; RECORD_BYTES_MAX],
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is encrypted for the other side to read yet.
    Handshake,
    /// Both sides may send.
    Open,
    /// The client has said that it sends no more.
    ClientDone,
    /// We have said so, or it failed: nothing is read or sealed any more.
    Over,
}

/// See the module.
pub struct Session {
    connection: UnbufferedServerConnection,
    begun: Vec<u8>,
    unsent: Vec<u8>,
    /// How far it is.
    pub stage: Stage,
    /// What came until the handshake was over.
    handshake_bytes: u16,
    /// Since when it waits for its hello's answer (`shake.rs` knows).
    pub since_ms: u64,
}

impl Session {
    /// One whose client has sent nothing yet.
    ///
    /// # Errors
    /// What rustls says to the configuration.
    pub fn new(config: Arc<ServerConfig>) -> Result<Session, Error> {
        let connection = UnbufferedServerConnection::new(config)?;
        let (begun, unsent) = (Vec::new(), Vec::new());
        let stage = Stage::Handshake;
        Ok(Session { connection, begun, unsent, stage, handshake_bytes: 0, since_ms: 0 })
    }

    /// Puts what was kept before what comes next; gives its length.
    pub fn begin(&self, incoming: &mut [u8]) -> usize {
        let room = incoming.get_mut(..self.begun.len());
        room.map_or(0, |room| {
            room.copy_from_slice(&self.begun);
            room.len()
        })
    }

    /// Takes the bytes in, `new` of which came just now, and gives how many bytes of plain text
    /// they were. `plain` must be as long as `incoming`: no plain text is longer than its record.
    ///
    /// # Errors
    /// The connection has failed; what there is to say about it is among the sealed bytes.
    pub fn open(
        &mut self,
        incoming: &mut [u8],
        new: usize,
        plain: &mut [u8],
    ) -> Result<usize, Error> {
        let new = u16::try_from(new).unwrap_or(u16::MAX);
        self.handshake_bytes = self.handshake_bytes.saturating_add(new);
        let (mut used, mut written) = (0, 0);
        let failed = loop {
            let rest = incoming.get_mut(used..).unwrap_or_default();
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(rest);
            used += discard;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        used += record.discard;
                        let end = written + record.payload.len();
                        let Some(room) = plain.get_mut(written..end) else { break };
                        room.copy_from_slice(record.payload);
                        written = end;
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, &mut self.unsent),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.stage = Stage::ClientDone,
                Ok(ConnectionState::WriteTraffic(_)) => {
                    if self.stage == Stage::Handshake {
                        self.stage = Stage::Open;
                    }
                    break None;
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => break None,
                // Without early data there is no other state.
                Ok(_) => break Some(Error::General("an unexpected state".into())),
                Err(error) => break Some(error),
            }
        };
        let rest = incoming.get_mut(used..).unwrap_or_default();
        if let Some(error) = failed {
            self.fail(rest);
            return Err(error);
        }
        let too_long = match self.stage {
            Stage::Handshake => usize::from(self.handshake_bytes) > HANDSHAKE_BYTES_MAX,
            // Parts of a message about the connection itself; its client has none that is as long.
            Stage::Open => rest.len() > RECORD_BYTES_MAX,
            Stage::ClientDone | Stage::Over => false,
        };
        if too_long {
            self.stage = Stage::Over;
        }
        self.begun = match self.stage {
            Stage::Handshake | Stage::Open => rest.to_vec(),
            // Nobody reads on, rustls neither: see `say`.
            Stage::ClientDone | Stage::Over => Vec::new(),
        };
        if too_long { Err(Error::General("a message is too long".into())) } else { Ok(written) }
    }

    /// The connection has failed: what rustls has to say about it is sealed.
    fn fail(&mut self, rest: &mut [u8]) {
        self.stage = Stage::Over;
        self.begun = Vec::new();
        while self.connection.wants_write() {
            match self.connection.process_tls_records(rest).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, &mut self.unsent),
                // What came before the failure is of no use any more.
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while traffic.next_record().is_some() {}
                }
                _ => return,
            }
        }
    }

    /// Seals what rustls has to say of its own, such as new keys.
    ///
    /// Here and below rustls is given again what was kept: it remembers places in it. Once the
    /// client has said all, that is empty, and nothing is remembered: a last word within a message
    /// is an error, and behind it rustls reads nothing.
    fn say(&mut self) {
        while self.stage != Stage::Over {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut self.begun);
            let said_all = match state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut data, &mut self.unsent);
                    false
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    false
                }
                _ => true,
            };
            self.begun.drain(..discard);
            if said_all {
                return;
            }
        }
    }

    /// Seals the word that nothing more is sent (RFC 8446 section 6.1); false where that is said
    /// or can't be.
    pub fn close(&mut self) -> bool {
        let open = matches!(self.stage, Stage::Open | Stage::ClientDone);
        self.say();
        self.stage = Stage::Over;
        if !open {
            return false;
        }
        let state = self.connection.process_tls_records(&mut self.begun).state;
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = state else { return false };
        append(&mut self.unsent, |room| match traffic.queue_close_notify(room) {
            Err(EncryptError::InsufficientSize(e)) => Err(e.required_size),
            sealed => Ok(sealed.unwrap_or(0)),
        })
    }

    /// Seals what waits in the outbox and writes until both are empty or the socket is full. Gives
    /// what [`Outbox::flush`] gives; the bytes are the sealed ones.
    ///
    /// # Errors
    /// What the socket says, or that no more can be sealed; the connection is lost then.
    pub fn flush(
        &mut self,
        outbox: &mut Outbox,
        socket: &mut impl Write,
        buffers: &mut Buffers,
    ) -> Flushed {
        let (mut written, mut writes) = (0, 0);
        loop {
            self.say();
            let n = write(socket, &self.unsent, &mut writes)?;
            written += n;
            if n < self.unsent.len() {
                self.unsent.drain(..n);
                return Ok((Flush::Blocked, written, writes));
            }
            self.unsent = Vec::new();
            if outbox.bytes() == 0 {
                return Ok((Flush::Empty, written, writes));
            }
            buffers.plain.clear();
            outbox.copy(&mut buffers.plain, SEALED_BYTES_MAX);
            let sealed = self.seal(&buffers.plain, &mut buffers.sealed)?;
            outbox.advance(buffers.plain.len());
            let sealed = buffers.sealed.get(..sealed).unwrap_or_default();
            let n = write(socket, sealed, &mut writes)?;
            written += n;
            self.unsent = sealed.get(n..).unwrap_or_default().to_vec();
            if n < sealed.len() {
                return Ok((Flush::Blocked, written, writes));
            }
        }
    }

    fn seal(&mut self, plain: &[u8], sealed: &mut [u8]) -> io::Result<usize> {
        if self.stage == Stage::Over {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let state = self.connection.process_tls_records(&mut self.begun).state;
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = state else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        traffic.encrypt(plain, sealed).map_err(|_| io::ErrorKind::NotConnected.into())
    }

    /// Bytes that were sealed and that the socket has not taken.
    pub fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Takes those bytes, for who writes them once and leaves.
    pub fn take_unsent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }

    /// Is the client's hello answered, which is what costs much time? To ask for another one is no
    /// answer (RFC 8446 section 4.1.4).
    pub fn has_answered(&self) -> bool {
        match self.connection.handshake_kind() {
            None => false,
            Some(HandshakeKind::FullWithHelloRetryRequest) => {
                self.connection.negotiated_key_exchange_group().is_some()
            }
            Some(HandshakeKind::Full | HandshakeKind::Resumed) => true,
        }
    }

    /// Did it go on from an earlier one?
    pub fn was_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

fn encode(data: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) {
    append(out, |room| match data.encode(room) {
        Err(EncodeError::InsufficientSize(e)) => Err(e.required_size),
        encoded => Ok(encoded.unwrap_or(0)),
    });
}

/// Lets `encode` append to `out`; it says how much room it needs. False if it had nothing to say.
fn append(out: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Result<usize, usize>) -> bool {
    let before = out.len();
    let encoded = encode(&mut []).or_else(|needed| {
        out.resize(before + needed, 0);
        encode(&mut out[before..])
    });
    out.truncate(before + encoded.unwrap_or(0));
    out.len() > before
}

/// Writes as much as the socket takes.
fn write(socket: &mut impl Write, bytes: &[u8], writes: &mut u64) -> io::Result<usize> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        *writes += 1;
        match socket.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => written += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(written)
}

/// The worker's sessions, by the index of the connection's slot.
#[derive(Default)]
pub struct Sessions {
    all: SideTable<Option<Box<Session>>>,
    used: usize,
}

impl Sessions {
    /// The connection's session, if it has one.
    pub fn get(&mut self, index: u32) -> Option<&mut Session> {
        self.all.place(index)?.as_deref_mut()
    }

    /// Gives a connection its session.
    pub fn insert(&mut self, index: u32, session: Session) {
        let before = self.all.make(index).replace(Box::new(session));
        self.used += usize::from(before.is_none());
    }

    /// Takes a connection's session away.
    pub fn remove(&mut self, index: u32) -> Option<Box<Session>> {
        let session = self.all.place(index)?.take();
        self.used -= usize::from(session.is_some());
        session
    }

    /// How many there are.
    pub fn used(&self) -> usize {
        self.used
    }
}
