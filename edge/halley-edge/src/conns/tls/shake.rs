//! TLS on a worker's connections (http.md 15): handshakes, and what stands between a socket and
//! the rest, which reads and writes plain text. The records themselves are `session.rs`'s.
//!
//! A handshake is the one thing here that costs much time, so those that can go on wait for their
//! turn (`handshakes.rs`), and a round goes on with them for [`ROUND_TIME`] only. Until a
//! connection had its first turn it is a slot and nothing more.
//!
//! Bounds: a handshake ends after `tls_handshake_ms_max`, or when its client has sent more than
//! `HANDSHAKE_BYTES_MAX` (`session.rs`). Until then it keeps rustls's state, what of those bytes is
//! not complete yet, and of our own words what the socket didn't take: as many do that as there may
//! be pending connections (http.md 16.5), the first that are closed for others.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use halley_link::CloseReason;
use rustls::{CertificateError, Error, OtherError};

use crate::conns::read::READS_PER_TURN;
use crate::conns::table::{Phase, Table, flag};
use crate::conns::tls::handshakes::Handshakes;
use crate::conns::tls::session::{Buffers, RECORD_BYTES_MAX, Session, Sessions, Stage};
use crate::conns::{Conns, Hung};
use crate::log;
use crate::outbox::{Flushed, Outbox};
use crate::stats::Stat;

/// How long one round may go on with handshakes; the one that passes it is finished. An ECDSA
/// handshake takes a tenth of it, RSA a good part (`docs/internals/tls.md`).
const ROUND_TIME: Duration = Duration::from_millis(4);
/// The first byte of a TLS client (RFC 8446 section 5.1: a record of type handshake).
const HANDSHAKE_RECORD: u8 = 22;

/// What a turn of a handshake came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Turned {
    /// It goes on, or has failed.
    Nothing,
    /// It is over: the connection speaks HTTP. Its client may have sent so many bytes with it.
    Done(usize),
    /// The client speaks plain HTTP.
    Plain,
}

/// A worker's TLS.
#[derive(Default)]
pub struct Tls {
    sessions: Sessions,
    buffers: Buffers,
    /// Those that can go on.
    handshakes: Handshakes,
}

impl Tls {
    /// Seals and writes what waits; `None` for a connection that is not one of TLS. Beside what
    /// [`Outbox::flush`] gives: the sealed bytes that wait now, and those that did before.
    pub fn flush(
        &mut self,
        index: u32,
        outbox: &mut Outbox,
        socket: &mut impl Write,
    ) -> Option<(Flushed, usize, usize)> {
        let session = self.sessions.get(index)?;
        let before = session.unsent();
        let flushed = session.flush(outbox, socket, &mut self.buffers);
        Some((flushed, session.unsent(), before))
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self, table: &mut Table<impl Default>) {
        self.handshakes.trim(table);
    }

    /// Sealed bytes of a connection that wait for its socket.
    pub fn unsent(&mut self, index: u32) -> usize {
        self.sessions.get(index).map_or(0, |session| session.unsent())
    }
}

/// Does a client begin with TLS?
pub fn is_tls(bytes: &[u8]) -> bool {
    bytes.first() == Some(&HANDSHAKE_RECORD)
}

impl<D: Hung> Conns<D> {
    /// The first phase of a connection that was accepted.
    pub fn begin(&mut self, index: u32, api: bool) {
        if !self.certificates.has(api) {
            return self.set_deadline(index, self.settings.first_byte_ms_max);
        }
        self.become_of(index, Phase::Handshake);
        self.set_deadline(index, self.settings.tls_handshake_ms_max);
    }

    /// Does any listener speak TLS?
    pub fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Has the connection a session that is to be read by its records?
    pub(in crate::conns) fn is_sealed(&mut self, index: u32) -> bool {
        let closing = self.table.get(index).is_none_or(|slot| slot.phase() == Phase::Closing);
        !closing && self.tls.as_mut().is_some_and(|tls| tls.sessions.get(index).is_some())
    }

