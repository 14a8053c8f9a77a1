//! When a right ends while its session lives (`protocol/http.md` 14.7, 14.11, 21.9).
//!
//! The edge doesn't judge what a token allows. When a session's rights have changed, it sends them
//! to the brain by RIGHTS, and the brain answers each by ENDED: the subscriptions that have ended
//! by that (link.md 18). A server may end one as well. Ended ones are forgotten here, so that they
//! aren't sent to the next brain, and the client gets a message.
//!
//! Rights that changed without a brain, or that one took with it, are sent once the session is
//! announced again.
//!
//! Tokens of a user that are revoked end its sessions.

use halley_link::{CloseReason, Frame, Id, List};
use halley_token::{Keys, Refusal};
use halley_wire::json_escape;

use crate::conns::table::{Phase, flag};
use crate::sessions::Sessions;
use crate::sessions::base::errors::StreamError;
use crate::sessions::base::io::Io;
use crate::sessions::subscriptions::change::{Change, PRESENCE};
use crate::sessions::users::identity::refused;
use crate::settings::AuthMode;
use crate::stats::Stat;
use crate::transport::Transport;

/// The reason of an ENDED that answers RIGHTS.
const RIGHT_MISSING: &[u8] = b"right_missing";
/// What stands for a session's state in ENDED.
const STATE: &[u8] = &[2];

impl Sessions {
    /// A session may do something else than before: what it is subscribed to is judged anew.
    pub fn rights_changed(&mut self, io: &mut Io, index: u32) {
        self.may_see(io, index);
        if !io.conns.settings.rights {
            return;
        }
        // The brain may grant by the rights of before what it was asked for already.
        self.websockets.judge_again(index);
        if !self.subscriptions.packed(index).is_empty() {
            self.rights_due.changed(index);
            self.say_rights(io, index);
        }
    }

    /// Keeps whom the session may see.
    pub fn may_see(&mut self, io: &mut Io, index: u32) {
        let rights = self.tokens.rights_of(&mut io.conns, index);
        let narrowed = self.subscriptions.may_see(index, &rights);
        io.conns.stats.add(Stat::PresenceNarrowed, u64::from(narrowed));
    }

    /// Says them to the brain, if it knows the session.
    fn say_rights(&mut self, io: &mut Io, index: u32) {
        let knows = io.conns.slot(index).is_some_and(|slot| slot.has(flag::ANNOUNCED));
        if !io.link.is_up() || !knows {
            return;
        }
        // Its OPEN may wait for the end of the round.
        io.link.announce();
        let (rights, conn) =
            (self.tokens.rights_of(&mut io.conns, index), io.conns.table.conn(index));
        io.link.send(&Frame::Rights { conn, rights: rights.as_bytes() });
        self.rights_due.sent(index);
    }

    /// A session was announced to a brain that knows nothing of what another one was asked.
    pub fn rights_again(&mut self, io: &mut Io, index: u32) {
        if self.rights_due.begin_again(index) {
            self.say_rights(io, index);
        }
    }

    /// Another brain lets visitors without a token do something else than the last one did.
    pub fn anonymous_changed(&mut self, io: &mut Io, last: &str) {
        let settings = &io.conns.settings;
        if !settings.rights || settings.auth_mode == AuthMode::None || *settings.anonymous == *last
        {
            return;
        }
        for index in 0..io.conns.table.slots() {
            if !self.subscriptions.packed(index).is_empty()
                && self.tokens.has_none(&mut io.conns, index)
            {
                self.rights_due.changed(index);
            }
        }
    }

    /// ENDED: what the session isn't subscribed to any more.
    pub fn ended(&mut self, io: &mut Io, conn: u64, reason: &[u8], subjects: List<'_, Id<'_>>) {
        let Some((index, slot)) = io.conns.find(conn) else {
            return io.conns.stats.count(Stat::Stale);
        };
        let (phase, transport, held) = (slot.phase(), slot.transport, slot.has(flag::BUFFERED));
        if reason == RIGHT_MISSING {
            self.rights_due.answered(index);
        }
        let ended: Vec<&[u8]> = subjects.iter().map(|Id(subject)| subject).collect();
        if ended.is_empty() {
            return;
        }
        io.conns.stats.add(Stat::SubscriptionsEnded, ended.len() as u64);
        let reason = String::from_utf8_lossy(reason);
        // Which of the two came first isn't known: the client says its subjects anew. So does a
        // poll.
        let is_poll = transport == Transport::Poll && phase == Phase::Live;
        if self.is_asking_for(index, &ended) || is_poll {
            let text = format!("{reason}: a subscription of this session has ended");
            return self.close_gently(io, index, &text, CloseReason::CloseSessions);
        }
        for subject in &ended {
            self.subscriptions.end(index, subject);
        }
        let mut text = Vec::new();
        transport.ended(&mut text, &json(&reason, &ended));
        match phase {
            Phase::Live if held => io.conns.push_beside_replay(index, text.into()),
            Phase::Live => io.conns.push(index, text.into()),
            Phase::Opening => self.writer(io).waits_for_welcome(index, &text),
            _ => {}
        }
    }

