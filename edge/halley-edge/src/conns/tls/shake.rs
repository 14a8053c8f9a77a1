//! TLS on a worker's connections (http.md 15): handshakes, and what stands between a socket and
//! the rest, which reads and writes plain text. The records themselves are `session.rs`'s.
//!
//! A handshake is the one thing here that costs much time, so those that can go on wait for their
//! turn (`handshakes.rs`), and a round goes on with them for [`ROUND_TIME`] only. Until a
//! connection had its first turn it is a slot and nothing more.
//!
//! Bounds: a handshake ends after `tls_handshake_ms_max`, or when its client has sent more than
//! [`HANDSHAKE_BYTES_MAX`](crate::conns::tls::session::HANDSHAKE_BYTES_MAX). Until then it keeps
//! rustls's state, what of those bytes is not complete yet, and of our own words what the socket
//! didn't take: as many do that as there may be newcomers (http.md 16.5), who are the first to go.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use halley_link::CloseReason;
use halley_wire::HttpError;
use rustls::{CertificateError, Error, OtherError};

use crate::conns::table::{Phase, Table, flag};
use crate::conns::tls::handshakes::Handshakes;
use crate::conns::tls::session::{Buffers, RECORD_BYTES_MAX, Session, Sessions, Stage};
use crate::http::read::READS_PER_TURN;
use crate::log;
use crate::outbox::{self, Flushed, Outbox};
use crate::stats::Stat;
use crate::worker::Worker;

/// How long one round may go on with handshakes; the one that passes it is finished. An ECDSA
/// handshake takes a tenth of it, RSA a good part (`docs/internals/tls.md`).
const ROUND_TIME: Duration = Duration::from_millis(4);
/// The first byte of a TLS client (RFC 8446 section 5.1: a record of type handshake).
const HANDSHAKE_RECORD: u8 = 22;

/// Answer to plain HTTP where TLS is spoken.
const HTTPS_EXPECTED: HttpError = HttpError::new(
    400,
    "https_expected",
    "This port speaks TLS: use https:// (or wss://) instead of http:// in the address.",
);

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

impl Worker {
    /// The first phase of a connection that was accepted.
    pub(crate) fn begin(&mut self, index: u32, api: bool) {
        if !self.shared.certificates.has(api) {
            return self.set_deadline(index, self.settings.first_byte_ms_max);
        }
        if let Some(slot) = self.table.get(index) {
            slot.phase = Phase::Handshake;
        }
        self.set_deadline(index, self.settings.tls_handshake_ms_max);
    }

    /// Has the connection a session that is to be read by its records?
    pub(crate) fn is_sealed(&mut self, index: u32) -> bool {
        let closing = self.table.get(index).is_none_or(|slot| slot.phase == Phase::Closing);
        !closing && self.tls.as_mut().is_some_and(|tls| tls.sessions.get(index).is_some())
    }

