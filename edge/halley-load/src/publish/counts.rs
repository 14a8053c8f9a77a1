//! The outcomes of the requests of one run.

use std::collections::BTreeMap;
use std::io;

use crate::report::Latency;

/// What became of the requests.
#[derive(Debug)]
pub struct Counts {
    /// Requests answered, by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests whose connection broke before the answer.
    pub broken: u64,
    /// Requests that were due but never sent.
    pub unsent: u64,
    /// Times that a request was sent again.
    pub resent: u64,
    /// Events that the server took.
    pub accepted: u64,
    /// Events in requests that were answered, but not taken.
    pub refused: u64,
    /// The sum of `sessions` over the events taken.
    pub sessions: u64,
    /// From the time a request was due to its answer.
    pub latency: Latency,
    /// When the first request was due.
    pub first_due_ns: u64,
    /// When the last answer came.
    pub last_answer_ns: u64,
    /// Why the first connection broke.
    pub first_problem: Option<String>,
}

impl Counts {
    /// Nothing yet.
    ///
    /// # Errors
    /// Those of [`Latency::new`].
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            statuses: BTreeMap::new(),
            broken: 0,
            unsent: 0,
            resent: 0,
            accepted: 0,
            refused: 0,
            sessions: 0,
            latency: Latency::new().map_err(io::Error::other)?,
            first_due_ns: 0,
            last_answer_ns: 0,
            first_problem: None,
        })
    }
}
