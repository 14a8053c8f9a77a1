//! One direction's window (4.1 to 4.4).

use crate::Error;

/// What this side may still send. Invariant: never above the window that the peer granted.
#[derive(Clone, Copy, Debug)]
pub struct Credit {
    left: i64,
    window: i64,
}

impl Credit {
    /// A fresh window of `bytes`.
    #[must_use]
    pub fn new(bytes: u32) -> Self {
        Credit { left: i64::from(bytes), window: i64::from(bytes) }
    }

    /// May one more costly frame be sent (4.2)?
    #[must_use]
    pub fn open(&self) -> bool {
        self.left > 0
    }

    /// A frame of `bytes`, its length prefix included, was sent.
    pub fn spend(&mut self, bytes: usize) {
        self.left -= bytes as i64;
    }

    /// The peer gave `bytes` back.
    ///
    /// # Errors
    /// 4.3 when that is more than was spent.
    pub fn give(&mut self, bytes: u32) -> Result<(), Error> {
        let left = self.left + i64::from(bytes);
        if left > self.window {
            return Err(Error::new("4.3", "credit above the window"));
        }
        self.left = left;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Credit;

    /// 4.2: the last frame may take the credit below zero.
    #[test]
    fn last_frame_may_overdraw() {
        let mut credit = Credit::new(10);
        credit.spend(9);
        assert!(credit.open());
        credit.spend(100);
        assert!(!credit.open());
        assert!(credit.give(99).is_ok());
        assert!(!credit.open());
        assert!(credit.give(1).is_ok());
        assert!(credit.open());
    }

    /// 4.3: credit above the window breaks the clause.
    #[test]
    fn credit_above_the_window() {
        let mut credit = Credit::new(10);
        credit.spend(4);
        assert_eq!(credit.give(5).map_err(|e| e.clause), Err("4.3"));
        assert!(credit.give(4).is_ok());
    }
}
