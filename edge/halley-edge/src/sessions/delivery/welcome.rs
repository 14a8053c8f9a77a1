//! The beginning of a session: from Opening to Live.

use halley_link::{CloseReason, ClosedSession, NumberedSession};

use crate::conns::table::{Phase, flag};
use crate::sessions::base::detail::{Conns, Detail};
use crate::sessions::delivery::{Delivery, Writer};
use crate::sessions::users::tokens::Tokens;
use crate::stats::Stat;
use crate::transport::Transport;

impl Delivery {
    /// The session is there: the client may know (6.2), and what it goes on behind.
    pub fn welcome(&mut self, conns: &mut Conns, tokens: &Tokens, index: u32, cursor: &[u8]) {
        let Some(slot) = conns.slot(index) else { return };
        // A poll says nothing before it has an answer, so it can wait for OPENED.
        if slot.phase() != Phase::Opening || slot.transport == Transport::Poll {
            return;
        }
        let transport = slot.transport;
        let detail = conns.table.take_detail(index);
        begin(conns, tokens, index);
        if let Detail::Opening(opening) = detail {
            let mut out = opening.answer;
            let retry_ms = self.random.around(conns.settings.stream_retry_ms);
            transport.welcome(&mut out, retry_ms, cursor);
            if let Some(early) = self.early.remove(&index) {
                out.extend_from_slice(&early);
            }
            if let Some(ahead) = opening.ahead {
                // It is read when the welcome is written.
                conns.table.set_detail(index, Detail::Ahead(ahead));
                if let Some(slot) = conns.slot(index) {
                    slot.set(flag::UNREAD);
                }
            }
            // Nothing comes before it.
            conns.push(index, out.into());
        }
    }
}

impl Writer<'_> {
    /// See [`Delivery::welcome`].
    pub fn welcome(&mut self, index: u32, cursor: &[u8]) {
        self.delivery.welcome(&mut self.io.conns, self.tokens, index, cursor);
    }

    /// OPENED of one session. One that is doomed learns its number, so that its end can be told.
    pub fn opened(&mut self, session: NumberedSession, cursor: &[u8]) {
        let NumberedSession { conn, user_number } = session;
        let Some((index, slot)) = self.io.conns.table.find(conn) else { return };
        slot.user_number = user_number;
        if slot.has(flag::DOOMED) && slot.phase() != Phase::Closing {
            return;
        }
        // What was read before OPENED is written before it, and counts as OPENED (6.2).
        self.deliver_pending_first(index);
        let Some(slot) = self.io.conns.slot(index) else { return };
        match slot.phase() {
            Phase::Opening if slot.transport == Transport::Poll => self.poll_opened(index, cursor),
            Phase::Opening => {
                self.welcome(index, cursor);
                self.delivery.replays.began(index, self.io.link.cursor());
            }
            // A poll that another brain opened may have waited for its number.
            Phase::Live => self.poll_due_if_late(index),
            Phase::Left | Phase::Closing => {
                let knew = slot.clear(flag::ANNOUNCED);
                let reason = slot.ended.unwrap_or(CloseReason::Client);
                self.io.conns.forget_left(index);
                if knew {
                    self.io.link.closed(&ClosedSession { conn, user_number, reason });
                }
            }
            Phase::Free | Phase::Proxy | Phase::Handshake | Phase::Http | Phase::Waiting => {}
        }
    }
}

/// From Opening to Live.
pub fn begin(conns: &mut Conns, tokens: &Tokens, index: u32) {
    let Some(slot) = conns.slot(index) else { return };
    slot.deadline = 0;
    conns.become_of(index, Phase::Live);
    conns.stats.count(Stat::Streams);
    // Only its token can end it by now: it has had no time for an operation.
    tokens.watch(conns, index, u64::MAX);
}
