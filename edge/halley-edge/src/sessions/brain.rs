//! Sessions for the brain: all of them at a handshake, then each that opens or ends
//! (`protocol/link.md` 6); and what the brain refuses or ends. State is replaced, never repaired.

use halley_link::{CloseReason, Id, List};

use crate::conns::table::{Phase, flag};
use crate::sessions::Sessions;
use crate::sessions::base::errors::StreamError;
use crate::sessions::base::io::Io;
use crate::sessions::subscriptions::ended::{self, RIGHT_MISSING};
use crate::sessions::users::identity::TOKEN_MISSING;
use crate::sessions::users::tokens::Tokens;
use crate::settings::{AuthMode, Settings};
use crate::stats::Stat;
use crate::transport::Transport;

/// When a link has ended, and before a sync: what an earlier brain knows and said of the
/// sessions is void. Gives how many there are.
pub fn forget_numbers(io: &mut Io) -> u32 {
    let mut sessions = 0;
    for index in 0..io.conns.table.slots() {
        let Some(slot) = io.conns.slot(index) else { continue };
        if slot.phase() == Phase::Free {
            continue;
        }
        slot.user_number = 0;
        slot.clear(flag::ANNOUNCED);
        match slot.phase() {
            Phase::Opening | Phase::Live => sessions += 1,
            Phase::Left => io.conns.forget_left(index),
            Phase::Free
            | Phase::Proxy
            | Phase::Handshake
            | Phase::Http
            | Phase::Waiting
            | Phase::Closing => {}
        }
    }
    sessions
}

impl Sessions {
    /// One round of the sync: announces what has not been announced, slot by slot (6.1, 6.3).
    pub fn sync(&mut self, io: &mut Io) {
        let slots = io.conns.table.slots();
        let Some(part) = io.link.sync_slots(slots) else { return };
        for index in part.clone() {
            self.announce(io, index);
        }
        io.link.synced(part.end, slots);
    }

    /// Tells the brain of a session, if there is a brain and it hasn't been told.
    pub fn announce(&mut self, io: &mut Io, index: u32) {
        let cursor = self.delivery.own_cursor(&mut io.conns, index);
        self.subscriptions.announce(io, &self.tokens, index, cursor);
    }

    /// What a brain says of tokens may be another thing than what the last one said (12.5). The
    /// link that it said it on knows no session yet.
    pub fn settings_changed(&mut self, io: &mut Io, last: &Settings) {
        match (last.auth_mode, io.conns.settings.auth_mode) {
            (AuthMode::None, AuthMode::Jwt) => {
                // This brain is not told of their end by the numbers of the last one.
                forget_numbers(io);
                let missing = StreamError::of(&TOKEN_MISSING);
                for index in 0..io.conns.table.slots() {
                    // Requests have been answered when their link ended (8.7).
                    self.refuse_session(io, index, &missing, TOKEN_MISSING.code);
                }
            }
            (_, AuthMode::None) => self.tokens = Tokens::default(),
            (AuthMode::Jwt, AuthMode::Jwt) => {}
        }
        self.subscriptions.anonymous_changed(io, &self.tokens, &last.anonymous);
    }

    /// REFUSED.
    pub fn refused(&mut self, io: &mut Io, conn: u64, error: &StreamError<'_>) {
        let Some((index, slot)) = io.conns.table.find(conn) else { return };
        slot.clear(flag::ANNOUNCED);
        match slot.phase() {
            _ if slot.has(flag::DOOMED) => {}
            Phase::Left => io.conns.forget_left(index),
            _ => {
                let reason = format!("{}: {}", error.code, error.message);
                self.refuse_session(io, index, error, &reason);
            }
        }
    }

    /// A session may not be: it doesn't come about, or ends with these words.
    fn refuse_session(&mut self, io: &mut Io, index: u32, error: &StreamError<'_>, words: &str) {
        match io.conns.phase(index) {
            Phase::Waiting | Phase::Opening => self.refuse_stream(io, index, error),
            Phase::Live => self.close_gently(io, index, words, CloseReason::CloseSessions),
            Phase::Free
            | Phase::Proxy
            | Phase::Handshake
            | Phase::Http
            | Phase::Closing
            | Phase::Left => {}
        }
    }

    /// ENDED: what the session isn't subscribed to any more (link.md 18).
    pub fn ended(&mut self, io: &mut Io, conn: u64, reason: &[u8], subjects: List<'_, Id<'_>>) {
        let Some((index, slot)) = io.conns.find(conn) else {
            return io.conns.stats.count(Stat::Stale);
        };
        let polls = slot.transport == Transport::Poll && slot.phase() == Phase::Live;
        if reason == RIGHT_MISSING {
            self.subscriptions.rights_answered(index);
        }
        let ended: Vec<&[u8]> = subjects.iter().map(|Id(subject)| subject).collect();
        if ended.is_empty() {
            return;
        }
        io.conns.stats.add(Stat::SubscriptionsEnded, ended.len() as u64);
        let reason = String::from_utf8_lossy(reason);
        // Which of the two came first isn't known: the client says its subjects anew. So does a
        // poll.
        if self.websockets.change(index).is_some_and(|change| ended::brings(change, &ended))
            || polls
        {
            let text = format!("{reason}: a subscription of this session has ended");
            return self.close_gently(io, index, &text, CloseReason::CloseSessions);
        }
        for subject in &ended {
            self.subscriptions.end(index, subject);
        }
        self.writer(io).ended(index, &ended::json(&reason, &ended));
    }
}
