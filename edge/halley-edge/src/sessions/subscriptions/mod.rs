//! The subscriptions of a worker's sessions (`protocol/http.md` 21): kept so that they can be sent
//! to the next brain (link.md 14). The receivers of an event are the brain's business alone.
//!
//! A session's subjects of presence (22) stand among its subjects, after [`PRESENCE`], with which
//! no id begins.
//!
//! So does a session's own state (23): a time and a text, in pieces that stand among its subjects,
//! each after [`STATE`] and its number (link.md 16); and so does its view (`view.rs`).
//!
//! A session's subjects are one packed text, each after its length: up to 255 bytes of it stand
//! among the packed names, longer ones have an allocation of their own. Sessions without
//! subscriptions have nothing here.

pub mod change;
pub mod rights_due;
pub mod view;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use halley_link::{Frame, Id, Item, List};
use halley_wire::HttpError;
use halley_wire::target::{self, Plus};

use crate::conns::table::Phase;
use crate::conns::table::names::{Name, Names};
use crate::sessions::base::detail::Detail;
use crate::sessions::base::io::Io;
use crate::sessions::subscriptions::change::{Change, PRESENCE, SUBJECT_BYTES_MAX, presence_of};
use crate::sessions::subscriptions::view::EVERYBODY;
use crate::settings::Settings;
use crate::side_table::SideTable;

/// Before the pieces of what a session says of itself; no id begins with it.
const STATE: u8 = 2;
/// Of a piece, behind [`STATE`] and its number.
const PIECE_BYTES: usize = 253;

/// The brain keeps what it is told until the OPEN has come, some megabytes of it.
const MUCH_BYTES: usize = 1_024;

const BAD_SUBJECTS: HttpError = HttpError::new(
    400,
    "bad_subject",
    "subjects= has subjects of 1 to 255 bytes with commas between; subject= has one, and may be \
     there several times.",
);
const UNKNOWN: HttpError = HttpError::new(
    503,
    "subscriptions_unknown",
    "The brain behind this edge is of a build before subscriptions: open the stream without.",
)
.after(5);

const BAD_PRESENCE: HttpError = HttpError::new(
    400,
    "bad_presence",
    "presence= has subjects of 1 to 254 bytes with commas between; a stream or WebSocket takes it, \
     a poll doesn't but with timeout=0: it asks /v1/me/subjects/S/presence.",
);
const NO_PRESENCE: HttpError = HttpError::new(
    400,
    "presence_off",
    "No presence is told here: set presence.subjects to the subjects of which it shall be.",
);

/// See the module.
#[derive(Default)]
pub struct Subscriptions {
    names: Names,
    /// By index.
    short: SideTable<Name>,
    /// By index: what is too long for a name.
    long: HashMap<u32, Box<[u8]>>,
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
        if !self.packed(index).is_empty() {
            self.set(index, b"");
        }
    }

    /// Before the OPEN of a session: what it is subscribed to, if it is, or if it has no user
    /// (link.md 14.1). Rights are for what no brain has judged yet. True if this is so much that
    /// the OPEN is not to wait for others.
    pub fn announce(&self, io: &mut Io, index: u32) -> bool {
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

fn is_state(subject: &[u8]) -> bool {
    subject.first() == Some(&STATE)
}

fn is_presence(subject: &[u8]) -> bool {
    subject.first() == Some(&(PRESENCE as u8))
}

fn put(packed: &mut Vec<u8>, subject: &[u8]) {
    Id(subject).write(packed);
}

fn subjects(packed: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = packed;
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first()?;
        let (subject, behind) = behind.split_at_checked(usize::from(*length))?;
        rest = behind;
        Some(subject)
    })
}

