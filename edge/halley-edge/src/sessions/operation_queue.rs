//! One WebSocket's request at the brain, and messages that wait for their turn.

use std::collections::VecDeque;

use crate::limits::places::Place;
use crate::sessions::operation::Ask;
use crate::sessions::subscriptions::change::Change;

/// What the client waits for.
pub struct Asked {
    pub reference: Option<Box<str>>,
    pub until_ms: u64,
}

/// An operation that waits for its turn.
pub struct Waiting {
    pub reference: Option<Box<str>>,
    pub ask: Ask,
}

impl Waiting {
    /// What it takes of the bound.
    pub fn bytes(&self) -> usize {
        self.ask.target.len() + self.ask.body.len()
    }
}

/// What has come of an answer.
pub struct Gathered {
    pub status: u16,
    pub retry_after_s: Option<u32>,
    pub body: Vec<u8>,
    pub too_large: bool,
}

/// Those of one session. Invariant: the brain has a request of it.
pub struct Operations {
    /// That of the request.
    pub place: Place,
    /// `None` when it was given up.
    pub asked: Option<Asked>,
    /// What holds for the session once the brain has done it, whether that is too late or not; and
    /// when it was sent there, in milliseconds since 1970.
    pub change: Option<(Change, u64)>,
    pub answer: Option<Gathered>,
    /// The session's rights have changed since the brain was asked.
    pub judge_again: bool,
    pub waiting: VecDeque<Waiting>,
    pub waiting_bytes: usize,
}

impl Operations {
    /// When somebody has to look, by the worker's time.
    pub fn until_ms(&self) -> Option<u64> {
        self.asked.as_ref().map(|asked| asked.until_ms)
    }
}
