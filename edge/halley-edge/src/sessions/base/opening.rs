//! The state of a stream until its session is there, and of a poll until its answer.

use std::rc::Rc;

use halley_wire::Gap;

use crate::sessions::base::exchange::Reply;

/// What a stream holds until its session is there, and a poll until it is answered.
pub struct Opening {
    /// What its client reads before the welcome.
    pub answer: Vec<u8>,
    /// Of the request.
    pub reply: Reply,
    /// By which the brain judges what it is subscribed to; empty where that isn't asked.
    pub rights: Box<str>,
    /// When its client asked for it.
    pub since_ms: u64,
    /// What the answer to a poll is going to be.
    pub poll: Option<Poll>,
}

/// A gap that has yet to be told.
pub struct OwnGap {
    pub reason: String,
    pub from: u64,
    pub to: u64,
}

/// What a poll is going to be answered with.
pub struct Poll {
    pub until_ms: u64,
    pub events: Vec<Rc<[u8]>>,
    pub bytes: usize,
    pub gap: Option<OwnGap>,
    /// Of OPENED or of the gap, and where the link was then.
    pub cursor: Box<[u8]>,
    pub link_was: Box<[u8]>,
    /// What the client sent ahead of the answer.
    pub unparsed: Vec<u8>,
    /// Its token has expired.
    pub expired: bool,
}

impl Poll {
    /// Is there anything to say?
    pub fn has_something(&self) -> bool {
        !self.events.is_empty() || self.gap.is_some() || self.expired
    }

    /// Notes a gap; several become one.
    pub fn note(&mut self, gap: &Gap<'_>) {
        let from = self.gap.as_ref().map_or(gap.from, |first| first.from);
        let (reason, to) = (gap.reason.to_owned(), gap.to);
        self.gap = Some(OwnGap { reason, from, to });
    }
}
