//! Turns: how many workers of an edge write groups' events at the same time.
//!
//! More workers than processors would all write at once, and each ordinary event would wait for a
//! processor behind them. So there are as many turns as processors. A worker that finds none stands
//! in a line, serves everything else meanwhile, and is woken when a turn is handed to it: fifty
//! workers that ask again and again would take processor time from those that write.
//!
//! Invariants: a worker has one turn or one place in the line, or neither; what is handed over is
//! never free in between, so the line is kept; a worker that ends leaves neither behind.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::{Poll, Token, Waker};

/// By which a worker's poll says that it was handed a turn.
pub const WAKE: Token = Token(4);

/// The turns of an edge.
pub struct Turns {
    line: Mutex<Line>,
    taken: AtomicUsize,
    places: Vec<Place>,
}

/// Turns that nobody has, and who waits for one. Only one of the two isn't empty.
struct Line {
    free: usize,
    waiting: VecDeque<usize>,
}

/// A worker's: was it handed a turn, and what wakes it.
struct Place {
    given: AtomicBool,
    waker: Waker,
}

impl Turns {
    /// As many as there are processors, for so many workers, whose polls come with them. A worker
    /// has a descriptor table of its own and can't be woken by a descriptor that it made itself; so
    /// this is called before the first of them starts.
    ///
    /// # Errors
    /// What the kernel says when it is asked for descriptors.
    pub fn new(workers: u16) -> io::Result<(Turns, Vec<Poll>)> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Turns::with(processors, workers)
    }

    fn with(free: usize, workers: u16) -> io::Result<(Turns, Vec<Poll>)> {
        let (mut polls, mut places) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let poll = Poll::new()?;
            let waker = Waker::new(poll.registry(), WAKE)?;
            places.push(Place { given: AtomicBool::new(false), waker });
            polls.push(poll);
        }
        let line = Mutex::new(Line { free, waiting: VecDeque::new() });
        Ok((Turns { line, taken: AtomicUsize::new(0), places }, polls))
    }

    /// Does any worker write a group's event now?
    pub fn any_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > 0
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a turn, or a place in the line.
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

    /// Was a turn handed to who waits for it?
    fn was_given(&self, worker: usize) -> bool {
        self.places.get(worker).is_some_and(|place| place.given.swap(false, Ordering::Acquire))
    }

    /// Hands a turn to the first in the line.
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

/// One worker's turn.
pub struct Turn {
    turns: Arc<Turns>,
    worker: usize,
    state: State,
}

impl Turn {
    /// None yet.
    pub fn new(turns: Arc<Turns>, worker: u16) -> Turn {
        Turn { turns, worker: worker.into(), state: State::No }
    }

    /// Takes a turn if there is one, else a place in the line; true with a turn.
    pub fn take(&mut self) -> bool {
        self.state = match self.state {
            State::No => self.turns.take(self.worker),
            State::Waits if self.turns.was_given(self.worker) => State::Has,
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
        !self.turns.line().waiting.is_empty()
    }

    /// Gives back the turn, or the place in the line.
    pub fn give_back(&mut self) {
        if self.state != State::No {
            self.turns.give_back(self.worker, self.state);
            self.state = State::No;
        }
    }
}

impl Drop for Turn {
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

    fn turns(free: usize, workers: u16) -> (Arc<Turns>, Vec<Poll>, Vec<Turn>) {
        let (turns, polls) = Turns::with(free, workers).unwrap();
        let turns = Arc::new(turns);
        let all = (0..workers).map(|worker| Turn::new(Arc::clone(&turns), worker)).collect();
        (turns, polls, all)
    }

    fn is_woken(poll: &mut Poll) -> bool {
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().any(|event| event.token() == WAKE)
    }

    #[test]
    fn the_line_is_kept_and_who_is_next_is_woken() {
        let (all, mut polls, mut turns) = turns(1, 4);
        assert!(!all.any_taken());
        assert!(turns[2].take() && turns[2].take());
        assert!(!turns[3].take() && !turns[3].take() && !turns[0].take());
        assert!(turns[2].others_wait());
        turns[2].give_back();
        assert!(!turns[2].take(), "it was handed over");
        assert!(is_woken(&mut polls[3]) && !is_woken(&mut polls[0]));
        assert!(!turns[0].take());
        assert!(turns[3].take());
        turns[3].give_back();
        assert!(is_woken(&mut polls[0]) && turns[0].take());
        turns[0].give_back();
        assert!(turns[2].take() && all.any_taken());
        turns[2].give_back();
        assert!(!all.any_taken());
    }

    /// A worker that stops, or has nothing more to write, holds nobody up.
    #[test]
    fn who_leaves_leaves_nothing_behind() {
        let (all, _polls, mut turns) = turns(1, 4);
        assert!(turns[0].take());
        assert!(!turns[1].take() && !turns[2].take() && !turns[3].take());
        turns[1].give_back();
        turns.remove(0);
        // Now it is the third worker's, which doesn't know it yet.
        drop(turns.remove(1));
        let mut last = turns.remove(1);
        assert!(last.take(), "the turn went on to the fourth");
        drop(last);
        assert!(!all.any_taken());
    }
}
