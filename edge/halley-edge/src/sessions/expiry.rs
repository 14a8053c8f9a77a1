//! When sessions end by their tokens (`protocol/http.md` 14); what is kept of tokens is
//! `users/tokens.rs`'s.

use halley_link::CloseReason;

use crate::conns::table::{Phase, flag};
use crate::sessions::Sessions;
use crate::sessions::base::detail::Conns;
use crate::sessions::base::errors::StreamError;
use crate::sessions::base::io::Io;
use crate::sessions::sync;
use crate::sessions::users::identity::{TOKEN_EXPIRED, TOKEN_MISSING};
use crate::sessions::users::tokens::Tokens;
use crate::settings::AuthMode;
use crate::stats::Stat;
use crate::transport::Transport;

impl Sessions {
    /// What a brain says of tokens may be another thing than what the last one said (12.5). The
    /// link that it said it on knows no session yet.
    pub fn auth_changed(&mut self, io: &mut Io, last: AuthMode) {
        match (last, io.conns.settings.auth_mode) {
            (AuthMode::None, AuthMode::Jwt) => {
                // This brain is not told of their end by the numbers of the last one.
                sync::forget_numbers(io);
                self.close_tokenless(io);
            }
            (_, AuthMode::None) => self.tokens = Tokens::default(),
            (AuthMode::Jwt, AuthMode::Jwt) => {}
        }
    }

    fn close_tokenless(&mut self, io: &mut Io) {
        for index in 0..io.conns.table.slots() {
            let Some(slot) = io.conns.slot(index) else { continue };
            match slot.phase() {
                Phase::Waiting | Phase::Opening => {
                    self.refuse_stream(io, index, &StreamError::of(&TOKEN_MISSING));
                }
                Phase::Live => {
                    self.close_gently(io, index, TOKEN_MISSING.code, CloseReason::CloseSessions);
                }
                // Requests have been answered when their link ended (8.7).
                _ => {}
            }
        }
    }

    /// Sees to it that a session is looked at when its token expires, or the brain is late with an
    /// operation, if that is soon.
    pub fn watch_session(&self, conns: &mut Conns, index: u32) {
        let ms = self.websockets.left_ms(conns, index);
        self.tokens.watch(conns, index, ms);
    }

    /// Ends a session whose token has expired; false if it hasn't.
    pub fn expired(&mut self, io: &mut Io, index: u32) -> bool {
        if self.tokens.left_ms(&io.conns, index) != Some(0) {
            return false;
        }
        let Some(slot) = io.conns.slot(index) else { return false };
        let (phase, transport, buffered) = (slot.phase(), slot.transport, slot.has(flag::BUFFERED));
        match phase {
            Phase::Waiting | Phase::Opening => {
                self.refuse_stream(io, index, &StreamError::of(&TOKEN_EXPIRED));
            }
            Phase::Live if transport == Transport::Poll => {
                return self.delivery.poll_expired(&mut io.conns, index);
            }
            Phase::Live => {
                // A held session goes on behind what it was replayed last, as its client knows.
                let cursor = if buffered { b"" } else { io.link.cursor() };
                let mut out = Vec::new();
                transport.token_ended(&mut out, cursor, TOKEN_EXPIRED.code);
                self.writer(io).push(index, out.into());
                self.close_after_flush(io, index, CloseReason::Expired);
            }
            _ => return false,
        }
        io.conns.stats.count(Stat::Expired);
        true
    }
}