    /// Does a handshake wait for its turn?
    pub(crate) fn handshakes_wait(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.handshakes.is_empty())
    }

    /// A handshake can go on: in its turn.
    pub(crate) fn handshake_readable(&mut self, index: u32) {
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
            None => tls.handshakes.begin(&mut self.table, conn, self.now_ms),
        }
    }

    /// Goes on with handshakes, for a bounded time.
    pub(crate) fn shake_hands(&mut self) {
        if !self.handshakes_wait() {
            return;
        }
        let started = Instant::now();
        let (now_ms, most_ms) = (self.now_ms, self.settings.tls_handshake_ms_max);
        while started.elapsed() < ROUND_TIME {
            let next = self.tls.as_mut().and_then(|tls| tls.handshakes.next(now_ms, most_ms));
            let Some(turn) = next else { return };
            let Some((index, slot)) = self.table.find(turn.conn) else { continue };
            if slot.phase != Phase::Handshake || !slot.clear(flag::UNREAD) {
                continue;
            }
            if turn.late {
                self.handshake_late(index);
            } else {
                self.handshake(index, turn.since_ms);
            }
        }
    }

    /// One read of a handshake that waits since then, if this is its first turn.
    fn handshake(&mut self, index: u32, since_ms: u64) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let opened = self.read_records(index, 0, |worker, bytes, new| {
            worker.make_session(index, bytes, since_ms)?;
            Some(worker.unseal(index, bytes, new, &mut scratch).unwrap_or(0))
        });
        if let Some(opened) = opened {
            self.shaken(index, scratch.get(..opened).unwrap_or_default());
        }
        self.scratch = scratch;
    }

    /// Reads once, behind what was kept of a record: `room` bytes at most, or those of a record.
    /// Gives what `open` makes of it all, of which so many bytes are new; `None` as
    /// [`Worker::read_socket`] does.
    fn read_records<T>(
        &mut self,
        index: u32,
        room: usize,
        open: impl FnOnce(&mut Worker, &mut [u8], usize) -> Option<T>,
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

    /// Gives the connection its session, if it has none; `None` if there is none for it.
    fn make_session(&mut self, index: u32, bytes: &[u8], since_ms: u64) -> Option<()> {
        let api = self.table.get(index)?.has(flag::API);
        let tls = self.tls.as_mut()?;
        if tls.sessions.get(index).is_some() {
            return Some(());
        }
        if !is_tls(bytes) {
            self.not_tls(index, bytes);
            return None;
        }
        let Ok(mut session) = Session::new(self.shared.certificates.config(api)?) else {
            self.drop_connection(index, CloseReason::Client);
            return None;
        };
        session.since_ms = since_ms;
        tls.sessions.insert(index, session);
        Some(())
    }

    /// After a read: is the handshake over? Its client may have sent its first request with it.
    fn shaken(&mut self, index: u32, plain: &[u8]) {
        let Some(tls) = self.tls.as_mut() else { return };
        let Some(session) = tls.sessions.get(index) else { return };
        let (stage, resumed) = (session.stage, session.was_resumed());
        let Some(slot) = self.table.get(index).filter(|s| s.phase == Phase::Handshake) else {
            return;
        };
        if stage == Stage::Handshake {
            // The socket may have more.
            return self.handshake_readable(index);
        }
        slot.phase = Phase::Http;
        self.stats.count(Stat::TlsHandshakes);
        self.stats.add(Stat::TlsResumed, resumed.into());
        self.set_deadline(index, self.settings.request_ms_max);
        self.turn_is_over(index);
        self.http_bytes(index, plain);
    }

    /// A client that speaks something else.
    fn not_tls(&mut self, index: u32, bytes: &[u8]) {
        let is_method = bytes.first().is_some_and(u8::is_ascii_uppercase);
        if !is_method {
            self.stats.count(Stat::TlsBroken);
            return self.drop_connection(index, CloseReason::Client);
        }
        self.stats.count(Stat::HttpsExpected);
        if let Some(slot) = self.table.get(index) {
            slot.phase = Phase::Http;
        }
        self.refuse(index, &HTTPS_EXPECTED);
    }

    /// A client begins with TLS inside of what is spoken here. To one that meant to speak it, the
    /// answer in plain text is the usual sign of a port without it.
    pub(crate) fn tls_unexpected(&mut self, index: u32) {
        if self.stats.get(Stat::TlsUnexpected) == 0 {
            let api = self.table.get(index).is_some_and(|slot| slot.has(flag::API));
            let key = if api { "api" } else { "public" };
            log!("{key}.listen: a client speaks TLS; set {key}.tls.certificate, or use http://");
        }
        self.stats.count(Stat::TlsUnexpected);
    }

    /// Reads records once, as [`Worker::read`] reads bytes. Beyond `room` come at most those of one
    /// record, as a record can't be read in parts.
    pub(crate) fn read_sealed(
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
            let opened = self.read_records(index, room, |worker, bytes, new| {
                worker.unseal(index, bytes, new, plain)
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

    /// So many bytes were sealed that no outbox knows of; they are written when the round settles.
    fn sealed(&mut self, index: u32, bytes: usize) {
        let Some(slot) = self.table.get(index).filter(|_| bytes > 0) else { return };
        self.stats.add(Stat::OutboxBytes, bytes as u64);
        if slot.outbox == outbox::NONE {
            slot.outbox = self.pool.lend();
        }
        if !slot.has(flag::DIRTY) {
            slot.set(flag::DIRTY);
            self.dirty.push(index);
        }
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
        self.close_after_flush(index, CloseReason::Protocol);
    }

    /// A handshake that took too long, or waited too long for its first turn.
    pub(crate) fn handshake_late(&mut self, index: u32) {
        self.stats.count(Stat::TlsLate);
        self.drop_connection(index, CloseReason::Client);
    }

    /// Says that nothing more is sent, if that can be said and was not: then it waits to be
    /// written.
    pub(crate) fn close_tls(&mut self, index: u32) -> bool {
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
    pub(crate) fn end_tls(&mut self, index: u32) {
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
    pub(crate) fn count_tls(&mut self) {
        let Some(tls) = self.tls.as_ref() else { return };
        self.stats.set(Stat::TlsConnections, tls.sessions.used() as u64);
        if self.index == 0 {
            let certificates = &self.shared.certificates;
            let read = certificates.read.load(Ordering::Relaxed);
            let unusable = certificates.unusable.load(Ordering::Relaxed);
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
