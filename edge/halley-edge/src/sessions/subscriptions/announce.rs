//! A session's announcement to the brain, when it opens or when the brain is another one
//! (`protocol/link.md` 6, 14): its OPEN, and before that its subscriptions.

use std::borrow::Cow;

use halley_link::{Frame, List, Session};

use crate::conns::table::{Phase, flag};
use crate::sessions::base::detail::Detail;
use crate::sessions::base::io::Io;
use crate::sessions::subscriptions::Subscriptions;
use crate::sessions::subscriptions::packed::{is_presence, is_state, put, subjects};
use crate::sessions::subscriptions::view::{self, EVERYBODY};
use crate::sessions::users::tokens::Tokens;
use crate::settings::Settings;

/// The brain keeps what it is told until the OPEN has come, some megabytes of it.
const MUCH_BYTES: usize = 1_024;

impl Subscriptions {
    /// Tells the brain of a session, if there is a brain and it hasn't been told. A session that is
    /// held goes on from its own `cursor`, all others from the link's (10.6).
    pub fn announce(&mut self, io: &mut Io, tokens: &Tokens, index: u32, cursor: &[u8]) {
        if !io.link.is_up() {
            return;
        }
        let conn = io.conns.table.conn(index);
        let Some(slot) = io.conns.slot(index) else { return };
        let ours = matches!(slot.phase(), Phase::Opening | Phase::Live) && !slot.has(flag::DOOMED);
        if !ours || slot.has(flag::ANNOUNCED) {
            return;
        }
        slot.set(flag::ANNOUNCED);
        let (transport, opening) = (slot.transport.on_link(), slot.phase() == Phase::Opening);
        let much = self.say_subjects(io, index);
        let user = io.conns.table.user(index);
        io.link.opened(&Session { conn, transport, user, cursor });
        if much {
            io.link.announce();
        }
        self.rights_again(io, tokens, index);
        if opening {
            let ms = io.conns.settings.stream_open_ms_max;
            tokens.set_deadline(&mut io.conns, index, ms);
        }
    }

    /// Before the OPEN of a session: what it is subscribed to, if it is, or if it has no user
    /// (14.1). Rights are for what no brain has judged yet. True if this is so much that the OPEN
    /// is not to wait for others.
    fn say_subjects(&self, io: &mut Io, index: u32) -> bool {
        let packed = self.packed(index);
        let visitor = io.conns.table.user(index).is_empty();
        if !io.conns.settings.subscriptions || (packed.is_empty() && !visitor) {
            return false;
        }
        let conn = io.conns.table.conn(index);
        let opening = io.conns.phase(index) == Phase::Opening;
        let rights = match io.conns.table.detail(index) {
            Some(Detail::Opening(opened)) if opening => opened.rights.as_bytes(),
            _ => b"",
        };
        let known = said(packed, &Knows::of(&io.conns.settings, rights.is_empty()));
        let count = subjects(&known).count() as u16;
        let subjects = List::from_items(count, &known);
        let much = packed.len() + rights.len() > MUCH_BYTES;
        io.link.send(&Frame::Subscriptions { conn, rights, subjects });
        much
    }
}

/// What the brain knows of.
struct Knows {
    presence: bool,
    states: bool,
    views: bool,
    /// What a session may not have without the view that such a brain doesn't know.
    granted: bool,
}

impl Knows {
    fn of(settings: &Settings, granted: bool) -> Knows {
        let Settings { presence, states, views, .. } = *settings;
        Knows { presence, states, views, granted }
    }
}

/// Without what a brain of a build before, or of another configuration, has no use for.
fn said<'p>(packed: &'p [u8], brain: &Knows) -> Cow<'p, [u8]> {
    // It would tell of everybody.
    let blind = !brain.views && brain.granted && subjects(packed).any(view::is_piece);
    let knows = |subject: &[u8]| {
        (brain.presence || !is_presence(subject))
            && (brain.states || !is_state(subject))
            && (brain.views || !view::is_piece(subject))
            && !(blind && subject == EVERYBODY)
    };
    if subjects(packed).all(knows) {
        return packed.into();
    }
    let mut left = Vec::new();
    subjects(packed).filter(|subject| knows(subject)).for_each(|subject| put(&mut left, subject));
    left.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::subscriptions::packed::packed;

    /// link.md 15.3
    #[test]
    fn a_brain_without_presence_hears_nothing_of_it() {
        let all = packed(&["a", "\u{1}a", "b"]);
        let knows = |presence| Knows { presence, states: true, views: true, granted: true };
        assert_eq!(*said(&all, &knows(true)), *all);
        assert_eq!(*said(&all, &knows(false)), *packed(&["a", "b"]));
    }

    /// link.md 19.2
    #[test]
    fn a_brain_without_views_never_tells_more_than_another_did() {
        let mut kept = Subscriptions::default();
        kept.set(3, &packed(&["a", "\u{1}*"]));
        kept.may_see(3, r#"{"presence":["b"]}"#);
        let all = packed(&["a", "\u{1}*", "\u{4}\u{0}\u{1}b"]);
        assert_eq!(kept.packed(3), all);
        let knows = |views, granted| Knows { presence: true, states: true, views, granted };
        assert_eq!(*said(&all, &knows(true, true)), *all);
        assert_eq!(*said(&all, &knows(false, true)), *packed(&["a"]));
        // It judges by the rights that come with it.
        assert_eq!(*said(&all, &knows(false, false)), *packed(&["a", "\u{1}*"]));
        let everybody = packed(&["\u{1}*"]);
        assert_eq!(*said(&everybody, &knows(false, true)), *everybody);
    }

    /// link.md 16: nothing of it for a brain from before.
    #[test]
    fn a_brain_without_states_hears_nothing_of_them() {
        let all = packed(&["\u{2}\u{0}12345678{}", "a", "b"]);
        let knows = |states| Knows { presence: true, states, views: true, granted: true };
        assert_eq!(*said(&all, &knows(true)), *all);
        assert_eq!(*said(&all, &knows(false)), *packed(&["a", "b"]));
    }
}
