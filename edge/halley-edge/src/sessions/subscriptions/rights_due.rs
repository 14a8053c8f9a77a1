//! The sessions whose rights have changed, so that the brain has to judge what they are subscribed
//! to (link.md 18). An entry stays until all its RIGHTS are answered; most sessions have none.

use std::collections::HashMap;

/// See the module. Invariant: an entry belongs to the session that is in the slot now.
#[derive(Default)]
pub struct RightsDue {
    /// By index: how many RIGHTS the brain hasn't answered.
    unanswered: HashMap<u32, u32>,
}

impl RightsDue {
    /// A session's rights have changed.
    pub fn changed(&mut self, index: u32) {
        self.unanswered.entry(index).or_default();
    }

    /// They were sent by RIGHTS.
    pub fn sent(&mut self, index: u32) {
        *self.unanswered.entry(index).or_default() += 1;
    }

    /// A RIGHTS is answered.
    pub fn answered(&mut self, index: u32) {
        if let Some(unanswered) = self.unanswered.get_mut(&index) {
            *unanswered = unanswered.saturating_sub(1);
            if *unanswered == 0 {
                self.unanswered.remove(&index);
            }
        }
    }

    /// This brain was sent nothing of it; true if the session's rights have to be sent.
    pub fn begin_again(&mut self, index: u32) -> bool {
        self.unanswered.get_mut(&index).map(|unanswered| *unanswered = 0).is_some()
    }

    /// The session is over.
    pub fn forget(&mut self, index: u32) {
        self.unanswered.remove(&index);
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.unanswered.shrink_to(2 * self.unanswered.len());
    }
}
