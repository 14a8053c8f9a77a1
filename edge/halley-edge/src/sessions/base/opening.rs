//! The state of a stream until its session is there, and of a poll until its answer.

use crate::sessions::base::exchange::Reply;
use crate::sessions::base::first_message::Ahead;
use crate::sessions::base::poll::Poll;

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
    /// What came behind the first message of a WebSocket that is opened by it.
    pub ahead: Option<Box<Ahead>>,
}
