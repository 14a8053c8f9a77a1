//! A worker, whatever feeds it: a link of its own, a ring, or the trunk that it reads itself. As in
//! `edge/halley-edge/src/worker/mod.rs` nothing is written before the round's input was dealt with,
//! and what is for one connection leaves in one write.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halley_link::{Cursor, Deframer};
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Token};

use crate::frames::{self, WINDOW_BYTES};
use crate::reader::Reader;
use crate::ring::{Entry, Shared};
use crate::{LINE_BYTES, PIECE_BYTES};

pub const WAKE: Token = Token(usize::MAX - 1);
pub const LINK: Token = Token(usize::MAX - 2);

const READ_BYTES_PER_ROUND: usize = 2_097_152;
const SHARDS: u8 = 8;

/// A link of the worker's own.
pub struct Link {
    listener: UnixListener,
    socket: Option<UnixStream>,
    deframer: Deframer,
    readable: bool,
    dealt: usize,
}

pub enum Feed {
    Link(Link),
    Ring,
    Reader(Reader),
}

impl Feed {
    pub fn link(path: &Path) -> Feed {
        let listener = UnixListener::bind(path).unwrap();
        let deframer = Deframer::new();
        Feed::Link(Link { listener, socket: None, deframer, readable: true, dealt: 0 })
    }
}

struct Conn {
    socket: TcpStream,
    outbox: Vec<u8>,
}

pub struct Worker {
    index: usize,
    poll: Poll,
    feed: Option<Feed>,
    shared: Arc<Shared>,
    conns: Conns,
    /// Frames for the brain.
    out: Vec<u8>,
}

/// What is delivered to.
struct Conns {
    /// Streams, then publishers.
    all: Vec<Conn>,
    dirty: Vec<usize>,
    cursor: Cursor,
    piece: Vec<u8>,
}

impl Worker {
    pub fn new(index: usize, poll: Poll, feed: Feed, shared: Arc<Shared>) -> Worker {
        let mut cursor = Cursor::decode(b"AQAAAAAAAAAAAAAAAAAAAAAA").unwrap();
        for shard in 1..=SHARDS {
            assert!(cursor.pass(shard, 1_000, 0));
        }
        let conns = Conns { all: Vec::new(), dirty: Vec::new(), cursor, piece: Vec::new() };
        Worker { index, poll, feed: Some(feed), shared, conns, out: Vec::new() }
    }

