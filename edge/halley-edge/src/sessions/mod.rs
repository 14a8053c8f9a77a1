//! Sessions, from a client's request on. [`Sessions`] has each part's state, and routes: what one
//! part can do by itself goes to that part, and here is what needs several of them.
//!
//! - `open.rs` opens sessions, or sends their clients away;
//! - `brain.rs` reports them to the brain, and has what the brain says of their right to be;
//! - `expiry.rs` ends sessions by their tokens;
//! - `ending.rs` ends them all: one that ends is forgotten by each part.
//!
//! The folders have the parts: structs with private fields, of which `Sessions` has one each. They
//! know neither `Sessions` nor their neighbours (`tools/tidy` checks it), and use those further
//! down. Those that need others' state borrow it for a call.
//!
//! - `opening/` reads requests for a session, and decides when each gets it;
//! - `request/` reads the parameters of such a request;
//! - `ws/` has the talks with clients of WebSockets, and their operations;
//! - `delivery/` writes to sessions; `replay/` has those that are held, `poll/` polls that gather
//!   an answer;
//! - `subscriptions/` has what sessions are subscribed to, and announces them;
//! - `users/` finds the user of a request, and remembers tokens;
//! - `base/` has the state of a connection while something happens there.

pub mod base;
pub mod brain;
pub mod delivery;
pub mod ending;
pub mod expiry;
pub mod open;
pub mod opening;
pub mod poll;
pub mod replay;
pub mod request;
pub mod subscriptions;
#[cfg(test)]
pub mod tests;
pub mod users;
pub mod ws;

use halley_wire::websocket::Inflater;

use crate::sessions::base::io::Io;
use crate::sessions::delivery::{Delivery, Writer};
use crate::sessions::opening::admission::Admission;
use crate::sessions::subscriptions::Subscriptions;
use crate::sessions::users::tokens::Tokens;
use crate::sessions::ws::WebSockets;
use crate::sessions::ws::talk::Talk;
use crate::stats::Stats;
use crate::transport::Transport;

/// The sessions of a worker. Their users and phases are in their connections' slots; the parts own
/// what only some of them have. Invariant: a part's entry belongs to the session that is in the
/// slot now.
pub struct Sessions {
    /// Streams that wait to be admitted.
    admission: Admission,
    /// When sessions end by their tokens.
    tokens: Tokens,
    /// What sessions are subscribed to.
    subscriptions: Subscriptions,
    /// What is written to them.
    delivery: Delivery,
    /// The WebSockets of which the brain has a request.
    websockets: WebSockets,
}

impl Sessions {
    /// None yet.
    pub fn new() -> Sessions {
        Sessions {
            admission: Admission::new(),
            tokens: Tokens::default(),
            subscriptions: Subscriptions::default(),
            delivery: Delivery::new(),
            websockets: WebSockets::default(),
        }
    }

    /// What is written to them: the brain's frames, and anything else.
    pub fn writer<'a>(&'a mut self, io: &'a mut Io) -> Writer<'a> {
        Writer::new(io, &mut self.delivery, &self.tokens)
    }

    /// The talks with clients of WebSockets.
    pub fn talk<'a>(&'a mut self, io: &'a mut Io) -> Talk<'a> {
        let Sessions { websockets, subscriptions, tokens, delivery, .. } = self;
        Talk::new(io, websockets, subscriptions, tokens, delivery)
    }

    /// Who asks, and until when.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// When clients get their sessions, or come back for them.
    pub fn admission(&mut self) -> &mut Admission {
        &mut self.admission
    }

    /// For a message that comes before its session.
    pub fn inflater(&mut self) -> &mut Inflater {
        self.websockets.inflater()
    }

    /// Reads what the client of a stream or a poll sends.
    pub fn readable(&mut self, io: &mut Io, index: u32) {
        match io.conns.slot(index).map(|slot| slot.transport) {
            Some(Transport::Poll) => poll::ahead::readable(&mut io.conns, index),
            Some(_) => {
                if let Some(parting) = self.talk(io).readable(index) {
                    self.last_words(io, index, Some(parting.words), parting.reason);
                }
            }
            None => {}
        }
    }

    /// Sees to it that a session is looked at when its token expires, or the brain is late with an
    /// operation, if that is soon.
    pub fn watch(&self, io: &mut Io, index: u32) {
        self.websockets.watch(&self.tokens, &mut io.conns, index);
    }

    /// Says how much was compressed and inflated.
    pub fn count_compressed(&self, stats: &mut Stats) {
        self.delivery.count(stats);
        self.websockets.count(stats);
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.admission.trim();
        self.tokens.trim();
        self.subscriptions.trim();
        self.delivery.trim();
        self.websockets.trim();
    }
}
