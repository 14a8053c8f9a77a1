//! What hangs on a connection's slot while something happens there.

use halley_wire::websocket::Decoder;

use crate::sessions::exchange::Exchange;
use crate::sessions::stream::Opening;

/// What a connection needs only while something happens on it.
#[derive(Default)]
pub enum Detail {
    /// Nothing.
    #[default]
    None,
    /// An HTTP request or answer in the middle.
    Http(Box<Exchange>),
    /// A stream's answer until the session is there, a poll's until there is one.
    Opening(Box<Opening>),
    /// A frame or message in the middle that a WebSocket's client sends.
    WebSocket(Decoder),
}
