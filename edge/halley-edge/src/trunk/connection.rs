//! One trunk, from the moment when the brain dials to its end: the link's frames on one side, the
//! workers' rings and outbounds on the other.
//!
//! Invariants: a worker's frames are written in their order, and none of a place that has ended; a
//! worker that has lost its place gets the end of it before the beginning of the next.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use halley_link::trunk::{Begin, Dealt, Demux, End, HANDED_BYTES, Handed, is_left_behind};
use halley_link::{Frame, GoodbyeCode, RawFrame};
use mio::net::UnixStream;

use crate::config::Config;
use crate::link::goodbye::LinkEnd;
use crate::link::hello::{self, Answer};
use crate::link::trunk::{PerWorker, Trunk};
use crate::link::{Due, Link, WINDOW_BYTES};
use crate::log;
use crate::trunk::pace::{BEHIND_LOOK_MS, LOOK_MS, Pace};

/// What is read in one round before it is handed over.
const READ_BYTES_PER_ROUND: usize = 262_144;
/// For so many bytes of the window workers may hold a batch: small ones cost more memory than
/// window. Beyond that nothing is read. A ring counts half of it for each batch ([`HANDED_BYTES`]),
/// so a worker that leaves small ones is left behind before.
const WINDOW_BYTES_PER_BATCH: usize = 2 * HANDED_BYTES;
/// What of the workers' frames is taken ahead of the writing.
const AHEAD_BYTES: usize = 65_536;
/// What of one worker's frames is taken before it is the next one's turn.
const TURN_BYTES: usize = 16_384;
/// How old a worker's cursor grows for which nothing comes.
pub const CURSOR_MS: u64 = 250;

/// See the module.
pub struct Connection {
    link: Link,
    trunk: Arc<Trunk>,
    /// What it grants from the handshake on.
    window: u32,
    demux: Demux,
    dealt: Arc<Dealt>,
    config: Arc<Config>,
    /// The payload of HELLO_BRAIN, for workers whose places begin.
    hello: Option<Arc<[u8]>>,
    /// The workers' places; none before the handshake.
    places: Vec<u64>,
    paces: Vec<Pace>,
    /// Does anybody leave more than half of the window?
    any_full: bool,
    now_ms: u64,
    looked_ms: u64,
    told_ms: u64,
    /// Whose turn it is to be written.
    turn: usize,
}

impl Connection {
    /// One that was just dialled.
    pub fn new(
        socket: UnixStream,
        trunk: &Arc<Trunk>,
        config: &Arc<Config>,
        now_ms: u64,
    ) -> Connection {
        let workers = trunk.workers.len();
        let (demux, dealt) = dealing(trunk, WINDOW_BYTES);
        Connection {
            link: Link::new(socket, now_ms),
            trunk: Arc::clone(trunk),
            window: WINDOW_BYTES,
            demux,
            dealt,
            config: Arc::clone(config),
            hello: None,
            places: vec![0; workers],
            paces: vec![Pace::default(); workers],
            any_full: false,
            now_ms,
            looked_ms: now_ms,
            told_ms: now_ms,
            turn: 0,
        }
    }

    /// The socket has something.
    pub fn became_readable(&mut self, closing: bool) {
        self.link.became_readable(closing);
    }

    /// Is there something to do that no event will tell of?
    pub fn has_more(&self) -> bool {
        let has_room = self.link.up && self.link.queued() < AHEAD_BYTES;
        let waits = |worker: &PerWorker| worker.outbound.bytes() > 0;
        self.may_read() || has_room && self.trunk.workers.iter().any(waits)
    }

    /// Is there something to read, and room for it?
    pub fn may_read(&self) -> bool {
        let batches_max = self.window as usize / WINDOW_BYTES_PER_BATCH;
        self.link.is_readable() && self.dealt.batches() < batches_max
    }

    /// Reads, hands over and writes what there is. `heard_ms` is up to when everything was heard.
    ///
    /// # Errors
    /// Why the trunk ends.
    pub fn round(&mut self, now_ms: u64, heard_ms: u64) -> Result<(), LinkEnd> {
        self.now_ms = now_ms;
        // First, so that whoever has taken what it had is seen to.
        self.end_left_behind();
        let mut read = 0;
        while self.may_read() && read < READ_BYTES_PER_ROUND {
            read += self.link.read(now_ms).map_err(LinkEnd::Goodbye)?;
            self.frames()?;
        }
        self.hand_over();
        self.end_left_behind();
        let waits = self.link.is_readable() && !self.may_read();
        match self.link.on_time(now_ms, heard_ms, waits) {
            Due::Nothing => {}
            Due::NoHello => return Err(late("no hello in time (3.5)", GoodbyeCode::Handshake)),
            Due::Silence => return Err(late("silence (4.5)", GoodbyeCode::Silence)),
        }
        if now_ms >= self.looked_ms + LOOK_MS {
            self.looked_ms = now_ms;
            self.look();
        }
        if now_ms >= self.told_ms + CURSOR_MS {
            self.told_ms = now_ms;
            self.tell_cursors();
        }
        self.write()
    }

