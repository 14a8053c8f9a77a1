//! The edge's end of the link: its socket, its two windows, its queue. This file moves bytes and
//! keeps section 4 of `protocol/link.md`; `hello.rs` has the handshake, and `goodbye.rs` the
//! reasons why a link ends. The link is a trunk, one for all workers: `trunk.rs` has the data that
//! the workers share with the thread that owns it, and `brain_link.rs` is one worker's part of it,
//! whichever brain is at its end. `worker/handed.rs` knows the meaning of frames.
//!
//! Invariant: frames are written whole and in order; free frames overtake costly ones only
//! between two frames.

pub mod brain_link;
pub mod goodbye;
pub mod hello;
pub mod trunk;

use std::io::{self, Read, Write};

use halley_link::{Credit, Deframer, Error, Frame};
use mio::net::UnixStream;

/// What this side grants before the brain's settings say how much (5).
pub const WINDOW_BYTES: u32 = 1_048_576;
/// PING is sent this often (4.5).
const HEARTBEAT_MS: u64 = 1_000;
/// Silence for this long ends the link (4.5).
pub const SILENCE_MS: u64 = 10_000;
/// The handshake takes no longer than this (3.5).
const HANDSHAKE_MS_MAX: u64 = 5_000;

/// Free frames that may wait: more than two sides with manners ever have.
const URGENT_BYTES_MAX: usize = 65_536;

/// A link, from the moment the brain connects.
pub struct Link {
    socket: UnixStream,
    deframer: Deframer,
    credit: Option<Credit>,
    /// Costly frames, whole; `sent` bytes of it are written, up to `allowed` there is credit.
    queue: Vec<u8>,
    sent: usize,
    allowed: usize,
    /// Free frames.
    urgent: Vec<u8>,
    /// May the socket have something?
    readable: bool,
    /// Has the poll said that the brain has closed? It won't say so again.
    closing: bool,
    /// Was HELLO_BRAIN understood?
    pub up: bool,
    /// When it was dialled.
    since_ms: u64,
    /// When something was heard last.
    heard_ms: u64,
    /// When PING was sent last.
    pinged_ms: u64,
}

/// What time brought about on the link.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// There was no handshake in time (3.5).
    NoHello,
    /// The brain has been silent for too long (4.5).
    Silence,
}

impl Link {
    /// A link that was just dialled.
    pub fn new(socket: UnixStream, now_ms: u64) -> Link {
        Link {
            socket,
            deframer: Deframer::new(),
            credit: None,
            queue: Vec::new(),
            sent: 0,
            allowed: 0,
            urgent: Vec::new(),
            readable: true,
            closing: false,
            up: false,
            since_ms: now_ms,
            heard_ms: now_ms,
            pinged_ms: now_ms,
        }
    }

    /// The brain granted a window.
    pub fn granted(&mut self, window: u32) {
        self.credit = Some(Credit::new(window));
    }

    /// The brain gave credit back.
    ///
    /// # Errors
    /// 4.3 when it is more than was spent, or came before the hello.
    pub fn credited(&mut self, bytes: u32) -> Result<(), Error> {
        let early = Error { clause: "4.3", what: "credit before the hello" };
        self.credit.as_mut().ok_or(early)?.give(bytes)
    }

    /// Queues a costly frame that is written already, its length first.
    pub fn send_whole(&mut self, frame: &[u8]) {
        self.queue.extend_from_slice(frame);
    }

    /// Queues a frame.
    pub fn send(&mut self, frame: &Frame<'_>) {
        if Frame::costs(frame.kind()) {
            frame.encode(&mut self.queue);
        } else {
            frame.encode(&mut self.urgent);
        }
    }

    /// Bytes that wait.
    pub fn queued(&self) -> usize {
        self.queue.len() - self.sent
    }

    /// Does the brain leave so many free frames unread that there is no end to it?
    pub fn overloaded(&self) -> bool {
        self.urgent.len() > URGENT_BYTES_MAX
    }

    /// The poll tells that the socket has something, and perhaps that the brain has closed.
    pub fn became_readable(&mut self, closing: bool) {
        self.readable = true;
        self.closing |= closing;
    }