    /// Is an answer on its way that would bring one of these back?
    fn is_asking_for(&self, index: u32, ended: &[&[u8]]) -> bool {
        match self.websockets.change(index) {
            Some(Change::Add(subject)) => ended.contains(&subject.as_bytes()),
            Some(Change::State(_)) => ended.contains(&STATE),
            Some(Change::Remove(_)) | None => false,
        }
    }

    /// KEYS came: ends the sessions of users whose tokens were revoked since the last ones. Those
    /// with a newer token come back with it.
    pub fn take_keys(&mut self, io: &mut Io, keys: Keys) {
        let users = self.tokens.take_keys(keys);
        if users.is_empty() {
            return;
        }
        for index in 0..io.conns.table.slots() {
            if users.contains(io.conns.table.user(index)) {
                self.end_revoked(io, index);
            }
        }
    }

    fn end_revoked(&mut self, io: &mut Io, index: u32) {
        let Some(slot) = io.conns.slot(index) else { return };
        let (phase, transport, held) = (slot.phase(), slot.transport, slot.has(flag::BUFFERED));
        let error = refused(Refusal::Revoked);
        match phase {
            Phase::Waiting | Phase::Opening => {
                self.refuse_stream(io, index, &StreamError::of(&error));
            }
            Phase::Live if transport == Transport::Poll => {
                self.close_gently(io, index, error.code, CloseReason::CloseSessions);
            }
            Phase::Live => {
                let cursor = if held { b"" } else { io.link.cursor() };
                let mut out = Vec::new();
                transport.token_ended(&mut out, cursor, error.code);
                self.writer(io).push(index, out.into());
                self.close_after_flush(io, index, CloseReason::CloseSessions);
            }
            _ => return,
        }
        io.conns.stats.count(Stat::SessionsRevoked);
    }
}

/// What a client is told (http.md 21.9).
fn json(reason: &str, ended: &[&[u8]]) -> Vec<u8> {
    let mut out = b"{\"ended\":{\"reason\":".to_vec();
    json_escape(&mut out, reason);
    let is_presence = |subject: &[u8]| subject.first() == Some(&(PRESENCE as u8));
    let subjects = ended.iter().filter(|subject| **subject != STATE && !is_presence(subject));
    put_list(&mut out, "subjects", subjects.copied());
    let presence = ended.iter().filter(|subject| is_presence(subject));
    put_list(&mut out, "presence", presence.map(|subject| &subject[1..]));
    if ended.contains(&STATE) {
        out.extend_from_slice(b",\"state\":true");
    }
    out.extend_from_slice(b"}}");
    out
}

fn put_list<'a>(out: &mut Vec<u8>, name: &str, subjects: impl Iterator<Item = &'a [u8]>) {
    let mut before = format!(",\"{name}\":[");
    for subject in subjects {
        out.extend_from_slice(before.as_bytes());
        json_escape(out, &String::from_utf8_lossy(subject));
        before = ",".to_owned();
    }
    if before == "," {
        out.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// http.md 21.9
    #[test]
    fn what_has_ended_is_named() {
        for (ended, text) in [
            (&[&b"a\"b"[..], b"c"][..], r#""subjects":["a\"b","c"]"#),
            (&[b"\x01*", b"\x02"], r#""presence":["*"],"state":true"#),
            (&[b"\x02", b"\x01a", b"a"], r#""subjects":["a"],"presence":["a"],"state":true"#),
        ] {
            let all = format!("{{\"ended\":{{\"reason\":\"right_missing\",{text}}}}}");
            assert_eq!(String::from_utf8_lossy(&json("right_missing", ended)), all);
        }
    }
}
