//! Shared by the owner of a trunk and the workers (`protocol/link.md` 13), and a worker's place.
//!
//! Rings and outbounds are `halley_link::trunk`'s; here is which thread wakes which. The means to
//! wake a thread are made before the first worker has a descriptor table of its own, so that all
//! can write to it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halley_link::trunk::{Handed, Outbound, Ring, Sleeper};
use halley_link::{Frame, GoodbyeCode};
use mio::{Poll, Token, Waker};

/// By which the owner's poll says that there is something to write.
pub const OWNER_WAKE: Token = Token(0);

/// What there is of one worker.
pub struct PerWorker {
    /// What waits for it.
    pub ring: Ring,
    /// What it has for the brain.
    pub outbound: Outbound,
    waker: Arc<Waker>,
    /// How many rounds it has made.
    pub rounds: AtomicU64,
    /// It stops, and takes nothing any more.
    pub left: AtomicBool,
    /// Most connections of it.
    pub connections_max: AtomicUsize,
}

impl PerWorker {
    /// Wakes the worker, if it must be.
    pub fn wake(&self, must: bool) {
        if must {
            // It can't fail for want of anything; if it does, the next tick wakes the worker.
            let _ = self.waker.wake();
        }
    }
}

/// Why a worker wants the trunk to end.
#[derive(Debug)]
pub struct Wish {
    /// Of which place of the worker.
    pub place: u64,
    /// The worker.
    pub worker: u16,
    /// For GOODBYE.
    pub code: GoodbyeCode,
    /// For GOODBYE too.
    pub why: String,
}

/// See the module.
pub struct Trunk {
    /// By their numbers.
    pub workers: Vec<PerWorker>,
    /// Does the owner sleep?
    pub sleeper: Sleeper,
    waker: Arc<Waker>,
    /// Places of workers that there have been.
    places: AtomicU64,
    /// Those that the owner hasn't looked at: of each worker one for a place at most.
    wishes: Mutex<Vec<Wish>>,
    /// What the owner counts, until a worker's STATS tell it.
    pub stale: AtomicU64,
    /// The same.
    pub errors: AtomicU64,
}

impl Trunk {
    /// For the workers that these wake. The poll is the owner's.
    ///
    /// # Errors
    /// What the kernel says when it is asked for descriptors.
    pub fn new(wakers: Vec<Arc<Waker>>) -> io::Result<(Trunk, Poll)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), OWNER_WAKE)?);
        let workers = wakers
            .into_iter()
            .map(|waker| PerWorker {
                ring: Ring::default(),
                outbound: Outbound::default(),
                waker,
                rounds: AtomicU64::new(0),
                left: AtomicBool::new(false),
                connections_max: AtomicUsize::new(0),
            })
            .collect();
        let (places, stale, errors) = Default::default();
        let (sleeper, wishes) = (Sleeper::default(), Mutex::default());
        Ok((Trunk { workers, sleeper, waker, places, wishes, stale, errors }, poll))
    }

    /// What wakes the owner.
    pub fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// A number for a worker's next place.
    pub fn next_place(&self) -> u64 {
        self.places.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Wakes the owner, if it sleeps.
    pub fn wake_owner(&self) {
        if self.sleeper.must_be_woken() {
            // As for a worker.
            let _ = self.waker.wake();
        }
    }

    fn wishes(&self) -> MutexGuard<'_, Vec<Wish>> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker wants the trunk to end.
    pub fn wish(&self, wish: Wish) {
        self.wishes().push(wish);
        self.wake_owner();
    }

    /// What the workers want.
    pub fn take_wishes(&self) -> Vec<Wish> {
        std::mem::take(&mut self.wishes())
    }

    /// Does any worker want something?
    pub fn has_wish(&self) -> bool {
        !self.wishes().is_empty()
    }
}

/// A worker and the trunk.
pub struct Seat {
    trunk: Arc<Trunk>,
    worker: u16,
}

impl Seat {
    /// This worker's.
    pub fn new(trunk: Arc<Trunk>, worker: u16) -> Seat {
        Seat { trunk, worker }
    }

    fn its(&self) -> Option<&PerWorker> {
        self.trunk.workers.get(usize::from(self.worker))
    }

