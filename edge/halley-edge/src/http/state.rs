//! The state for requests besides their connections.

use std::collections::VecDeque;

use crate::sessions::base::form::Forms;

/// See the module.
#[derive(Default)]
pub struct Http {
    /// A buffer for frames.
    pub items: Vec<u8>,
    /// What was decoded of a chunked body and not yet sent on; empty but for a step, or a turn of
    /// [`Http::read_small_chunks`].
    pub joined: Vec<u8>,
    /// The reads of this turn become one frame.
    pub joins: bool,
    /// Uploads that wait until the link's queue is shorter.
    pub paused: Vec<u32>,
    /// Bodies in small chunks that wait for a read, each once.
    pub small_chunks: VecDeque<u32>,
    /// When the next of them is read, on the worker's clock.
    pub small_chunks_at_ms: u64,
    /// What the forms have that wait for their rest.
    pub forms: Forms,
}

impl Http {
    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.small_chunks.shrink_to(2 * self.small_chunks.len());
        self.paused.shrink_to(2 * self.paused.len());
    }
}
