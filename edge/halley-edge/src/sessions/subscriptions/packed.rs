//! Subjects as a session has them: one packed text, each after its length. Subjects of presence
//! stand among them after [`PRESENCE`], pieces of what the session says of itself after [`STATE`].

use halley_link::{Id, Item};

use crate::sessions::subscriptions::change::PRESENCE;

/// Before the pieces of what a session says of itself; no id begins with it.
pub const STATE: u8 = 2;

/// Is it a piece of what the session says of itself?
pub fn is_state(subject: &[u8]) -> bool {
    subject.first() == Some(&STATE)
}

/// Is presence meant?
pub fn is_presence(subject: &[u8]) -> bool {
    subject.first() == Some(&(PRESENCE as u8))
}

/// One subject more.
pub fn put(packed: &mut Vec<u8>, subject: &[u8]) {
    Id(subject).write(packed);
}

/// One after the other.
pub fn subjects(packed: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = packed;
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first()?;
        let (subject, behind) = behind.split_at_checked(usize::from(*length))?;
        rest = behind;
        Some(subject)
    })
}

/// Packs subjects.
#[cfg(test)]
pub fn packed(all: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    all.iter().for_each(|subject| put(&mut out, subject.as_bytes()));
    out
}