/// The subjects that a request names, packed (21.1); empty for none.
///
/// # Errors
/// 400 for what is no subject, and as for any parameter.
pub fn of_target(target: &str) -> Result<Vec<u8>, HttpError> {
    let mut named = Named::default();
    if let Some(several) = target::query_value(target, "subjects")? {
        several.split(',').try_for_each(|subject| named.put(subject))?;
    }
    let (_, query) = target::split(target);
    for pair in query.unwrap_or_default().split('&') {
        if let Some(value) = pair.strip_prefix("subject=") {
            let subject: Cow<'_, str> = target::decode(value, Plus::Space)?;
            named.put(&subject)?;
        }
    }
    if let Some(several) = target::query_value(target, "presence")? {
        several
            .split(',')
            .try_for_each(|subject| named.put(&presence_of(subject).ok_or(BAD_PRESENCE)?))?;
    }
    Ok(named.packed)
}

/// Subjects of a request, each once. A form names thousands: a look at all for each would take the
/// worker's time.
#[derive(Default)]
struct Named {
    packed: Vec<u8>,
    known: HashSet<Box<str>>,
}

impl Named {
    fn put(&mut self, subject: &str) -> Result<(), HttpError> {
        if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX {
            return Err(BAD_SUBJECTS);
        }
        if self.known.insert(subject.into()) {
            put(&mut self.packed, subject.as_bytes());
        }
        Ok(())
    }
}

/// As [`of_target`] for a poll, which is told of no presence: one that waits for nothing may ask
/// whether a stream would be (22.5).
///
/// # Errors
/// As there, and 400 where a poll that waits wants presence.
pub fn of_poll(target: &str, waits: bool) -> Result<Vec<u8>, HttpError> {
    let packed = of_target(target)?;
    if waits && subjects(&packed).any(is_presence) { Err(BAD_PRESENCE) } else { Ok(packed) }
}

/// Does the brain know of subscriptions?
///
/// # Errors
/// 503 where a request needs that and it isn't so.
pub fn may_have(io: &Io, packed: &[u8]) -> Result<(), HttpError> {
    let settings = &io.conns.settings;
    if packed.is_empty() {
        Ok(())
    } else if !settings.subscriptions {
        Err(UNKNOWN)
    } else if !settings.presence && subjects(packed).any(is_presence) {
        Err(NO_PRESENCE)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(all: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        all.iter().for_each(|subject| put(&mut out, subject.as_bytes()));
        out
    }

    /// http.md 21.1
    #[test]
    fn subjects_of_a_request() {
        for (target, all) in [
            ("/v1/stream?user=a", &[][..]),
            ("/v1/stream?subjects=room/7,live/score", &["room/7", "live/score"]),
            ("/v1/stream?subjects=room%2F7%2Ca+b&x=1", &["room/7", "a b"]),
            ("/v1/stream?presence=room/7,*&subject=a", &["a", "\u{1}room/7", "\u{1}*"]),
            ("/v1/stream?subject=a%2Cb&subject=c&subjects=c,d", &["c", "d", "a,b"]),
        ] {
            assert_eq!(of_target(target), Ok(packed(all)), "{target}");
        }
        for target in ["/?subjects=", "/?subjects=a,,b", "/?subject=", "/?subjects=a&subjects=b"] {
            assert!(of_target(target).is_err(), "{target}");
        }
        for target in ["/?presence=", "/?presence=a,,b", "/?presence=a&presence=b"] {
            assert!(of_target(target).is_err(), "{target}");
        }
        assert!(of_target(&format!("/?subject={}", "x".repeat(256))).is_err());
        assert!(of_target(&format!("/?presence={}", "x".repeat(255))).is_err());
        assert_eq!(of_poll("/?subjects=a", true), Ok(packed(&["a"])));
        assert_eq!(of_poll("/?subjects=a&presence=b", true), Err(BAD_PRESENCE));
        assert_eq!(of_poll("/?subjects=a&presence=b", false), Ok(packed(&["a", "\u{1}b"])));
    }

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

    /// link.md 16: in pieces, beside the subjects, and nothing of it for a brain from before.
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
        let knows = |states| Knows { presence: true, states, views: true, granted: true };
        assert_eq!(*said(kept.packed(3), &knows(true)), *all);
        assert_eq!(*said(kept.packed(3), &knows(false)), *packed(&["a", "b"]));
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