    /// Does a handshake wait for its turn?
    pub fn handshakes_wait(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.handshakes.is_empty())
    }

    /// A handshake can go on: in its turn.
    pub fn handshake_readable(&mut self, index: u32) {
        let conn = self.table.conn(index);
        let (Some(slot), Some(tls)) = (self.table.get(index), self.tls.as_mut()) else { return };
        if slot.has(flag::UNREAD) {
            return;
        }
        slot.set(flag::UNREAD);
        match tls.sessions.get(index) {
            Some(session) if session.has_answered() => {
                tls.handshakes.go_on(&mut self.table, conn);
            }
            Some(session) => tls.handshakes.begin(&mut self.table, conn, session.since_ms),
            None => tls.handshakes.begin(&mut self.table, conn, self.clock.now_ms),
        }
    }

    /// The next handshake whose turn it is, if there is time for another since `started`, and since
    /// when it waits if this is its first turn.
    pub fn next_handshake(&mut self, started: Instant) -> Option<(u32, u64)> {
        let (now_ms, most_ms) = (self.clock.now_ms, self.settings.tls_handshake_ms_max);
        while started.elapsed() < ROUND_TIME {
            let turn = self.tls.as_mut()?.handshakes.next(now_ms, most_ms)?;
            let Some((index, slot)) = self.find(turn.conn) else { continue };
            if slot.phase() != Phase::Handshake || !slot.clear(flag::UNREAD) {
                continue;
            }
            if !turn.late {
                return Some((index, turn.since_ms));
            }
            self.handshake_late(index);
        }
        None
    }

    /// One read of a handshake. `plain` gets what the client sent behind it, and is as long as what
    /// is read at once.
    pub fn handshake(&mut self, index: u32, since_ms: u64, plain: &mut [u8]) -> Turned {
        let mut is_plain = false;
        let opened = self.read_records(index, 0, |conns, bytes, new| {
            is_plain = conns.make_session(index, bytes, since_ms)?;
            if is_plain { None } else { Some(conns.unseal(index, bytes, new, plain).unwrap_or(0)) }
        });
        match opened {
            _ if is_plain => Turned::Plain,
            Some(opened) if self.is_shaken(index) => Turned::Done(opened),
            _ => Turned::Nothing,
        }
    }

    /// Reads once, behind what was kept of a record: `room` bytes at most, or those of a record.
    /// Gives what `open` makes of it all, of which so many bytes are new; `None` as
    /// [`Conns::read_socket`] does.
    fn read_records<T>(
        &mut self,
        index: u32,
        room: usize,
        open: impl FnOnce(&mut Self, &mut [u8], usize) -> Option<T>,
    ) -> Option<T> {
        let tls = self.tls.as_mut()?;
        let mut incoming = std::mem::take(&mut tls.buffers.incoming);
        let begun = tls.sessions.get(index).map_or(0, |session| session.begin(&mut incoming));
        let end = incoming.len().min(begun + room.max(RECORD_BYTES_MAX));
        let read = incoming.get_mut(begun..end).and_then(|room| self.read_socket(index, room));
        let opened = read.and_then(|new| open(self, incoming.get_mut(..begun + new)?, new));
        if let Some(tls) = self.tls.as_mut() {
            tls.buffers.incoming = incoming;
        }
        opened
    }

    /// Gives the connection its session, if it has none; true if it speaks plain HTTP instead,
    /// `None` if it is doomed.
    fn make_session(&mut self, index: u32, bytes: &[u8], since_ms: u64) -> Option<bool> {
        let api = self.table.get(index)?.has(flag::API);
        let tls = self.tls.as_mut()?;
        if tls.sessions.get(index).is_some() {
            return Some(false);
        }
        if !is_tls(bytes) {
            return self.not_tls(index, bytes);
        }
        let Ok(mut session) = Session::new(self.certificates.config(api)?) else {
            self.doom(index, CloseReason::Client);
            return None;
        };
        session.since_ms = since_ms;
        tls.sessions.insert(index, session);
        Some(false)
    }

    /// After a read: is the handshake over? Its client may have sent its first request with it.
    fn is_shaken(&mut self, index: u32) -> bool {
        if !self.is_in(index, Phase::Handshake) {
            return false;
        }
        let Some(session) = self.tls.as_mut().and_then(|tls| tls.sessions.get(index)) else {
            return false;
        };
        let (stage, resumed) = (session.stage, session.was_resumed());
        if stage == Stage::Handshake {
            // The socket may have more.
            self.handshake_readable(index);
            return false;
        }
        self.become_of(index, Phase::Http);
        self.stats.count(Stat::TlsHandshakes);
        self.stats.add(Stat::TlsResumed, resumed.into());
        self.set_deadline(index, self.settings.request_ms_max);
        self.turn_is_over(index);
        true
    }

    /// A client that speaks something else; true if that is plain HTTP.
    fn not_tls(&mut self, index: u32, bytes: &[u8]) -> Option<bool> {
        let is_method = bytes.first().is_some_and(u8::is_ascii_uppercase);
        if !is_method {
            self.stats.count(Stat::TlsBroken);
            self.doom(index, CloseReason::Client);
            return None;
        }
        self.stats.count(Stat::HttpsExpected);
        self.become_of(index, Phase::Http);
        Some(true)
    }

    /// A client begins with TLS inside of what is spoken here. To one that meant to speak it, the
    /// answer in plain text is the usual sign of a port without it.
    pub fn tls_unexpected(&mut self, index: u32) {
        if self.stats.get(Stat::TlsUnexpected) == 0 {
            let api = self.table.get(index).is_some_and(|slot| slot.has(flag::API));
            let key = if api { "api" } else { "public" };
            log!("{key}.listen: a client speaks TLS; set {key}.tls.certificate, or use http://");
        }
        self.stats.count(Stat::TlsUnexpected);
    }

    /// Reads records once, as [`Conns::read`] reads bytes. Beyond `room` come at most those of one
    /// record, as a record can't be read in parts.
    pub(in crate::conns) fn read_sealed(
        &mut self,
        index: u32,
        plain: &mut [u8],
        room: usize,
    ) -> Option<usize> {
        for _ in 0..READS_PER_TURN {
            if self.tls.as_mut()?.sessions.get(index)?.stage == Stage::ClientDone {
                self.said_all(index);
                return None;
            }
            let opened = self.read_records(index, room, |conns, bytes, new| {
                conns.unseal(index, bytes, new, plain)
            });
            match opened? {
                0 => {}
                n => return Some(n),
            }
        }
        self.turn_is_over(index);
        None
    }

    /// Opens records; `None` if that was the end of the connection.
    fn unseal(
        &mut self,
        index: u32,
        bytes: &mut [u8],
        new: usize,
        plain: &mut [u8],
    ) -> Option<usize> {
        let session = self.tls.as_mut()?.sessions.get(index)?;
        let before = session.unsent();
        let opened = session.open(bytes, new, plain);
        let said = session.unsent() - before;
        self.sealed(index, said);
        if let Err(error) = &opened {
            self.tls_failed(index, error);
        }
        opened.ok()
    }

    fn tls_failed(&mut self, index: u32, error: &Error) {
        if is_version_1(error) {
            if self.stats.get(Stat::TlsClientVersion1) == 0 {
                log!(
                    "api.tls.client_ca: a client's certificate is of version 1 of X.509 and was \
                     refused; sign one of version 3 (openssl x509 -req takes -extfile)"
                );
            }
            self.stats.count(Stat::TlsClientVersion1);
        }
        self.stats.count(match error {
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => Stat::TlsIncompatible,
            Error::NoCertificatesPresented | Error::InvalidCertificate(_) => Stat::TlsClientRefused,
            Error::AlertReceived(_) => Stat::TlsAlerts,
            _ => Stat::TlsBroken,
        });
        self.doom_gently(index, CloseReason::Protocol);
    }

    /// A handshake that took too long, or waited too long for its first turn.
    pub fn handshake_late(&mut self, index: u32) {
        self.stats.count(Stat::TlsLate);
        self.doom(index, CloseReason::Client);
    }

    /// Says that nothing more is sent, if that can be said and was not: then it waits to be
    /// written.
    pub(in crate::conns) fn close_tls(&mut self, index: u32) -> bool {
        let Some(tls) = self.tls.as_mut() else { return false };
        let Some(session) = tls.sessions.get(index) else { return false };
        let before = session.unsent();
        if !session.close() {
            return false;
        }
        let said = session.unsent() - before;
        self.sealed(index, said);
        true
    }

    /// A connection ends at once: a last word, if the socket takes it, and its session goes.
    pub(in crate::conns) fn end_tls(&mut self, index: u32) {
        let Some(tls) = self.tls.as_mut() else { return };
        let Some(mut session) = tls.sessions.remove(index) else { return };
        let unsent = session.unsent();
        self.stats.sub(Stat::OutboxBytes, unsent as u64);
        let socket = self.table.get(index).and_then(|slot| slot.socket.as_mut());
        if let (Some(socket), true) = (socket, unsent == 0 && session.close()) {
            let _ = socket.write(&session.take_unsent());
        }
    }

    /// What is counted elsewhere; of the process's own figures one worker tells.
    pub fn count_tls(&mut self, index: u16) {
        let Some(tls) = self.tls.as_ref() else { return };
        self.stats.set(Stat::TlsConnections, tls.sessions.used() as u64);
        if index == 0 {
            let read = self.certificates.read.load(Ordering::Relaxed);
            let unusable = self.certificates.unusable.load(Ordering::Relaxed);
            self.stats.set(Stat::CertificatesRead, read);
            self.stats.set(Stat::CertificatesUnusable, unusable);
        }
    }
}

/// What reads certificates says so in an error of its own, of which rustls only knows the name.
fn is_version_1(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(error))) = error else {
        return false;
    };
    format!("{error:?}") == "UnsupportedCertVersion"
}
