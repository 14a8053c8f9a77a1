//! The state on a connection's slot while something happens there.

use halley_wire::websocket::Decoder;

use crate::conns::Hung;
use crate::conns::table::Phase;
use crate::sessions::base::exchange::Exchange;
use crate::sessions::base::first_message::Ahead;
use crate::sessions::base::opening::Opening;
use crate::sessions::base::poll::Poll;

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
    /// Frames that were read before there was a session for them.
    Ahead(Box<Ahead>),
}

impl Hung for Detail {
    fn has_kept(&self) -> bool {
        matches!(self, Detail::Http(exchange) if !exchange.unparsed.is_empty())
    }
}

/// A worker's connections.
pub type Conns = crate::conns::Conns<Detail>;

/// The poll of a connection that has one.
pub fn poll_of(conns: &mut Conns, index: u32) -> Option<&mut Poll> {
    match conns.table.detail(index)? {
        Detail::Opening(opening) => opening.poll.as_mut(),
        _ => None,
    }
}

/// The exchange of a connection that speaks HTTP, made if need be.
pub fn exchange_or_new(conns: &mut Conns, index: u32) -> Option<&mut Exchange> {
    if !conns.is_in(index, Phase::Http) {
        return None;
    }
    if !matches!(conns.table.detail(index), Some(Detail::Http(_))) {
        conns.table.set_detail(index, Detail::Http(Box::default()));
    }
    exchange_of(conns, index)
}

/// The exchange of a connection that has one.
pub fn exchange_of(conns: &mut Conns, index: u32) -> Option<&mut Exchange> {
    match conns.table.detail(index)? {
        Detail::Http(exchange) => Some(exchange),
        _ => None,
    }
}
