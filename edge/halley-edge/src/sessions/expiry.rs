//! Sessions end by their tokens: when one expires (`protocol/http.md` 14), or is revoked.
//! `users/tokens.rs` has what is kept of tokens.

use halley_link::CloseReason;
use halley_token::{Keys, Refusal};
use halley_wire::HttpError;

use crate::conns::table::{Phase, flag};
use crate::sessions::Sessions;
use crate::sessions::base::errors::StreamError;
use crate::sessions::base::io::Io;
use crate::sessions::users::identity::{TOKEN_EXPIRED, refused};
use crate::stats::Stat;
use crate::transport::Transport;

impl Sessions {
    /// Ends a session whose token has expired; false if it hasn't.
    pub fn expired(&mut self, io: &mut Io, index: u32) -> bool {
        if self.tokens.left_ms(&io.conns, index) != Some(0) {
            return false;
        }
        let Some(slot) = io.conns.slot(index) else { return false };
        if slot.phase() == Phase::Live && slot.transport == Transport::Poll {
            return self.delivery.poll_expired(&mut io.conns, index);
        }
        let ends = self.end_token(io, index, &TOKEN_EXPIRED, CloseReason::Expired);
        io.conns.stats.add(Stat::Expired, ends.into());
        ends
    }

    /// KEYS came: ends the sessions of users whose tokens were revoked since the last ones. Those
    /// with a newer token come back with it.
    pub fn take_keys(&mut self, io: &mut Io, keys: Keys) {
        let users = self.tokens.take_keys(keys);
        if users.is_empty() {
            return;
        }
        let revoked = refused(Refusal::Revoked);
        for index in 0..io.conns.table.slots() {
            if users.contains(io.conns.table.user(index)) {
                let ends = self.end_token(io, index, &revoked, CloseReason::CloseSessions);
                io.conns.stats.add(Stat::SessionsRevoked, ends.into());
            }
        }
    }

    /// Ends a session with its token; false if there is none.
    fn end_token(
        &mut self,
        io: &mut Io,
        index: u32,
        error: &HttpError,
        reason: CloseReason,
    ) -> bool {
        let Some(slot) = io.conns.slot(index) else { return false };
        let (phase, transport, held) = (slot.phase(), slot.transport, slot.has(flag::BUFFERED));
        match phase {
            Phase::Waiting | Phase::Opening => {
                self.refuse_stream(io, index, &StreamError::of(error));
            }
            Phase::Live if transport == Transport::Poll => {
                self.close_gently(io, index, error.code, reason);
            }
            Phase::Live => {
                // A held session goes on behind what it was replayed last, as its client knows.
                let cursor = if held { b"" } else { io.link.cursor() };
                let mut out = Vec::new();
                transport.token_ended(&mut out, cursor, error.code);
                self.last_words(io, index, Some(out), reason);
            }
            _ => return false,
        }
        true
    }
}
