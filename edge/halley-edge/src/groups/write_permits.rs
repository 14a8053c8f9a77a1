//! Write permits: how many workers of an edge write groups' events at the same time.
//!
//! More workers than processors would all write at once, and each ordinary event would wait for a
//! processor until they have finished. So there are as many permits as processors. A worker that
//! finds none waits in a queue, serves everything else meanwhile, and is woken when a permit is
//! handed to it: fifty workers that try again and again would take processor time from those that
//! write.
//!
//! Invariants: a worker has one permit, one place in the queue, or neither. A permit that is handed
//! over is never free in between, so no worker jumps the queue. A worker that ends leaves neither.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::{Poll, Token, Waker};

/// By which a worker's poll says that it was handed a permit.
pub const WAKE: Token = Token(4);

/// The permits of an edge.
pub struct WritePermits {
    line: Mutex<Line>,
    taken: AtomicUsize,
    places: Vec<Place>,
}

/// Free permits, and workers that wait for one. At most one of the two isn't empty.
struct Line {
    free: usize,
    waiting: VecDeque<usize>,
}

/// A worker's: was it handed a permit, and what wakes it.
struct Place {
    given: AtomicBool,
    waker: Arc<Waker>,
}

impl WritePermits {
    /// As many as there are processors, for so many workers, whose polls come with them. A worker
    /// has a descriptor table of its own and can't be woken by a descriptor that it made itself; so
    /// this is called before the first of them starts.
    ///
    /// # Errors
    /// What the kernel says when it is asked for descriptors.
    pub fn new(workers: u16) -> io::Result<(WritePermits, Vec<Poll>)> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        WritePermits::with(processors, workers)
    }

    fn with(free: usize, workers: u16) -> io::Result<(WritePermits, Vec<Poll>)> {
        let (mut polls, mut places) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let poll = Poll::new()?;
            let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
            places.push(Place { given: AtomicBool::new(false), waker });
            polls.push(poll);
        }
        let line = Mutex::new(Line { free, waiting: VecDeque::new() });
        Ok((WritePermits { line, taken: AtomicUsize::new(0), places }, polls))
    }

    /// What wakes each worker, whoever has something for it.
    pub fn wakers(&self) -> Vec<Arc<Waker>> {
        self.places.iter().map(|place| Arc::clone(&place.waker)).collect()
    }

    /// Does any worker write a group's event now?
    pub fn any_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > 0
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a permit, or a place in the line.
    fn take(&self, worker: usize) -> State {
        let mut line = self.line();
        match line.free.checked_sub(1) {
            Some(free) => {
                line.free = free;
                self.taken.fetch_add(1, Ordering::Relaxed);
                State::Has
            }
            None => {
                line.waiting.push_back(worker);
                State::Waits
            }
        }
    }

    /// Was a permit handed to who waits for it?
    fn was_given(&self, worker: usize) -> bool {
        self.places.get(worker).is_some_and(|place| place.given.swap(false, Ordering::Acquire))
    }

    /// Hands a permit to the first in the line.
    fn hand_over(&self, line: &mut Line) {
        match line.waiting.pop_front().and_then(|worker| self.places.get(worker)) {
            Some(place) => {
                place.given.store(true, Ordering::Release);
                // It can't fail for want of anything; if it does, the next tick wakes the worker.
                let _ = place.waker.wake();
            }
            None => {
                line.free += 1;
                self.taken.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn give_back(&self, worker: usize, state: State) {
        let mut line = self.line();
        match state {
            State::No => {}
            State::Has => self.hand_over(&mut line),
            State::Waits => {
                line.waiting.retain(|waiting| *waiting != worker);
                if self.was_given(worker) {
                    self.hand_over(&mut line);
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    No,
    Waits,
    Has,
}

/// One worker's permit.
pub struct WritePermit {
    permits: Arc<WritePermits>,
    worker: usize,
    state: State,
}

impl WritePermit {
    /// None yet.
    pub fn new(permits: Arc<WritePermits>, worker: u16) -> WritePermit {
        WritePermit { permits, worker: worker.into(), state: State::No }
    }

    /// Takes a permit if there is one, else a place in the line; true with a permit.
    pub fn take(&mut self) -> bool {
        self.state = match self.state {
            State::No => self.permits.take(self.worker),
            State::Waits if self.permits.was_given(self.worker) => State::Has,
            same => same,
        };
        self.state == State::Has
    }

    /// Has it been taken?
    pub fn is_taken(&self) -> bool {
        self.state == State::Has
    }

    /// Is any other worker in the line?
    pub fn others_wait(&self) -> bool {
        !self.permits.line().waiting.is_empty()
    }

    /// Gives back the permit, or the place in the line.
    pub fn give_back(&mut self) {
        if self.state != State::No {
            self.permits.give_back(self.worker, self.state);
            self.state = State::No;
        }
    }
}

impl Drop for WritePermit {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::time::Duration;

    use mio::Events;

    use super::*;

    fn permits(free: usize, workers: u16) -> (Arc<WritePermits>, Vec<Poll>, Vec<WritePermit>) {
        let (permits, polls) = WritePermits::with(free, workers).unwrap();
        let permits = Arc::new(permits);
        let all =
            (0..workers).map(|worker| WritePermit::new(Arc::clone(&permits), worker)).collect();
        (permits, polls, all)
    }

    fn is_woken(poll: &mut Poll) -> bool {
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().any(|event| event.token() == WAKE)
    }

    #[test]
    fn the_line_is_kept_and_who_is_next_is_woken() {
        let (all, mut polls, mut permits) = permits(1, 4);
        assert!(!all.any_taken());
        assert!(permits[2].take() && permits[2].take());
        assert!(!permits[3].take() && !permits[3].take() && !permits[0].take());
        assert!(permits[2].others_wait());
        permits[2].give_back();
        assert!(!permits[2].take(), "it was handed over");
        assert!(is_woken(&mut polls[3]) && !is_woken(&mut polls[0]));
        assert!(!permits[0].take());
        assert!(permits[3].take());
        permits[3].give_back();
        assert!(is_woken(&mut polls[0]) && permits[0].take());
        permits[0].give_back();
        assert!(permits[2].take() && all.any_taken());
        permits[2].give_back();
        assert!(!all.any_taken());
    }

    /// A worker that stops, or has nothing more to write, holds nobody up.
    #[test]
    fn who_leaves_leaves_nothing_behind() {
        let (all, _polls, mut permits) = permits(1, 4);
        assert!(permits[0].take());
        assert!(!permits[1].take() && !permits[2].take() && !permits[3].take());
        permits[1].give_back();
        permits.remove(0);
        // Now it is the third worker's, which doesn't know it yet.
        drop(permits.remove(1));
        let mut last = permits.remove(1);
        assert!(last.take(), "the permit went on to the fourth");
        drop(last);
        assert!(!all.any_taken());
    }
}
