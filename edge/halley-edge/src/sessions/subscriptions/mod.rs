//! The subscriptions of a worker's sessions (`protocol/http.md` 21): kept so that they can be sent
//! to the next brain (link.md 14). The receivers of an event are the brain's business alone.
//!
//! A session's subjects are one packed text, each after its length (`packed.rs`): up to 255 bytes
//! of it stand among the packed names, longer ones have an allocation of their own. Sessions
//! without subscriptions have nothing here.
//!
//! Its subjects of presence (22) stand among its subjects, after a byte with which no id begins. So
//! does its own state (23): a time and a text, in pieces, each after [`STATE`] and its number
//! (link.md 16); and so does its view (`view.rs`).
//!
//! `target.rs` reads the subjects of a request, `change.rs` has the changes that a client makes.
//! `announce.rs` sends them to the brain, `rights.rs` sends changed rights, and `ended.rs` has the
//! message about those that have ended.

pub mod announce;
pub mod change;
pub mod ended;
pub mod packed;
pub mod rights;
pub mod rights_due;
pub mod target;
pub mod view;

use std::collections::HashMap;

use crate::conns::table::names::{Name, Names};
use crate::sessions::base::io::Io;
use crate::sessions::subscriptions::change::Change;
use crate::sessions::subscriptions::packed::{STATE, is_state, put, subjects};
use crate::sessions::subscriptions::rights_due::RightsDue;
use crate::sessions::subscriptions::view::EVERYBODY;
use crate::side_table::SideTable;

/// Of a piece, behind [`STATE`] and its number.
const PIECE_BYTES: usize = 253;

/// See the module.
#[derive(Default)]
pub struct Subscriptions {
    names: Names,
    /// By index.
    short: SideTable<Name>,
    /// By index: what is too long for a name.
    long: HashMap<u32, Box<[u8]>>,
    /// The sessions whose rights have changed.
    due: RightsDue,
}

impl Subscriptions {
    /// What a session is subscribed to, packed; empty for nothing.
    pub fn packed(&self, index: u32) -> &[u8] {
        match self.short.get(index) {
            Name::NONE => self.long.get(&index).map_or(b"", |packed| packed),
            name => self.names.get(name),
        }
    }

    /// Says so.
    pub fn set(&mut self, index: u32, packed: &[u8]) {
        self.names.forget(self.short.get(index));
        let name = self.names.keep(packed);
        self.short.set(index, name);
        if name == Name::NONE && !packed.is_empty() {
            self.long.insert(index, packed.into());
        } else if !self.long.is_empty() {
            self.long.remove(&index);
        }
    }

    /// Of a session that is to begin, with these rights.
    pub fn begin(&mut self, io: &mut Io, index: u32, packed: &[u8], rights: &str) {
        self.set(index, packed);
        self.narrow(io, index, rights);
    }

    /// One subject more.
    pub fn add(&mut self, index: u32, subject: &[u8]) {
        let mut packed = self.packed(index).to_vec();
        if !subjects(&packed).any(|known| known == subject) {
            put(&mut packed, subject);
            self.set(index, &packed);
        }
    }

    /// One subject less.
    pub fn remove(&mut self, index: u32, subject: &[u8]) {
        self.keep_if(index, |known| {
            known != subject && !(subject == EVERYBODY && view::is_piece(known))
        });
    }

    fn keep_if(&mut self, index: u32, stays: impl Fn(&[u8]) -> bool) {
        let mut left = Vec::new();
        let packed = subjects(self.packed(index)).filter(|known| stays(known));
        packed.for_each(|known| put(&mut left, known));
        self.set(index, &left);
    }

    /// Whom it may see from now on, if it is told of all whom its user follows; true if that is
    /// not everybody.
    pub fn may_see(&mut self, index: u32, rights: &str) -> bool {
        if !subjects(self.packed(index)).any(|known| known == EVERYBODY) {
            return false;
        }
        let pieces = view::pieces(rights);
        self.keep_if(index, |known| !view::is_piece(known));
        let mut packed = self.packed(index).to_vec();
        pieces.iter().for_each(|piece| put(&mut packed, piece));
        self.set(index, &packed);
        !pieces.is_empty()
    }

    /// The brain has answered RIGHTS.
    pub fn rights_answered(&mut self, index: u32) {
        self.due.answered(index);
    }

