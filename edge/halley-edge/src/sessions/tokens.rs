//! The memory of tokens: the keys from the brain, the end of each session, and the rights of a
//! WebSocket's user (`protocol/link.md` 12, `protocol/http.md` 14).
//!
//! Only sessions that a token opened are in here: four bytes for each slot, in chunks, and for a
//! WebSocket its rights, if it has any. Without tokens it is empty, and a look finds nothing.
//!
//! The sweep (`worker/sweep.rs`) looks at every session three times in a heartbeat; one whose token
//! expires within a heartbeat gets a deadline, as if it had asked for one. So no timer belongs to a
//! token, and yet it expires to the tick.

use std::collections::HashMap;

use halley_token::Keys;

use crate::sessions::identity::{FOREVER, NO_RIGHTS};
use crate::side_table::SideTable;

/// The second since 1970 from which on a session's token is worth nothing, or [`FOREVER`].
#[derive(Clone, Copy, PartialEq)]
pub struct Until(pub u32);

impl Default for Until {
    fn default() -> Until {
        Until(FOREVER)
    }
}

/// See the module. Invariant: an entry belongs to the session that is in the slot now.
#[derive(Default)]
pub struct Tokens {
    /// `None` before the first KEYS, and where no token is asked for.
    pub keys: Option<Keys>,
    /// By index, of sessions.
    pub untils: SideTable<Until>,
    /// By index, of WebSockets: the rights, unless there are none.
    rights: HashMap<u32, Box<str>>,
}

impl Tokens {
    /// Says what a WebSocket's user may do.
    pub fn set_rights(&mut self, index: u32, rights: &str) {
        if rights == NO_RIGHTS {
            self.rights.remove(&index);
        } else {
            self.rights.insert(index, rights.into());
        }
    }

    /// What a WebSocket's user may do.
    pub fn rights(&self, index: u32) -> &str {
        self.rights.get(&index).map_or(NO_RIGHTS, |rights| rights)
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.rights.shrink_to(2 * self.rights.len());
    }

    /// The session is over.
    pub fn forget(&mut self, index: u32) {
        self.untils.set(index, Until::default());
        self.rights.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of many sessions is given back once they are gone; the others keep their rights.
    #[test]
    fn rights_that_nobody_has_take_nothing() {
        let mut tokens = Tokens::default();
        (0..50_000).for_each(|index| tokens.set_rights(index, "{\"follow\":[\"*\"]}"));
        (1..50_000).for_each(|index| tokens.forget(index));
        tokens.trim();
        assert!(tokens.rights.capacity() < 16, "{}", tokens.rights.capacity());
        assert_eq!((tokens.rights(0), tokens.rights(1)), ("{\"follow\":[\"*\"]}", NO_RIGHTS));
    }
}
