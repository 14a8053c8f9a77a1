//! Between the trunk's reader and the workers: a ring for each worker, and what all of them have
//! for the brain.
//!
//! A hand-over is what one read brought, for one worker: entries that point into a batch which all
//! workers share. So it costs a lock and, if the worker sleeps, a wake-up, however many events it
//! has. The lock is held for the moving of a pointer. The bound is the trunk's credit: that of a
//! batch is given back when the last worker has let go of it.
//!
//! Invariant: who sleeps has said so under the lock, with nothing to take, so no wake-up is missed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mio::Waker;

/// An event, decoded: places in the bytes of its batch.
pub struct Event {
    pub shard: u8,
    pub seq: u64,
    pub at: u64,
    pub json: (u32, u32),
}

/// What a worker gets of a batch.
pub enum Entry {
    /// The event, and where its connections are.
    Deliver { event: u32, conns: (u32, u32) },
    /// A frame for a connection.
    Response { payload: (u32, u32) },
}

/// What one read of the trunk brought.
pub struct Batch {
    pub bytes: Vec<u8>,
    pub events: Vec<Event>,
    pub cost: usize,
    pub shared: Arc<Shared>,
}

impl Batch {
    pub fn at(&self, (start, length): (u32, u32)) -> &[u8] {
        &self.bytes[start as usize..][..length as usize]
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.shared.dealt_with(self.cost);
    }
}

pub struct HandOver {
    pub batch: Arc<Batch>,
    pub entries: Vec<Entry>,
}

#[derive(Default)]
struct Ring {
    waiting: VecDeque<HandOver>,
    sleeps: bool,
}

#[derive(Default)]
struct Outbound {
    frames: Vec<u8>,
    sleeps: bool,
}

pub struct Shared {
    rings: Vec<Mutex<Ring>>,
    outbound: Mutex<Outbound>,
    wakers: Vec<Waker>,
    /// Who has the trunk.
    owner: usize,
    dealt: AtomicUsize,
    wakes: AtomicU64,
}

impl Shared {
    pub fn new(wakers: Vec<Waker>, owner: usize) -> Shared {
        let rings = wakers.iter().map(|_| Mutex::default()).collect();
        let (dealt, wakes) = (AtomicUsize::new(0), AtomicU64::new(0));
        Shared { rings, outbound: Mutex::default(), wakers, owner, dealt, wakes }
    }

    /// Wake-ups since the start.
    pub fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }

    fn wake(&self, who: usize) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.wakers[who].wake().unwrap();
    }

    pub fn hand_over(&self, worker: usize, what: HandOver) {
        let mut ring = self.rings[worker].lock().unwrap();
        ring.waiting.push_back(what);
        let sleeps = std::mem::take(&mut ring.sleeps);
        drop(ring);
        if sleeps {
            self.wake(worker);
        }
    }

    pub fn take(&self, worker: usize) -> VecDeque<HandOver> {
        std::mem::take(&mut self.rings[worker].lock().unwrap().waiting)
    }

    /// True if there is nothing to take: the worker is woken when that changes.
    pub fn sleeps(&self, worker: usize) -> bool {
        let mut ring = self.rings[worker].lock().unwrap();
        ring.sleeps = ring.waiting.is_empty();
        ring.sleeps
    }

    pub fn awake(&self, worker: usize) {
        self.rings[worker].lock().unwrap().sleeps = false;
    }

    /// Frames for the brain.
    pub fn send(&self, frames: &mut Vec<u8>) {
        let mut outbound = self.outbound.lock().unwrap();
        outbound.frames.append(frames);
        let sleeps = std::mem::take(&mut outbound.sleeps);
        drop(outbound);
        if sleeps {
            self.wake(self.owner);
        }
    }

    /// Takes what is to be written behind `out`.
    pub fn take_outbound(&self, out: &mut Vec<u8>) {
        out.append(&mut self.outbound.lock().unwrap().frames);
    }

    /// True if there is nothing to write: the trunk's owner is woken when that changes.
    pub fn owner_sleeps(&self) -> bool {
        let mut outbound = self.outbound.lock().unwrap();
        outbound.sleeps = outbound.frames.is_empty();
        outbound.sleeps
    }

    pub fn owner_awake(&self) {
        self.outbound.lock().unwrap().sleeps = false;
    }

    fn dealt_with(&self, bytes: usize) {
        let portion = self.portion();
        let before = self.dealt.fetch_add(bytes, Ordering::Relaxed);
        if before < portion && before + bytes >= portion {
            self.send(&mut Vec::new());
        }
    }

    /// Credit is given back in such portions.
    fn portion(&self) -> usize {
        crate::frames::WINDOW_BYTES
    }

    /// What may be given back, if that is enough for a frame.
    pub fn credit(&self) -> Option<u32> {
        let dealt = self.dealt.load(Ordering::Relaxed);
        let portion = dealt.min(2 * self.portion());
        (dealt >= self.portion()).then(|| {
            self.dealt.fetch_sub(portion, Ordering::Relaxed);
            portion as u32
        })
    }
}
