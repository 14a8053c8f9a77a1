//! The answer to a poll while it gathers (`protocol/http.md` 11).
//!
//! Invariant: `bytes` is what the events have. Whether there is room for one more is the caller's
//! to say, and `sessions/poll/ahead.rs` bounds what the client sends ahead.

use std::rc::Rc;

use halley_link::CloseReason;
use halley_wire::http1::response::ResponseOptions;
use halley_wire::{Gap, poll};

use crate::outbox::Piece;
use crate::transport::EXPIRED;

/// A gap that has yet to be told.
struct OwnGap {
    reason: String,
    from: u64,
    to: u64,
}

/// See the module.
pub struct Poll {
    until_ms: u64,
    events: Vec<Rc<[u8]>>,
    bytes: usize,
    gap: Option<OwnGap>,
    /// Of OPENED or of the gap, and where the link was then.
    cursor: Box<[u8]>,
    link_was: Box<[u8]>,
    /// What the client sent ahead of the answer.
    unparsed: Vec<u8>,
    /// Its token has expired.
    expired: bool,
}

impl Poll {
    /// One that waits until then, by the worker's clock.
    pub fn until(until_ms: u64) -> Poll {
        Poll {
            until_ms,
            events: Vec::new(),
            bytes: 0,
            gap: None,
            cursor: Box::default(),
            link_was: Box::default(),
            unparsed: Vec::new(),
            expired: false,
        }
    }

    /// Is there anything to say?
    pub fn has_something(&self) -> bool {
        !self.events.is_empty() || self.gap.is_some() || self.expired
    }

    /// How long it may still wait.
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        self.until_ms.saturating_sub(now_ms)
    }

    /// Is its time over, and so much more?
    pub fn is_late(&self, now_ms: u64, more_ms: u64) -> bool {
        self.until_ms + more_ms <= now_ms
    }

    /// The brain said where the poll is, which is nearer than what the link said before.
    pub fn is_at(&mut self, cursor: &[u8], link: &[u8]) {
        if !cursor.is_empty() {
            self.cursor = cursor.into();
            self.link_was = link.into();
        }
    }

    /// Takes an event; false when it would pass the bound.
    pub fn add(&mut self, piece: Piece, bytes_max: usize) -> bool {
        if piece.len() > bytes_max.saturating_sub(self.bytes) {
            return false;
        }
        self.bytes += piece.len();
        self.events.push(piece.bytes);
        true
    }

    /// Notes a gap; several become one.
    pub fn note(&mut self, gap: &Gap<'_>) {
        let from = self.gap.as_ref().map_or(gap.from, |first| first.from);
        let (reason, to) = (gap.reason.to_owned(), gap.to);
        self.gap = Some(OwnGap { reason, from, to });
    }

    /// Its token has expired; false if that was known.
    pub fn expire(&mut self) -> bool {
        !std::mem::replace(&mut self.expired, true)
    }

    /// Keeps what the client sent ahead of the answer; gives how much that is by now.
    pub fn keep_ahead(&mut self, bytes: &[u8]) -> usize {
        self.unparsed.extend_from_slice(bytes);
        self.unparsed.len()
    }

    /// How many bytes the client sent ahead of the answer.
    pub fn ahead(&self) -> usize {
        self.unparsed.len()
    }

    /// What the client sent ahead of the answer.
    pub fn into_ahead(self) -> Vec<u8> {
        self.unparsed
    }

    /// What the client goes on behind, if the link is here.
    pub fn cursor(&self, link: &[u8]) -> Vec<u8> {
        // The link has brought nothing since the brain named another cursor: that is nearer.
        let stands = self.events.is_empty() && *self.link_was == *link;
        if stands && !self.cursor.is_empty() { self.cursor.to_vec() } else { link.to_vec() }
    }

    /// Why it ends, unless its token has expired.
    pub fn reason(&self, reason: CloseReason) -> CloseReason {
        if self.expired { CloseReason::Expired } else { reason }
    }

    /// The answer's bytes; `more` says that there is more to get behind `cursor` at once.
    pub fn answer(&self, cursor: &[u8], more: bool, options: &ResponseOptions<'_>) -> Vec<u8> {
        let gap = self.gap.as_ref();
        let gap = gap.map(|gap| Gap { reason: &gap.reason, from: gap.from, to: gap.to });
        let end = self.expired.then_some(EXPIRED);
        let answer = poll::Answer { gap, events: &self.events, cursor, more, end };
        let mut out = Vec::new();
        poll::answer(&mut out, &answer, options);
        out
    }
}
