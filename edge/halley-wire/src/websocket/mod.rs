//! WebSocket (RFC 6455): the handshake, frames in both directions, the decoder of what arrives.
//!
//! The order of use on a server: [`handshake::accept`], [`handshake::response`], then a
//! [`Decoder`] for what the client sends and [`encode`] for what it gets. No subprotocol is ever
//! agreed on, and one extension: with [`extension::Offers`] accepted, [`handshake::response_with`]
//! says so, [`encode::compressed`] makes messages shorter, and the decoder is lent an [`Inflater`].
//!
//! It is not a connection: who answers a ping, echoes a close and waits for the other's is the
//! worker's, as time is.

pub mod client;
mod decoder;
pub mod deflate;
pub mod encode;
pub mod extension;
mod frame;
pub mod handshake;

pub use decoder::{Decoded, Decoder, Event};
pub use deflate::{Deflater, Inflater};
pub use frame::{Rules, Sender};

/// The status codes of a close (RFC 6455 section 7.4.1, and the IANA registry that it founded).
pub mod close_code {
    /// What the connection was for is done.
    pub const NORMAL: u16 = 1000;
    /// The server stops, or the page was left.
    pub const GOING_AWAY: u16 = 1001;
    /// The other side broke the protocol.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// The other side sent a kind of data that isn't understood here.
    pub const UNSUPPORTED_DATA: u16 = 1003;
    /// Text that is not UTF-8.
    pub const INVALID_DATA: u16 = 1007;
    /// A rule of this service was broken.
    pub const POLICY_VIOLATION: u16 = 1008;
    /// A message over the limit.
    pub const MESSAGE_TOO_BIG: u16 = 1009;
    /// This side failed.
    pub const INTERNAL_ERROR: u16 = 1011;
    /// This side has no room now.
    pub const TRY_AGAIN_LATER: u16 = 1013;

    /// Whether a close frame may carry this code: 1004, 1005, 1006 and 1015 never travel, and what
    /// is neither registered nor left to applications has no meaning.
    pub const fn may_travel(code: u16) -> bool {
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

/// Why a connection must be failed (RFC 6455 section 7.1.7): send a close with `code` and end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// One of [`close_code`].
    pub code: u16,
    /// What the other side did wrong; short enough for a close frame.
    pub reason: &'static str,
}

impl Failure {
    const fn protocol(reason: &'static str) -> Failure {
        Failure { code: close_code::PROTOCOL_ERROR, reason }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

impl std::error::Error for Failure {}
