//! Whether a thread sleeps, for those who have something for it.

use std::sync::atomic::{AtomicBool, Ordering};

/// A thread that waits in its poll, or not.
///
/// Invariant: whoever made something ready before [`Sleeper::may_sleep`] looked is seen by it, and
/// whoever does so after it is told to wake the thread. Both sides first write and then look, which
/// is why the order is `SeqCst`, here and where `is_ready` reads.
#[derive(Debug, Default)]
pub struct Sleeper {
    sleeps: AtomicBool,
}

impl Sleeper {
    /// Before the thread sleeps: false if something is ready. Then it stays awake.
    pub fn may_sleep(&self, is_ready: impl FnOnce() -> bool) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        let may = !is_ready();
        if !may {
            self.awake();
        }
        may
    }

    /// The thread runs, whoever woke it.
    pub fn awake(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
    }

    /// After something was made ready: must the caller wake the thread? One caller is told so for
    /// each sleep.
    pub fn must_be_woken(&self) -> bool {
        self.sleeps.load(Ordering::SeqCst) && self.sleeps.swap(false, Ordering::SeqCst)
    }
}
