//! The memory of tokens: the keys from the brain, the end of each session, and the rights of a
//! WebSocket's user (`protocol/link.md` 12, `protocol/http.md` 14).
//!
//! Only sessions that a token opened are in here: four bytes for each slot, in chunks, and for a
//! WebSocket its rights, if it has any. Without tokens it is empty, and a look finds nothing.
//!
//! The sweep (`worker/sweep.rs`) looks at every session three times in a heartbeat; one whose token
//! expires within a heartbeat gets a deadline, as if it had asked for one. So no timer belongs to a
//! token, and yet it expires to the tick.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use halley_token::{Keys, Revoked};

use crate::sessions::base::detail::Conns;
use crate::sessions::users::identity::{ALL_RIGHTS, FOREVER, NO_RIGHTS, Principal};
use crate::settings::AuthMode;
use crate::side_table::SideTable;
use crate::transport::Transport;

/// The second since 1970 from which on a session's token is worth nothing, or [`FOREVER`].
#[derive(Clone, Copy, PartialEq)]
struct Until(u32);

impl Default for Until {
    fn default() -> Until {
        Until(FOREVER)
    }
}

/// See the module. Invariant: an entry belongs to the session that is in the slot now.
#[derive(Default)]
pub struct Tokens {
    /// `None` before the first KEYS, and where no token is asked for.
    keys: Option<Keys>,
    /// By index, of sessions.
    untils: SideTable<Until>,
    /// By index, of WebSockets: the rights, unless there are none.
    rights: HashMap<u32, Box<str>>,
}

impl Tokens {
    /// The keys that count.
    pub fn keys(&self) -> Option<&Keys> {
        self.keys.as_ref()
    }

    /// KEYS came: these count, and no others. Gives the users of which tokens were revoked since
    /// the last ones.
    pub fn take_keys(&mut self, keys: Keys) -> HashSet<Box<[u8]>> {
        let last = self.keys.take().unwrap_or_default();
        let users = newly_revoked(keys.revoked(), last.revoked());
        self.keys = Some(keys);
        users
    }

    /// Whose session this is going to be.
    pub fn take(&mut self, index: u32, transport: Transport, principal: &Principal<'_>) {
        self.untils.set(index, Until(principal.until_s));
        if transport.is_websocket() && principal.until_s != FOREVER {
            self.set_rights(index, &principal.rights);
        }
    }

    /// Is a session a visitor's that showed no token?
    pub fn has_none(&self, conns: &mut Conns, index: u32) -> bool {
        self.untils.get(index) == Until::default() && conns.table.user(index).is_empty()
    }

    /// How many milliseconds are left to a session, by its token.
    pub fn left_ms(&self, conns: &Conns, index: u32) -> Option<u64> {
        let Until(until_s) = self.untils.get(index);
        let until_ms = u64::from(until_s) * 1_000;
        (until_s != FOREVER).then(|| until_ms.saturating_sub(conns.clock.unix_ms()))
    }

    /// Gives a session until so many milliseconds from now, or until its token expires.
    pub fn set_deadline(&self, conns: &mut Conns, index: u32, ms: u64) {
        let left_ms = self.left_ms(conns, index).unwrap_or(u64::MAX);
        conns.set_deadline(index, ms.min(left_ms));
    }

    /// Sees to it that a session is looked at in `ms`, or when its token expires, if that is before
    /// the next heartbeat.
    pub fn watch(&self, conns: &mut Conns, index: u32, ms: u64) {
        let ms = self.left_ms(conns, index).unwrap_or(u64::MAX).min(ms);
        if ms <= conns.settings.stream_heartbeat_ms {
            conns.lower_deadline(index, ms);
        }
    }

    /// What a WebSocket's user, or a visitor without a token, may do (link.md 12.6).
    pub fn rights_of(&self, conns: &mut Conns, index: u32) -> Rc<str> {
        let tokenless = self.has_none(conns, index);
        match conns.settings.auth_mode {
            AuthMode::None => ALL_RIGHTS.into(),
            AuthMode::Jwt if tokenless => Rc::clone(&conns.settings.anonymous),
            AuthMode::Jwt => self.rights(index).into(),
        }
    }

    /// Says what a WebSocket's user may do.
    fn set_rights(&mut self, index: u32, rights: &str) {
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

/// The users whose tokens are revoked, and before were not, or only those of an earlier time.
fn newly_revoked(revoked: &Revoked, last: &Revoked) -> HashSet<Box<[u8]>> {
    let is_news =
        |user: &str, since_s: &u64| last.get(user).is_none_or(|before_s| before_s < since_s);
    let news = revoked.iter().filter(|(user, since_s)| is_news(user, since_s));
    news.map(|(user, _)| user.as_bytes().into()).collect()
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