    /// Clients connect in the order of their places: the streams first.
    pub fn run(mut self, listener: &TcpListener, streams: usize, publishers: usize) {
        for place in 0..streams + publishers {
            let (socket, _) = listener.accept().unwrap();
            socket.set_nodelay(true).unwrap();
            socket.set_nonblocking(true).unwrap();
            let mut socket = TcpStream::from_std(socket);
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut socket, Token(place), interest).unwrap();
            self.conns.all.push(Conn { socket, outbox: Vec::new() });
        }
        match self.feed.as_mut() {
            Some(Feed::Link(link)) => {
                let (socket, _) = link.listener.accept().unwrap();
                socket.set_nonblocking(true).unwrap();
                let mut socket = UnixStream::from_std(socket);
                let interest = Interest::READABLE | Interest::WRITABLE;
                self.poll.registry().register(&mut socket, LINK, interest).unwrap();
                link.socket = Some(socket);
            }
            Some(Feed::Reader(reader)) => reader.accept(&self.poll),
            _ => {}
        }
        self.rounds(streams);
    }

    fn rounds(&mut self, streams: usize) {
        let mut events = Events::with_capacity(1_024);
        loop {
            let pause = (!self.may_sleep()).then_some(Duration::ZERO);
            self.poll.poll(&mut events, pause).unwrap();
            self.awake();
            for event in &events {
                match event.token() {
                    WAKE => {}
                    LINK => match self.feed.as_mut() {
                        Some(Feed::Link(link)) => link.readable = true,
                        Some(Feed::Reader(reader)) => reader.became_readable(),
                        _ => {}
                    },
                    Token(place) if place >= streams && event.is_readable() => self.requests(place),
                    Token(_) => {}
                }
            }
            let mut feed = self.feed.take().unwrap();
            self.deal(&mut feed);
            self.feed = Some(feed);
            self.conns.flush();
            self.flush_link();
        }
    }

    fn may_sleep(&self) -> bool {
        match self.feed.as_ref().unwrap() {
            Feed::Link(link) => !link.readable,
            Feed::Ring => self.shared.sleeps(self.index),
            Feed::Reader(reader) => reader.may_sleep() && self.shared.sleeps(self.index),
        }
    }

    fn awake(&self) {
        if let Feed::Reader(_) = self.feed.as_ref().unwrap() {
            self.shared.owner_awake();
        }
        if !matches!(self.feed, Some(Feed::Link(_))) {
            self.shared.awake(self.index);
        }
    }

    /// A publisher has one line on its way, so a read has it whole.
    fn requests(&mut self, place: usize) {
        let mut line = [0; 4 * LINE_BYTES];
        match self.conns.all[place].socket.read(&mut line) {
            Ok(LINE_BYTES) => {
                let worker = if let Some(Feed::Link(_)) = self.feed { 0 } else { self.index };
                let conn = frames::join(worker, place);
                frames::request(&mut self.out, conn, &line[..LINE_BYTES]);
            }
            Ok(0) => std::process::exit(0),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            other => panic!("publisher: {other:?}"),
        }
    }

    fn deal(&mut self, feed: &mut Feed) {
        match feed {
            Feed::Link(link) => self.conns.deal_link(link),
            Feed::Ring => {}
            Feed::Reader(reader) => reader.round(),
        }
        if let Feed::Link(link) = feed {
            if link.dealt >= WINDOW_BYTES / 4 {
                frames::credit(&mut self.out, link.dealt.min(WINDOW_BYTES / 2) as u32);
                link.dealt -= link.dealt.min(WINDOW_BYTES / 2);
            }
            return;
        }
        for hand_over in self.shared.take(self.index) {
            let batch = hand_over.batch;
            for entry in hand_over.entries {
                match entry {
                    Entry::Deliver { event, conns } => {
                        let event = &batch.events[event as usize];
                        let (json, conns) = (batch.at(event.json), batch.at(conns));
                        self.conns.deliver(event.shard, event.seq, event.at, json, conns);
                    }
                    Entry::Response { payload } => self.conns.response(batch.at(payload)),
                }
            }
        }
    }

    fn flush_link(&mut self) {
        if let Some(Feed::Reader(reader)) = self.feed.as_mut() {
            if !self.out.is_empty() {
                self.shared.send(&mut self.out);
            }
            return reader.round();
        }
        if self.out.is_empty() {
            return;
        }
        match self.feed.as_mut() {
            Some(Feed::Link(link)) => {
                let n = link.socket.as_mut().unwrap().write(&self.out).unwrap();
                assert_eq!(n, self.out.len(), "the link takes requests and credit at once");
                self.out.clear();
            }
            _ => self.shared.send(&mut self.out),
        }
    }
}

impl Conns {
    fn deal_link(&mut self, link: &mut Link) {
        let mut read = 0;
        while link.readable && read < READ_BYTES_PER_ROUND {
            let space = link.deframer.space();
            let room = space.len();
            match link.socket.as_mut().unwrap().read(space) {
                Ok(0) => std::process::exit(0),
                Ok(n) => {
                    read += n;
                    link.deframer.filled(n);
                    link.readable = n == room;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => link.readable = false,
                Err(e) => panic!("link: {e}"),
            }
            while let Some(raw) = link.deframer.next().unwrap() {
                link.dealt += raw.cost;
                match raw.kind {
                    frames::DELIVER => {
                        let d = frames::deliver(raw.payload).unwrap();
                        self.deliver(d.shard, d.seq, d.at, d.json, d.conns);
                    }
                    frames::RESPONSE => self.response(raw.payload),
                    kind => panic!("frame {kind}"),
                }
            }
        }
    }

    /// The event as SSE, with the cursor made here (10.9), filled to one length.
    fn deliver(&mut self, shard: u8, seq: u64, at: u64, json: &[u8], conns: &[u8]) {
        assert!(self.cursor.pass(shard, seq, at));
        self.piece.clear();
        self.piece.extend_from_slice(json);
        self.piece.extend_from_slice(b"\nid: ");
        self.cursor.encode(&mut self.piece);
        self.piece.resize(PIECE_BYTES, b'\n');
        for word in conns.as_chunks::<8>().0 {
            let (_, place) = frames::split(frames::conn(word));
            let conn = &mut self.all[place];
            if conn.outbox.is_empty() {
                self.dirty.push(place);
            }
            conn.outbox.extend_from_slice(&self.piece);
        }
    }

    fn response(&mut self, payload: &[u8]) {
        let (_, place) = frames::split(frames::conn(&payload[..8]));
        let conn = &mut self.all[place];
        if conn.outbox.is_empty() {
            self.dirty.push(place);
        }
        conn.outbox.extend_from_slice(&payload[payload.len() - LINE_BYTES..]);
    }

    fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|place| {
            let conn = &mut self.all[*place];
            match conn.socket.write(&conn.outbox) {
                Ok(n) => drop(conn.outbox.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => panic!("client: {e}"),
            }
            !conn.outbox.is_empty()
        });
        self.dirty = dirty;
    }
}
