//! Sessions, from a client's request on: the methods of [`Sessions`], which use the connections,
//! the link and the groups that the caller lends them ([`base::io::Io`]).
//!
//! The files here are methods of `Sessions`:
//!
//! - `stream.rs` opens streams and `polls.rs` long polls; `admit.rs` decides when one gets its
//!   session, with the queue in `admission.rs`; `sync.rs` reports it to the brain, and `ending.rs`
//!   ends it;
//! - `expiry.rs` ends sessions whose tokens expire, `rights.rs` subscriptions that a renewed token
//!   doesn't allow;
//! - `deliver.rs`, `members.rs`, `replays.rs`, `gaps.rs` and `presence.rs` write messages to
//!   sessions; `inspect.rs` shows what waits for one;
//! - `websocket.rs` reads messages of WebSockets, `operations.rs` carries them out.
//!
//! The folders have structs with private fields, of which `Sessions` has one each. They know
//! neither `Sessions` nor their neighbours (`tools/tidy` checks it), and use those further down:
//!
//! - `request/` reads the parameters of a request for a session;
//! - `ws/` parses messages, and has those that wait for their turn, and compression;
//! - `replay/` has the sessions that are held, with the events that wait; `poll/` fills the answers
//!   of polls; `subscriptions/` has what sessions are subscribed to;
//! - `users/` finds the user of a request, and remembers tokens;
//! - `base/` has the state of a connection while something happens there.

pub mod admission;
pub mod admit;
pub mod base;
pub mod brain;
pub mod delivery;
pub mod ending;
pub mod expiry;
pub mod poll;
pub mod polls;
pub mod replay;
pub mod request;
pub mod stream;
pub mod subscriptions;
#[cfg(test)]
pub mod tests;
pub mod users;
pub mod ws;

use crate::random::Random;
use crate::sessions::admission::Admission;
use crate::sessions::base::io::Io;
use crate::sessions::delivery::{Delivery, Writer};
use crate::sessions::subscriptions::Subscriptions;
use crate::sessions::users::tokens::Tokens;
use crate::sessions::ws::WebSockets;
use crate::sessions::ws::talk::Talk;
use crate::stats::Stats;
use crate::transport::Transport;

/// The sessions of a worker. Their users and phases are in their connections' slots; the folders
/// own what only some of them have, and this what is common to all. Invariant: an entry belongs to
/// the session that is in the slot now.
pub struct Sessions {
    /// Streams that wait to be admitted.
    admission: Admission,
    /// When sessions end by their tokens.
    tokens: Tokens,
    /// What sessions are subscribed to.
    subscriptions: Subscriptions,
    /// What is written to them.
    delivery: Delivery,
    /// Spreads clients over time.
    random: Random,
    /// Nobody gets a session any more.
    stopping: bool,
    /// The WebSockets of which the brain has a request.
    websockets: WebSockets,
}

impl Sessions {
    /// None yet.
    pub fn new() -> Sessions {
        Sessions {
            admission: Admission::default(),
            tokens: Tokens::default(),
            subscriptions: Subscriptions::default(),
            delivery: Delivery::new(),
            random: Random::new(),
            stopping: false,
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

    /// Who asks, and until when.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Nobody gets a session any more.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// A time up to this, at random: clients that are sent away at once don't come back at once.
    pub fn spread_ms(&mut self, up_to_ms: u64) -> u64 {
        self.random.up_to(up_to_ms)
    }

    /// Says how much was compressed and inflated.
    pub fn count_compressed(&self, stats: &mut Stats) {
        self.delivery.count(stats);
        self.websockets.count(stats);
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.delivery.trim();
        self.admission.trim();
        self.tokens.trim();
        self.subscriptions.trim();
        self.websockets.trim();
    }
}
