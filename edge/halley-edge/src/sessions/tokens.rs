//! What is kept of tokens: the keys that the brain handed over, when whose session ends, and what
//! a WebSocket's user may do (`protocol/link.md` 12, `protocol/http.md` 14).
//!
//! Only sessions that a token opened are in here: four bytes for each slot, in chunks, and for a
//! WebSocket its rights, if it has any. Without tokens it is empty, and a look finds nothing.
//!
//! The sweep (`worker/sweep.rs`) looks at every session three times in a heartbeat; one whose token
//! expires within a heartbeat gets a deadline, as if it had asked for one. So no timer belongs to a
//! token, and yet it expires to the tick.

use std::collections::HashMap;

use halley_link::CloseReason;
use halley_token::Keys;

use crate::beside::Beside;
use crate::conns::table::wheel::TICK_MS;
use crate::conns::table::{Phase, flag};
use crate::link::goodbye::LinkEnd;
use crate::log;
use crate::sessions::stream::StreamError;
use crate::sessions::who::{Asker, FOREVER, NO_RIGHTS, TOKEN_EXPIRED, TOKEN_MISSING};
use crate::settings::AuthMode;
use crate::stats::Stat;
use crate::transport::Transport;
use crate::worker::Worker;

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
    pub keys: Option<Keys>,
    untils: Beside<Until>,
    /// By index, of WebSockets: the rights, unless there are none.
    rights: HashMap<u32, Box<str>>,
}

impl Tokens {
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

impl Worker {
    /// KEYS: these count, and no others (link.md 12.3).
    ///
    /// # Errors
    /// When clients can't be let in.
    pub(crate) fn take_keys(&mut self, set: &[u8]) -> Result<(), LinkEnd> {
        if self.settings.auth_mode == AuthMode::None {
            return Ok(());
        }
        let (keys, unusable) = Keys::parse(set);
        if self.index == 0 {
            for unusable in &unusable {
                log!("keys of tokens: key {}: {}", unusable.place, unusable.why);
            }
        }
        self.tokens.keys = Some(keys);
        self.let_clients_in()
    }

    /// What a brain says of tokens may be another thing than what the last one said (12.5). The
    /// link that it said it on knows no session yet.
    pub(crate) fn auth_changed(&mut self, last: AuthMode) {
        match (last, self.settings.auth_mode) {
            (AuthMode::None, AuthMode::Jwt) => {
                // This brain is not told of their end by the numbers of the last one.
                self.forget_numbers();
                self.close_tokenless();
            }
            (_, AuthMode::None) => self.tokens = Tokens::default(),
            (AuthMode::Jwt, AuthMode::Jwt) => {}
        }
    }

    fn close_tokenless(&mut self) {
        for index in 0..self.table.slots() {
            let Some(slot) = self.table.get(index) else { continue };
            match slot.phase {
                Phase::Waiting | Phase::Opening => {
                    self.refuse_stream(index, &StreamError::of(&TOKEN_MISSING));
                }
                Phase::Live => {
                    self.close_gently(index, TOKEN_MISSING.code, CloseReason::CloseSessions);
                }
                // Requests have been answered when their link ended (8.7).
                _ => {}
            }
        }
    }

    /// Whose session this is going to be.
    pub(crate) fn take_token(&mut self, index: u32, transport: Transport, asker: &Asker<'_>) {
        self.tokens.untils.set(index, Until(asker.until_s));
        if transport.is_websocket() && asker.until_s != FOREVER {
            self.tokens.set_rights(index, &asker.rights);
        }
    }

    /// How many milliseconds are left to a session, by its token.
    fn token_ms(&self, index: u32) -> Option<u64> {
        let Until(until_s) = self.tokens.untils.get(index);
        let until_ms = u64::from(until_s) * 1_000;
        (until_s != FOREVER).then(|| until_ms.saturating_sub(self.clock.unix_ms(self.now_ms)))
    }

    /// How long a session may be left alone at most: until its token expires, or the brain is late
    /// with an operation.
    pub(crate) fn session_ms(&self, index: u32) -> u64 {
        let token_ms = self.token_ms(index).unwrap_or(u64::MAX);
        let operation = self.operations.get(&index).and_then(|operations| operations.until_ms());
        operation.map_or(token_ms, |until_ms| token_ms.min(until_ms.saturating_sub(self.now_ms)))
    }

    /// Sees to it that somebody looks at a session when that is over, if it is soon.
    pub(crate) fn watch_session(&mut self, index: u32) {
        let ms = self.session_ms(index);
        if ms > self.settings.stream_heartbeat_ms {
            return;
        }
        let tick = (self.now_ms + ms).div_ceil(TICK_MS);
        let Some(slot) = self.table.get(index) else { return };
        if slot.deadline == 0 || u64::from(slot.deadline) > tick {
            self.set_deadline(index, ms);
        }
    }

    /// Ends a session whose token has expired; false if it hasn't.
    pub(crate) fn expired(&mut self, index: u32) -> bool {
        if self.token_ms(index) != Some(0) {
            return false;
        }
        let Some(slot) = self.table.get(index) else { return false };
        let (phase, transport, aside) = (slot.phase, slot.transport, slot.has(flag::ASIDE));
        match phase {
            Phase::Waiting | Phase::Opening => {
                self.refuse_stream(index, &StreamError::of(&TOKEN_EXPIRED));
            }
            Phase::Live if transport == Transport::Poll => return self.poll_expired(index),
            Phase::Live => {
                // A held session goes on behind what it was replayed last, as its client knows.
                let cursor = if aside { b"" } else { self.link.cursor() };
                let mut out = Vec::new();
                transport.token_expired(&mut out, cursor);
                self.push(index, out.into());
                self.close_after_flush(index, CloseReason::Expired);
            }
            _ => return false,
        }
        self.stats.count(Stat::Expired);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What many had is given back once they are gone, and who is there keeps it.
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
