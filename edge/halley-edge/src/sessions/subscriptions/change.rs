//! The changes that a client makes to its session's subscriptions, and the text that stands for
//! presence among them.

/// Longest subject; the brain knows the rest of the rules.
pub const SUBJECT_BYTES_MAX: usize = 255;
/// Before a subject whose presence is meant.
pub const PRESENCE: char = '\u{1}';

/// What a session is to be subscribed to, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A subject more.
    Add(Box<str>),
    /// One less.
    Remove(Box<str>),
    /// What it says of itself, as JSON on one line; empty for nothing.
    State(Box<str>),
}

impl Change {
    /// Is it about what stands for this among a session's subscriptions?
    pub fn is_of(&self, subject: &[u8]) -> bool {
        match self {
            Change::Add(said) | Change::Remove(said) => said.as_bytes() == subject,
            Change::State(_) => false,
        }
    }
}

/// As what stands for the presence of a subject, unless it is too long or empty.
pub fn presence_of(subject: &str) -> Option<String> {
    let fits = (1..SUBJECT_BYTES_MAX).contains(&subject.len());
    fits.then(|| format!("{PRESENCE}{subject}"))
}