    fn frames(&mut self) -> Result<(), LinkEnd> {
        let mut deframer = self.link.take_frames();
        let result = loop {
            match deframer.next() {
                Ok(Some(raw)) => {
                    if let Err(end) = self.frame(&raw) {
                        break Err(end);
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        self.link.put_frames(deframer);
        result
    }

    fn frame(&mut self, raw: &RawFrame<'_>) -> Result<(), LinkEnd> {
        if self.hello.is_none() {
            let frame = Frame::decode(raw.kind, raw.payload);
            return match frame.map_err(|error| LinkEnd::unread(error, raw))? {
                Frame::HelloBrain { version, window, settings, node } => {
                    let version = hello::version_with(version, settings)?;
                    let settings = hello::settings(settings)?;
                    self.window = settings.trunk_window_bytes;
                    log!("trunk: handshake with {}", String::from_utf8_lossy(node));
                    self.begin(version, window, raw.payload);
                    Ok(())
                }
                Frame::Goodbye { reason, .. } => {
                    Err(LinkEnd::Goodbye(String::from_utf8_lossy(reason).into_owned()))
                }
                _ => Err(LinkEnd::broken("3.1", "first frame is not HELLO_BRAIN")),
            };
        }
        match self.demux.take(raw)? {
            None | Some(Frame::Pong { .. }) => Ok(()),
            Some(Frame::Ping { .. }) if self.link.overloaded() => {
                Err(late("pings whose answers nobody reads", GoodbyeCode::Overloaded))
            }
            Some(Frame::Ping { nonce }) => {
                self.link.send(&Frame::Pong { nonce });
                Ok(())
            }
            Some(Frame::Credit { bytes }) => self
                .link
                .credited(bytes)
                .map_err(|e| LinkEnd::Broken(GoodbyeCode::FlowControl, e.to_string())),
            Some(Frame::Goodbye { reason, .. }) => {
                Err(LinkEnd::Goodbye(String::from_utf8_lossy(reason).into_owned()))
            }
            Some(_) => Err(LinkEnd::broken("3.1", "a second hello")),
        }
    }

    /// The handshake: answers, and begins a place for each worker.
    fn begin(&mut self, version: u16, window: u32, payload: &[u8]) {
        self.link.granted(window);
        self.link.up = true;
        (self.demux, self.dealt) = dealing(&self.trunk, self.window);
        let most = |worker: &PerWorker| worker.connections_max.load(Ordering::Relaxed);
        let connections_max = self
            .trunk
            .workers
            .iter()
            .map(most)
            .fold(0, usize::saturating_add)
            .min(self.config.connections_max.map_or(usize::MAX, |most| most as usize));
        let answer = Answer { version, window: self.window, connections_max };
        answer.frame(&self.config, |hello| self.link.send(hello));
        self.hello = Some(payload.into());
        for number in 0..self.trunk.workers.len() {
            let begin = self.next_place(number);
            if let (Some(begin), Some(worker)) = (begin, self.trunk.workers.get(number)) {
                worker.wake(worker.ring.put(Handed::Begin(begin)).wake);
            }
        }
    }

    /// The next place of a worker. What it has to say from the last one is dropped.
    fn next_place(&mut self, number: usize) -> Option<Begin> {
        let hello = Arc::clone(self.hello.as_ref()?);
        let place = self.trunk.next_place();
        *self.places.get_mut(number)? = place;
        self.trunk.workers.get(number)?.outbound.begin(place);
        let keys = self.demux.keys().map(Arc::clone);
        Some(Begin { place, hello, keys })
    }

    /// Is this a worker's present place?
    pub fn is_place(&self, worker: u16, place: u64) -> bool {
        self.hello.is_some() && self.places.get(usize::from(worker)) == Some(&place)
    }

    /// Hands what was read to the workers that it concerns.
    fn hand_over(&mut self) {
        let window = self.window as usize;
        for (number, part) in self.demux.finish() {
            let Some(worker) = self.trunk.workers.get(usize::from(number)) else { continue };
            if worker.left.load(Ordering::Relaxed) {
                continue;
            }
            let put = worker.ring.put(Handed::Batch(part));
            worker.wake(put.wake);
            self.any_full |= put.bytes > window / 2;
        }
        self.trunk.stale.fetch_add(self.demux.take_stale(), Ordering::Relaxed);
        while let Some(bytes) = self.dealt.take() {
            self.link.send(&Frame::Credit { bytes });
        }
    }

    /// Ends the places of workers that the others have left behind for too long. What is left of
    /// the window is for the others meanwhile; where it isn't enough they wait as long.
    fn end_left_behind(&mut self) {
        if !self.any_full {
            return;
        }
        let window = self.window as usize;
        self.any_full = false;
        for number in 0..self.trunk.workers.len() {
            let left = |worker: &PerWorker| worker.ring.bytes();
            let bytes = self.trunk.workers.get(number).map_or(0, left);
            let is_behind = is_left_behind(bytes, window, self.trunk.workers.iter().map(left));
            let Some(pace) = self.paces.get_mut(number) else { return };
            if is_behind && pace.is_behind(self.now_ms) {
                pace.goes_on();
                self.end_place(number as u16, "it left what came for too long (13.7)");
            } else {
                self.any_full |= bytes > window / 2;
                if !is_behind {
                    pace.goes_on();
                }
            }
        }
    }

    /// How long nobody has to look at it, unless something happens.
    pub fn pause_ms(&self) -> u64 {
        if self.any_full { BEHIND_LOOK_MS } else { CURSOR_MS }
    }

    /// Ends the places of workers that have stood still, or left.
    fn look(&mut self) {
        for number in 0..self.trunk.workers.len() {
            let Some(worker) = self.trunk.workers.get(number) else { return };
            let (rounds, left) =
                (worker.rounds.load(Ordering::Relaxed), worker.left.load(Ordering::Relaxed));
            let Some(pace) = self.paces.get_mut(number) else { return };
            let stands_still = pace.look(rounds);
            let number = number as u16;
            if (left || stands_still) && self.demux.is_placed(number) {
                self.end_place(number, "it stood still (13.7)");
            }
        }
    }

    /// Ends a worker's place, while the trunk goes on; it finds a new one behind the end.
    fn end_place(&mut self, number: u16, why: &str) {
        let Some(begin) = self.next_place(number.into()) else { return };
        let had = self.demux.ends(number);
        let Some(worker) = self.trunk.workers.get(usize::from(number)) else { return };
        if worker.left.load(Ordering::Relaxed) {
            worker.wake(worker.ring.replace([]));
        } else {
            log!("trunk: worker {number} lost its place: {why}");
            let end = End { cursor: None, why: why.into(), left_behind: true };
            worker.wake(worker.ring.replace([Handed::End(end), Handed::Begin(begin)]));
        }
        if had {
            self.link.send(&Frame::WorkerGone { worker: number });
        }
    }

    /// Workers for which nothing came get the trunk's cursor.
    fn tell_cursors(&mut self) {
        let mut token: Option<Arc<[u8]>> = None;
        let untold: Vec<_> = self.demux.untold().collect();
        for number in untold {
            if let Some(worker) = self.trunk.workers.get(usize::from(number)) {
                let token = token.get_or_insert_with(|| self.demux.cursor().into());
                worker.ring.put_cursor(Arc::clone(token));
            }
        }
    }

    /// Takes the workers' frames by turns, and writes what can be written.
    fn write(&mut self) -> Result<(), LinkEnd> {
        let workers = self.trunk.workers.len();
        let mut idle = 0;
        while self.link.up && idle < workers && self.link.queued() < AHEAD_BYTES {
            let number = self.turn % workers;
            self.turn = (number + 1) % workers;
            let Some(worker) = self.trunk.workers.get(number) else { break };
            if worker.outbound.bytes() == 0 {
                idle += 1;
                continue;
            }
            idle = 0;
            let (link, demux) = (&mut self.link, &mut self.demux);
            worker.outbound.take(TURN_BYTES, |frame| {
                if is_sync_begin(frame) {
                    demux.sync_begins(number as u16);
                }
                link.send_whole(frame);
            });
        }
        self.link.flush().map_err(|e| LinkEnd::Goodbye(e.to_string()))
    }

    /// Ends all places, and the connection: says goodbye if a last write succeeds. What was read is
    /// handed over before. Where a frame `broke` a clause, the trunk's cursor may be past what the
    /// workers got; theirs are right.
    pub fn end(mut self, goodbye: Option<GoodbyeCode>, why: &str, broke: bool) {
        log!("trunk: ended: {why}");
        self.hand_over();
        if let Some(code) = goodbye {
            self.link.send(&Frame::Goodbye { code: code as u8, reason: why.as_bytes() });
            let _: io::Result<()> = self.link.flush();
        }
        if self.hello.is_none() {
            return;
        }
        let why: Arc<str> = why.into();
        for (number, worker) in (0..).zip(&self.trunk.workers) {
            worker.outbound.begin(self.trunk.next_place());
            let cursor = self.demux.cursor_of(number).filter(|_| !broke).map(Into::into);
            let end = End { cursor, why: Arc::clone(&why), left_behind: false };
            worker.wake(worker.ring.end(end));
        }
    }
}

/// What deals out a window to the workers.
fn dealing(trunk: &Arc<Trunk>, window: u32) -> (Demux, Arc<Dealt>) {
    let waker = trunk.waker();
    let wake = move || {
        let _: io::Result<()> = waker.wake();
    };
    let dealt = Arc::new(Dealt::new(window / 4, Box::new(wake)));
    (Demux::new(trunk.workers.len() as u16, Arc::clone(&dealt)), dealt)
}

fn late(why: &str, code: GoodbyeCode) -> LinkEnd {
    LinkEnd::Broken(code, why.to_owned())
}

/// A whole FROM_WORKER frame, of this type?
fn is_sync_begin(frame: &[u8]) -> bool {
    const SYNC_BEGIN: u8 = 0x41;
    const TYPE_AT: usize = 7;
    frame.get(TYPE_AT) == Some(&SYNC_BEGIN)
}
