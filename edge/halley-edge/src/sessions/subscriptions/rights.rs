//! When the rights of a session change while it lives (`protocol/http.md` 14.7, 14.11).
//!
//! The edge doesn't judge what a token allows. When a session's rights have changed, it sends them
//! to the brain by RIGHTS, and the brain answers each by ENDED: the subscriptions that have ended
//! by that (link.md 18). Rights that changed without a brain, or that one took with it, are sent
//! once the session is announced again.

use halley_link::Frame;

use crate::conns::table::flag;
use crate::sessions::base::io::Io;
use crate::sessions::subscriptions::Subscriptions;
use crate::sessions::users::tokens::Tokens;
use crate::settings::AuthMode;
use crate::stats::Stat;

impl Subscriptions {
    /// A session may do something else than before: what it is subscribed to is judged anew.
    pub fn rights_changed(&mut self, io: &mut Io, tokens: &Tokens, index: u32) {
        self.keep_view(io, tokens, index);
        if io.conns.settings.rights && !self.packed(index).is_empty() {
            self.due.changed(index);
            self.say_rights(io, tokens, index);
        }
    }

    /// Keeps whom the session may see.
    pub fn keep_view(&mut self, io: &mut Io, tokens: &Tokens, index: u32) {
        let rights = tokens.rights_of(&mut io.conns, index);
        self.narrow(io, index, &rights);
    }

    /// As [`Subscriptions::keep_view`], by these rights.
    pub fn narrow(&mut self, io: &mut Io, index: u32, rights: &str) {
        let narrowed = self.may_see(index, rights);
        io.conns.stats.add(Stat::PresenceNarrowed, u64::from(narrowed));
    }

    /// Says them to the brain, if it knows the session.
    fn say_rights(&mut self, io: &mut Io, tokens: &Tokens, index: u32) {
        let knows = io.conns.slot(index).is_some_and(|slot| slot.has(flag::ANNOUNCED));
        if !io.link.is_up() || !knows {
            return;
        }
        // Its OPEN may wait for the end of the round.
        io.link.announce();
        let (rights, conn) = (tokens.rights_of(&mut io.conns, index), io.conns.table.conn(index));
        io.link.send(&Frame::Rights { conn, rights: rights.as_bytes() });
        self.due.sent(index);
    }

    /// A session was announced to a brain that knows nothing of what another one was asked.
    pub fn rights_again(&mut self, io: &mut Io, tokens: &Tokens, index: u32) {
        if self.due.begin_again(index) {
            self.say_rights(io, tokens, index);
        }
    }

    /// Another brain lets visitors without a token do something else than the last one did.
    pub fn anonymous_changed(&mut self, io: &mut Io, tokens: &Tokens, last: &str) {
        let settings = &io.conns.settings;
        if !settings.rights || settings.auth_mode == AuthMode::None || *settings.anonymous == *last
        {
            return;
        }
        for index in 0..io.conns.table.slots() {
            if !self.packed(index).is_empty() && tokens.has_none(&mut io.conns, index) {
                self.due.changed(index);
            }
        }
    }
}
