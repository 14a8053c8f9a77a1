//! A worker's state of its sessions besides their connections.

use std::collections::HashMap;

use crate::random::Random;
use crate::sessions::admission::Admission;
use crate::sessions::poll::Polls;
use crate::sessions::replay::Replays;
use crate::sessions::subscriptions::Subscriptions;
use crate::sessions::subscriptions::rights_due::RightsDue;
use crate::sessions::users::tokens::Tokens;
use crate::sessions::ws::WebSockets;
use crate::sessions::ws::compression::Compression;

/// The sessions of a worker. Their users and phases are in their connections' slots; here is what
/// only some of them have, and what is common to all. Invariant: an entry belongs to the session
/// that is in the slot now.
pub struct Sessions {
    /// Streams that wait to be admitted.
    pub admission: Admission,
    /// When sessions end by their tokens.
    pub tokens: Tokens,
    /// What sessions are subscribed to.
    pub subscriptions: Subscriptions,
    /// What of presence came before a welcome, by index, as it is written behind that.
    pub early_presence: HashMap<u32, Vec<u8>>,
    /// What compresses and inflates for all.
    pub compression: Compression,
    /// Spreads clients over time.
    pub random: Random,
    /// Nobody gets a session any more.
    pub stopping: bool,
    /// The sessions that wait for the end of their replay.
    pub replays: Replays,
    /// The WebSockets of which the brain has a request.
    pub websockets: WebSockets,
    /// The sessions whose rights have changed.
    pub rights_due: RightsDue,
    /// The cursor of the event in hand.
    pub event_cursor: Vec<u8>,
    /// Which polls are due.
    pub polls: Polls,
}

impl Sessions {
    /// None yet.
    pub fn new() -> Sessions {
        Sessions {
            admission: Admission::default(),
            tokens: Tokens::default(),
            subscriptions: Subscriptions::default(),
            early_presence: HashMap::new(),
            compression: Compression::default(),
            random: Random::new(),
            stopping: false,
            replays: Replays::default(),
            websockets: WebSockets::default(),
            rights_due: RightsDue::default(),
            event_cursor: Vec::new(),
            polls: Polls::default(),
        }
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.compression.rest();
        self.admission.trim();
        self.tokens.trim();
        self.subscriptions.trim();
        self.replays.trim();
        self.websockets.trim();
        self.rights_due.trim();
    }
}
