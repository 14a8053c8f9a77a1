//! The entries that wait for one worker.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::batch::HandOver;
use super::sleeper::Sleeper;

/// What one that waits counts besides its batch's bytes: about what it takes.
pub const HANDED_BYTES: usize = 512;

/// A worker's place on a trunk begins: what is its handshake (3, 13.2).
#[derive(Clone, Debug)]
pub struct Begin {
    /// Which place of this worker it is: each has a larger number than the one before.
    pub place: u64,
    /// The payload of HELLO_BRAIN.
    pub hello: Arc<[u8]>,
    /// The payload of the last KEYS, if there was one before the place began.
    pub keys: Option<Arc<[u8]>>,
}

/// A worker's place has ended, and what was sent to it is before this (13.7).
#[derive(Clone, Debug)]
pub struct End {
    /// The trunk's last cursor, if the worker's slot followed it and the trunk ended. Else the
    /// worker's is that of the last that it took.
    pub cursor: Option<Arc<[u8]>>,
    /// For the log.
    pub why: Arc<str>,
    /// Was the worker left behind, while the trunk goes on?
    pub left_behind: bool,
}

/// What is handed to a worker.
pub enum Handed {
    /// A place begins.
    Begin(Begin),
    /// The worker's part of a batch.
    Batch(HandOver),
    /// The trunk's cursor, which is the worker's; nothing came with it.
    Cursor(Arc<[u8]>),
    /// The place has ended.
    End(End),
}

impl Handed {
    fn bytes(&self) -> usize {
        match self {
            Handed::Batch(part) => HANDED_BYTES + part.cost(),
            Handed::Begin(_) | Handed::Cursor(_) | Handed::End(_) => HANDED_BYTES,
        }
    }
}

/// How a ring is after something was put into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Put {
    /// What waits in it, in bytes; a batch counts in each ring that it is in.
    pub bytes: usize,
    /// The worker sleeps: the caller wakes it.
    pub wake: bool,
}

#[derive(Default)]
struct Waiting {
    handed: VecDeque<Handed>,
    bytes: usize,
}

impl Waiting {
    fn put(&mut self, handed: Handed) {
        self.bytes += handed.bytes();
        self.handed.push_back(handed);
    }
}

/// See the module. Its owner puts, its worker takes. The lock is held for the moving of a pointer.
///
/// Invariant: `ready` and `bytes` are those of `waiting`, when its lock is free.
#[derive(Default)]
pub struct Ring {
    waiting: Mutex<Waiting>,
    ready: AtomicUsize,
    bytes: AtomicUsize,
    sleeper: Sleeper,
}

impl Ring {
    fn change<T>(&self, how: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let result = how(&mut waiting);
        self.bytes.store(waiting.bytes, Ordering::Relaxed);
        self.ready.store(waiting.handed.len(), Ordering::SeqCst);
        result
    }

    /// Puts something behind all that waits.
    pub fn put(&self, handed: Handed) -> Put {
        let bytes = self.change(|waiting| {
            waiting.put(handed);
            waiting.bytes
        });
        Put { bytes, wake: self.sleeper.must_be_woken() }
    }

    /// Puts a cursor, in place of one that is the last. The worker isn't woken for it; it finds it
    /// when it runs.
    pub fn put_cursor(&self, cursor: Arc<[u8]>) {
        self.change(|waiting| match waiting.handed.back_mut() {
            Some(Handed::Cursor(last)) => *last = cursor,
            _ => waiting.put(Handed::Cursor(cursor)),
        });
    }

    /// Drops all that waits and puts these in its place; true if the worker is to be woken.
    #[must_use]
    pub fn replace(&self, with: impl IntoIterator<Item = Handed>) -> bool {
        let handed: VecDeque<_> = with.into_iter().collect();
        let bytes = handed.iter().map(Handed::bytes).sum();
        // Batches go when the lock is free.
        let dropped = self.change(|waiting| std::mem::replace(waiting, Waiting { handed, bytes }));
        drop(dropped);
        self.sleeper.must_be_woken()
    }

    /// Ends the place: what waits stays before it. If its beginning still waits, the worker knows
    /// nothing of the place, and nothing of it is kept; so a worker that takes nothing has no more
    /// in its ring, however many trunks come and go. True if the worker is to be woken.
    #[must_use]
    pub fn end(&self, end: End) -> bool {
        let dropped = self.change(|waiting| {
            let begin = |handed: &Handed| matches!(handed, Handed::Begin(_));
            match waiting.handed.iter().rposition(begin) {
                Some(at) => {
                    let dropped = waiting.handed.split_off(at);
                    waiting.bytes -= dropped.iter().map(Handed::bytes).sum::<usize>();
                    dropped
                }
                None => {
                    waiting.put(Handed::End(end));
                    VecDeque::new()
                }
            }
        });
        drop(dropped);
        self.sleeper.must_be_woken()
    }

    /// Takes what waits for the longest.
    pub fn take(&self) -> Option<Handed> {
        if self.is_empty() {
            return None;
        }
        self.change(|waiting| {
            let handed = waiting.handed.pop_front()?;
            waiting.bytes -= handed.bytes();
            Some(handed)
        })
    }

    /// Does nothing wait?
    pub fn is_empty(&self) -> bool {
        self.ready.load(Ordering::SeqCst) == 0
    }

    /// What waits, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Before the worker sleeps: false if something waits. Otherwise it is woken for the next.
    pub fn may_sleep(&self) -> bool {
        self.sleeper.may_sleep(|| !self.is_empty())
    }

    /// The worker runs, whoever woke it.
    pub fn awake(&self) {
        self.sleeper.awake();
    }
}

/// Has a worker with so much in its ring been left behind by the others? It leaves more than half
/// of the window, and at least half of all leave no more than a quarter. If all are slow alike,
/// none is: the window closes then, and the brain waits (4.7).
pub fn is_left_behind(bytes: usize, window: usize, all: impl Iterator<Item = usize>) -> bool {
    if bytes <= window / 2 {
        return false;
    }
    let (mut quick, mut workers) = (0, 0);
    for bytes in all {
        workers += 1;
        quick += usize::from(bytes <= window / 4);
    }
    quick * 2 >= workers
}
