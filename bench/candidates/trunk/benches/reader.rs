//! Who has the trunk: reads it, decodes each frame once, hands over, and writes what the workers
//! have for the brain. Runs as a thread of its own, or as a part of the first worker.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use halley_link::Deframer;
use mio::net::UnixStream;
use mio::{Events, Interest, Poll};

use crate::frames;
use crate::ring::{Batch, Entry, Event, HandOver, Shared};
use crate::worker::LINK;

/// At most so much becomes one batch.
const READ_BYTES_PER_ROUND: usize = 262_144;

pub struct Reader {
    listener: UnixListener,
    socket: Option<UnixStream>,
    deframer: Deframer,
    out: Vec<u8>,
    shared: Arc<Shared>,
    /// For each worker what is being gathered for it; empty between two hand-overs.
    entries: Vec<Vec<Entry>>,
    readable: bool,
}

impl Reader {
    pub fn new(path: &Path, shared: Arc<Shared>, workers: usize) -> Reader {
        let listener = UnixListener::bind(path).unwrap();
        let (deframer, out) = (Deframer::new(), Vec::new());
        let entries = (0..workers).map(|_| Vec::new()).collect();
        Reader { listener, socket: None, deframer, out, shared, entries, readable: true }
    }

    /// Waits for the brain.
    pub fn accept(&mut self, poll: &Poll) {
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut socket = UnixStream::from_std(socket);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut socket, LINK, interest).unwrap();
        self.socket = Some(socket);
    }

    /// As a thread of its own.
    pub fn run(mut self, mut poll: Poll) {
        let mut events = Events::with_capacity(16);
        self.accept(&poll);
        loop {
            self.round();
            let sleeps = !self.readable && self.shared.owner_sleeps();
            let pause = (!sleeps).then_some(std::time::Duration::ZERO);
            poll.poll(&mut events, pause).unwrap();
            self.shared.owner_awake();
            if events.iter().any(|event| event.token() == LINK) {
                self.readable = true;
            }
        }
    }

    pub fn became_readable(&mut self) {
        self.readable = true;
    }

    pub fn may_sleep(&self) -> bool {
        !self.readable && self.shared.owner_sleeps()
    }

    /// Reads and hands over what there is, and writes.
    pub fn round(&mut self) {
        let mut read = 0;
        while self.readable && read < READ_BYTES_PER_ROUND {
            read += self.read();
        }
        if read > 0 {
            self.hand_over();
        }
        self.write();
    }

    /// A short read leaves nothing behind.
    fn read(&mut self) -> usize {
        let space = self.deframer.space();
        let room = space.len();
        let result = self.socket.as_mut().unwrap().read(space);
        match result {
            Ok(0) => std::process::exit(0),
            Ok(n) => {
                self.deframer.filled(n);
                self.readable = n == room;
                n
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                0
            }
            Err(e) => panic!("trunk: {e}"),
        }
    }

    fn hand_over(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut batch = Batch { bytes: Vec::new(), events: Vec::new(), cost: 0, shared };
        let entries = &mut self.entries;
        while let Some(raw) = self.deframer.next().unwrap() {
            let start = batch.bytes.len();
            batch.bytes.extend_from_slice(raw.payload);
            batch.cost += raw.cost;
            match raw.kind {
                frames::DELIVER => deliver(raw.payload, start, &mut batch.events, entries),
                frames::RESPONSE => {
                    let (worker, _) = frames::split(frames::conn(&raw.payload[..8]));
                    let payload = (start as u32, raw.payload.len() as u32);
                    entries[worker].push(Entry::Response { payload });
                }
                kind => panic!("frame {kind}"),
            }
        }
        let batch = Arc::new(batch);
        for (worker, entries) in entries.iter_mut().enumerate() {
            if !entries.is_empty() {
                let (batch, entries) = (Arc::clone(&batch), std::mem::take(entries));
                self.shared.hand_over(worker, HandOver { batch, entries });
            }
        }
    }

    fn write(&mut self) {
        self.shared.take_outbound(&mut self.out);
        while let Some(bytes) = self.shared.credit() {
            frames::credit(&mut self.out, bytes);
        }
        while !self.out.is_empty() {
            match self.socket.as_mut().unwrap().write(&self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => panic!("trunk: {e}"),
            }
        }
    }
}

/// The connections are sorted, so those of a worker stand together.
fn deliver(payload: &[u8], start: usize, events: &mut Vec<Event>, entries: &mut [Vec<Entry>]) {
    let deliver = frames::deliver(payload).unwrap();
    let place = |part: &[u8]| start + (part.as_ptr() as usize - payload.as_ptr() as usize);
    let event = events.len() as u32;
    let json = (place(deliver.json) as u32, deliver.json.len() as u32);
    events.push(Event { shard: deliver.shard, seq: deliver.seq, at: deliver.at, json });
    let of = |word: &[u8]| frames::split(frames::conn(word)).0;
    let mut at = place(deliver.conns) as u32;
    for run in deliver.conns.as_chunks::<8>().0.chunk_by(|a, b| of(a) == of(b)) {
        let length = 8 * run.len() as u32;
        entries[of(&run[0])].push(Entry::Deliver { event, conns: (at, length) });
        at += length;
    }
}