    /// Tells that the worker makes a round.
    pub fn round(&self) {
        if let Some(its) = self.its() {
            its.ring.awake();
            its.rounds.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Most connections that the worker may have.
    pub fn connections_max(&self, most: usize) {
        if let Some(its) = self.its() {
            its.connections_max.store(most, Ordering::Relaxed);
        }
    }

    /// Before the worker sleeps: false if something waits for it.
    pub fn may_sleep(&self) -> bool {
        self.its().is_none_or(|its| its.ring.may_sleep())
    }

    /// Does something wait for the worker?
    pub fn has_more(&self) -> bool {
        self.its().is_some_and(|its| !its.ring.is_empty())
    }

    /// What waits for the worker, in bytes.
    pub fn ring_bytes(&self) -> usize {
        self.its().map_or(0, |its| its.ring.bytes())
    }

    /// Takes what waits for the longest.
    pub fn take(&self) -> Option<Handed> {
        self.its()?.ring.take()
    }

    /// What the owner has counted since the last call, which one worker tells: stale deliveries and
    /// errors.
    pub fn counted(&self) -> (u64, u64) {
        if self.worker != 0 {
            return (0, 0);
        }
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.trunk.stale), take(&self.trunk.errors))
    }

    /// A place of the worker.
    pub fn place(&self, number: u64) -> Place {
        let trunk = Arc::clone(&self.trunk);
        Place { trunk, worker: self.worker, number, out: Vec::new(), inner: Vec::new(), up: false }
    }
}

impl Drop for Seat {
    /// The worker's thread ends.
    fn drop(&mut self) {
        if let Some(its) = self.its() {
            its.left.store(true, Ordering::Relaxed);
        }
        self.trunk.wake_owner();
    }
}

/// A worker's place on a trunk: what it sends to one brain.
pub struct Place {
    trunk: Arc<Trunk>,
    worker: u16,
    number: u64,
    /// Whole frames of this round.
    out: Vec<u8>,
    /// The frame in hand.
    inner: Vec<u8>,
    /// Has the worker had its handshake?
    pub up: bool,
}

impl Place {
    /// Queues a frame.
    pub fn send(&mut self, frame: &Frame<'_>) {
        self.inner.clear();
        frame.encode(&mut self.inner);
        if let Some((kind, payload)) = self.inner.get(4..).and_then(<[u8]>::split_first) {
            let frame = Frame::FromWorker { worker: self.worker, kind: *kind, payload };
            frame.encode(&mut self.out);
        }
    }

    /// Bytes that wait.
    pub fn queued(&self) -> usize {
        let its = self.trunk.workers.get(usize::from(self.worker));
        self.out.len() + its.map_or(0, |its| its.outbound.bytes())
    }

    /// Hands what waits to the owner.
    pub fn flush(&mut self) {
        let its = self.trunk.workers.get(usize::from(self.worker));
        let Some(its) = its.filter(|_| !self.out.is_empty()) else { return };
        its.outbound.send(self.number, &mut self.out);
        self.trunk.wake_owner();
    }

    /// Wants the trunk to end; a worker that stops leaves it alone.
    pub fn say_goodbye(&mut self, code: GoodbyeCode, why: &str) {
        self.flush();
        if code != GoodbyeCode::Stopping {
            let (place, worker, why) = (self.number, self.worker, why.to_owned());
            self.trunk.wish(Wish { place, worker, code, why });
        }
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.out.shrink_to_fit();
        self.inner.shrink_to_fit();
    }
}

#[cfg(test)]
pub mod tests {
    //! A worker's seat, and what leaves it, without an owner.
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// What the only worker of an edge has for the brain.
    pub struct Outbox {
        trunk: Arc<Trunk>,
    }

    /// The seat of the only worker, and its outbox.
    pub fn seat() -> (Seat, Outbox) {
        let poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), Token(0)).unwrap());
        let trunk = Arc::new(Trunk::new(vec![waker]).unwrap().0);
        (Seat::new(Arc::clone(&trunk), 0), Outbox { trunk })
    }

    impl Outbox {
        /// The number of the worker's next place, which begins.
        pub fn place(&self) -> u64 {
            let place = self.trunk.next_place();
            self.trunk.workers.first().unwrap().outbound.begin(place);
            place
        }

        /// The frames that left, out of FROM_WORKER: their types and payloads.
        pub fn take(&self) -> Vec<(u8, Vec<u8>)> {
            let mut frames = Vec::new();
            self.trunk.workers.first().unwrap().outbound.take(usize::MAX, |frame| {
                let (kind, payload) = frame.get(4..).and_then(<[u8]>::split_first).unwrap();
                let Ok(Frame::FromWorker { kind, payload, .. }) = Frame::decode(*kind, payload)
                else {
                    unreachable!("a worker sends nothing else")
                };
                frames.push((kind, payload.to_vec()));
            });
            frames
        }
    }
}
