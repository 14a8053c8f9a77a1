//! What requests need beside their connections.

/// See the module.
#[derive(Default)]
pub struct Http {
    /// A buffer for frames.
    pub items: Vec<u8>,
    /// Uploads that wait until the link's queue is shorter.
    pub paused: Vec<u32>,
}

impl Http {
    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.paused.shrink_to(2 * self.paused.len());
    }
}