    /// May there be something to read?
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Reads once, and gives how many bytes. One read that doesn't fill the space has emptied the
    /// socket, and what comes later is an event of its own: the socket isn't asked again. An end
    /// that came with these bytes is no event any more, so then it is.
    ///
    /// # Errors
    /// Why the link is lost.
    pub fn read(&mut self, now_ms: u64) -> Result<usize, String> {
        let space = self.deframer.space();
        let room = space.len();
        match self.socket.read(space) {
            Ok(0) => Err("the brain closed it".to_owned()),
            Ok(n) => {
                self.deframer.filled(n);
                self.heard_ms = now_ms;
                self.readable = n == room || self.closing;
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(0)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Takes the deframer out, so that its frames can be dealt with while the link is used.
    pub fn take_frames(&mut self) -> Deframer {
        std::mem::take(&mut self.deframer)
    }

    /// Puts the deframer back.
    pub fn put_frames(&mut self, deframer: Deframer) {
        self.deframer = deframer;
    }

    /// Heartbeats and their absence (4.5), the handshake's end (3.5). Silence is judged by
    /// `heard_ms`, up to which everything was read; and not at all if `waits`, while the link isn't
    /// read.
    pub fn on_time(&mut self, now_ms: u64, heard_ms: u64, waits: bool) -> Due {
        if waits {
            // Nobody listens, so there is no silence.
            self.heard_ms = now_ms;
        }
        if !self.up {
            let late = heard_ms > self.since_ms + HANDSHAKE_MS_MAX;
            return if late { Due::NoHello } else { Due::Nothing };
        }
        if heard_ms > self.heard_ms + SILENCE_MS {
            return Due::Silence;
        }
        if now_ms >= self.pinged_ms + HEARTBEAT_MS {
            self.pinged_ms = now_ms;
            self.send(&Frame::Ping { nonce: now_ms });
        }
        Due::Nothing
    }

    /// Writes what credit and socket allow.
    ///
    /// # Errors
    /// What the socket says.
    pub fn flush(&mut self) -> io::Result<()> {
        let result = self.write_all();
        self.reclaim();
        result
    }

    fn write_all(&mut self) -> io::Result<()> {
        loop {
            if self.sent == self.allowed && !self.urgent.is_empty() {
                match self.socket.write(&self.urgent) {
                    Ok(n) if n == self.urgent.len() => self.urgent.clear(),
                    Ok(n) => {
                        // The rest of a free frame must come next: it goes on as if it had been
                        // paid for.
                        let rest = self.urgent.split_off(n);
                        self.queue.splice(self.sent..self.sent, rest.iter().copied());
                        self.allowed += rest.len();
                        self.urgent.clear();
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
                continue;
            }
            self.allow();
            if self.sent == self.allowed {
                return Ok(());
            }
            match self.socket.write(&self.queue[self.sent..self.allowed]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Spends credit on the frames that come next (4.2), not more than 64 KiB ahead of the
    /// writing, so that free frames find a place between two frames soon.
    fn allow(&mut self) {
        const AHEAD_BYTES: usize = 65_536;
        let Some(credit) = self.credit.as_mut() else { return };
        while credit.open() && self.allowed - self.sent < AHEAD_BYTES {
            let Some(prefix) = self.queue[self.allowed..].first_chunk::<4>() else { return };
            let bytes = 4 + u32::from_be_bytes(*prefix) as usize;
            credit.spend(bytes);
            self.allowed += bytes;
        }
    }

    /// Drops what was sent when that is most of the queue; gives the memory back after a burst.
    fn reclaim(&mut self) {
        const KEPT_BYTES: usize = 65_536;
        if self.sent == self.queue.len() {
            self.queue.clear();
            self.queue.shrink_to(KEPT_BYTES);
        } else if self.sent > KEPT_BYTES && self.sent > self.queue.len() / 2 {
            self.queue.drain(..self.sent);
        } else {
            return;
        }
        self.allowed -= self.sent;
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read_all(socket: &mut UnixStream, deframer: &mut Deframer) -> Vec<u8> {
        while let Ok(n) = socket.read(deframer.space()) {
            deframer.filled(n);
        }
        let mut kinds = Vec::new();
        while let Some(raw) = deframer.next().unwrap() {
            kinds.push(raw.kind);
        }
        kinds
    }

    /// Less than there was room for is all there was; the end is looked for where the poll has said
    /// that there is one.
    #[test]
    fn a_short_read_is_the_last_one() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let mut link = Link::new(socket, 0);
        peer.write_all(b"some").unwrap();
        assert_eq!((link.read(1), link.is_readable()), (Ok(4), false));
        link.became_readable(false);
        assert_eq!((link.read(2), link.is_readable()), (Ok(0), false), "nothing");
        let room = link.deframer.space().len();
        peer.write_all(&vec![0; room]).unwrap();
        link.became_readable(false);
        assert_eq!((link.read(3), link.is_readable()), (Ok(room), true), "all it has room for");
        assert_eq!((link.read(3), link.is_readable()), (Ok(0), false));
        peer.write_all(b"last").unwrap();
        drop(peer);
        link.became_readable(true);
        assert_eq!((link.read(4), link.is_readable()), (Ok(4), true));
        assert!(link.read(4).is_err(), "the end that came with it");
    }

    /// 3.5, 4.5: a silent brain is given up, unless the link isn't read.
    #[test]
    fn silence_ends_a_link() {
        let (socket, _peer) = UnixStream::pair().unwrap();
        let mut link = Link::new(socket, 0);
        assert_eq!(link.on_time(5_000, 5_000, false), Due::Nothing);
        assert_eq!(link.on_time(5_001, 5_001, false), Due::NoHello);
        link.up = true;
        assert_eq!(link.on_time(10_000, 10_000, false), Due::Nothing);
        assert_eq!(link.on_time(10_001, 10_001, false), Due::Silence);
        assert_eq!(link.on_time(10_001, 10_001, true), Due::Nothing);
        assert_eq!(link.on_time(20_000, 20_000, false), Due::Nothing);
    }

    /// 4.2, 4.4: costly frames wait for credit, and a ping overtakes them.
    #[test]
    fn a_ping_overtakes_what_waits_for_credit() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let mut link = Link::new(socket, 0);
        let mut frames = Deframer::new();
        link.granted(524_288);
        let body = vec![0; 200_000];
        for _ in 0..10 {
            link.send(&Frame::RequestBody { conn: 1, flags: 0, body: &body });
        }
        let mut kinds = Vec::new();
        for _ in 0..100 {
            link.flush().unwrap();
            kinds.extend(read_all(&mut peer, &mut frames));
        }
        assert_eq!(kinds, [0x46; 3], "the third frame overdraws the window");
        link.send(&Frame::Ping { nonce: 1 });
        link.flush().unwrap();
        assert_eq!(read_all(&mut peer, &mut frames), [0x01]);
        link.credited(500_000).unwrap();
        kinds.clear();
        for _ in 0..100 {
            link.flush().unwrap();
            kinds.extend(read_all(&mut peer, &mut frames));
        }
        assert_eq!(kinds, [0x46; 3]);
        assert!(link.queued() > 4 * body.len());
    }

    /// 4.4: a ping that waits gets its place between two frames though the queue never empties.
    #[test]
    fn a_ping_finds_its_place_in_a_full_queue() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let mut link = Link::new(socket, 0);
        link.granted(100_000_000);
        let body = vec![0; 30_000];
        for _ in 0..200 {
            link.send(&Frame::RequestBody { conn: 1, flags: 0, body: &body });
        }
        link.flush().unwrap();
        link.send(&Frame::Ping { nonce: 1 });
        let (mut frames, mut kinds) = (Deframer::new(), Vec::new());
        while link.queued() > 0 {
            link.flush().unwrap();
            kinds.extend(read_all(&mut peer, &mut frames));
        }
        kinds.extend(read_all(&mut peer, &mut frames));
        let place = kinds.iter().position(|kind| *kind == 0x01);
        assert!(place.is_some_and(|p| p < 20), "{place:?} of {}", kinds.len());
        assert_eq!(kinds.len(), 201);
    }
}