    /// The brain has ended one, or what the session says of itself.
    pub fn end(&mut self, index: u32, subject: &[u8]) {
        if is_state(subject) {
            self.state(index, 0, "");
        } else {
            self.remove(index, subject);
        }
    }

    /// The session is over.
    pub fn forget(&mut self, index: u32) {
        self.due.forget(index);
        if !self.packed(index).is_empty() {
            self.set(index, b"");
        }
    }

    /// What it says of itself since then, or nothing any more.
    fn state(&mut self, index: u32, unix_ms: u64, text: &str) {
        let mut packed = Vec::new();
        if !text.is_empty() {
            let whole = [&unix_ms.to_be_bytes(), text.as_bytes()].concat();
            for (number, part) in (0..).zip(whole.chunks(PIECE_BYTES)) {
                put(&mut packed, &[&[STATE, number], part].concat());
            }
        }
        let others = subjects(self.packed(index)).filter(|subject| !is_state(subject));
        others.for_each(|subject| put(&mut packed, subject));
        self.set(index, &packed);
    }

    /// The brain has done what a client wanted.
    pub fn change(&mut self, index: u32, unix_ms: u64, change: &Change) {
        match change {
            Change::State(text) => self.state(index, unix_ms, text),
            Change::Add(subject) => self.add(index, subject.as_bytes()),
            Change::Remove(subject) => self.remove(index, subject.as_bytes()),
        }
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.long.shrink_to(2 * self.long.len());
        self.due.trim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::subscriptions::packed::packed;
    use proptest::prelude::*;

    /// http.md 14.7, 22.6
    #[test]
    fn a_view_follows_the_rights() {
        let mut kept = Subscriptions::default();
        kept.may_see(3, r#"{"presence":["b"]}"#);
        assert_eq!(kept.packed(3), b"");
        kept.add(3, EVERYBODY);
        kept.add(3, b"a");
        kept.may_see(3, r#"{"presence":["b"]}"#);
        kept.may_see(3, r#"{"presence":["c*"]}"#);
        assert_eq!(kept.packed(3), packed(&["\u{1}*", "a", "\u{4}\u{0}\u{2}c*"]));
        kept.may_see(3, r#"{"presence":["*"]}"#);
        assert_eq!(kept.packed(3), packed(&["\u{1}*", "a"]));
        kept.may_see(3, "{}");
        kept.end(3, EVERYBODY);
        assert_eq!(kept.packed(3), packed(&["a"]));
    }

    /// link.md 16: in pieces, beside the subjects.
    #[test]
    fn what_a_session_says_of_itself() {
        let mut kept = Subscriptions::default();
        kept.add(3, b"a");
        let text = format!("\"{}\"", "x".repeat(400));
        kept.change(3, 258, &Change::State(text.as_str().into()));
        kept.add(3, b"b");
        let whole = [&[0, 0, 0, 0, 0, 0, 1, 2], text.as_bytes()].concat();
        let mut all = Vec::new();
        put(&mut all, &[&[2, 0], &whole[..253]].concat());
        put(&mut all, &[&[2, 1], &whole[253..]].concat());
        all.extend_from_slice(&packed(&["a", "b"]));
        assert_eq!(kept.packed(3), all);
        kept.change(3, 259, &Change::State("1".into()));
        assert_eq!(subjects(kept.packed(3)).filter(|subject| is_state(subject)).count(), 1);
        kept.change(3, 260, &Change::State("".into()));
        assert_eq!(kept.packed(3), packed(&["a", "b"]));
    }

    proptest! {
        /// Against a model: however short or long the lists are.
        #[test]
        fn each_session_has_its_subjects(
            steps in prop::collection::vec((0u32..4, 0u8..40, any::<bool>(), any::<bool>()), 0..200)
        ) {
            let mut kept = Subscriptions::default();
            let mut model: HashMap<u32, Vec<String>> = HashMap::new();
            for (index, n, more, ends) in steps {
                let subject = format!("subject-{n}");
                let list = model.entry(index).or_default();
                if ends && n == 0 {
                    kept.forget(index);
                    list.clear();
                } else if more {
                    kept.add(index, subject.as_bytes());
                    if !list.contains(&subject) {
                        list.push(subject);
                    }
                } else {
                    kept.remove(index, subject.as_bytes());
                    list.retain(|known| *known != subject);
                }
            }
            for (index, list) in model {
                let all: Vec<&str> = list.iter().map(String::as_str).collect();
                prop_assert_eq!(kept.packed(index), packed(&all));
            }
        }
    }
}
