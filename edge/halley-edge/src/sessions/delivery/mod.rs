//! The output of sessions: their welcome, events, replays, gaps and presence, and the answers of
//! polls.
//!
//! [`Delivery`] owns what that takes: the sessions that are held (`replay/`), the polls that are
//! due (`poll/`), and what came before a welcome. [`Writer`] lends it the connections for a call,
//! and has the frames of the brain:
//!
//! - `deliver.rs`, `replays.rs`, `gaps.rs` and `presence.rs` write what the brain sends,
//!   `members.rs` events of groups, which come before anything else ([`Writer::push`]);
//! - `welcome.rs` begins a session, `polls.rs` has the answers of polls;
//! - `inspect.rs` shows what waits for a session.
//!
//! Invariant: nothing in here ends a session. An outbox that overflows dooms its connection.

pub mod deliver;
pub mod gaps;
pub mod inspect;
pub mod members;
pub mod polls;
pub mod presence;
pub mod replays;
pub mod welcome;

use std::collections::HashMap;

use halley_wire::websocket::Deflater;

use crate::conns::table::flag;
use crate::random::Random;
use crate::sessions::base::detail::Conns;
use crate::sessions::base::io::Io;
use crate::sessions::poll::Polls;
use crate::sessions::replay::Replays;
use crate::sessions::users::tokens::Tokens;
use crate::stats::{Stat, Stats};

/// See the module. Invariant: an entry belongs to the session that is in the slot now.
pub struct Delivery {
    /// Compresses for all.
    deflater: Deflater,
    /// Spreads clients over time.
    random: Random,
    /// What came before a welcome, by index, as it is written behind that.
    early: HashMap<u32, Vec<u8>>,
    /// The sessions that wait for the end of their replay.
    replays: Replays,
    /// Which polls are due.
    polls: Polls,
    /// The cursor of the event in hand.
    event_cursor: Vec<u8>,
}

impl Delivery {
    /// To nobody yet.
    pub fn new() -> Delivery {
        Delivery {
            deflater: Deflater::default(),
            random: Random::new(),
            early: HashMap::new(),
            replays: Replays::default(),
            polls: Polls::default(),
            event_cursor: Vec::new(),
        }
    }

    /// What compresses for all.
    pub fn deflater(&mut self) -> &mut Deflater {
        &mut self.deflater
    }

    /// Holds a session that came with a cursor.
    pub fn hold(&mut self, conns: &mut Conns, index: u32, cursor: &[u8]) {
        self.replays.hold(conns, index, cursor);
    }

    /// What a brain has to replay from if the session is held; else nothing, as it goes on from the
    /// link's cursor (10.6).
    pub fn own_cursor(&self, conns: &mut Conns, index: u32) -> &[u8] {
        let held = conns.slot(index).is_some_and(|slot| slot.has(flag::BUFFERED));
        let own = if held { self.replays.cursor(index) } else { None };
        own.unwrap_or_default()
    }

    /// The polls that are due, each at least once, by connection id.
    pub fn take_due(&mut self) -> Vec<u64> {
        self.polls.take_due()
    }

    /// A poll's token has expired: it is answered with what there is. False if that was known.
    pub fn poll_expired(&mut self, conns: &mut Conns, index: u32) -> bool {
        self.polls.expired(conns, index)
    }

    /// The session is over.
    pub fn forget(&mut self, conns: &mut Conns, index: u32) {
        self.replays.forget(conns, index);
        self.early.remove(&index);
    }

    /// Says how much was compressed.
    pub fn count(&self, stats: &mut Stats) {
        let deflated = self.deflater.totals();
        stats.set(Stat::Deflated, deflated.messages);
        stats.set(Stat::DeflatedFrom, deflated.bytes_in);
        stats.set(Stat::DeflatedTo, deflated.bytes_out);
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.deflater.rest();
        self.replays.trim();
    }
}

/// [`Delivery`] at work on connections. Tokens say until when a session that begins is left alone.
pub struct Writer<'a> {
    io: &'a mut Io,
    delivery: &'a mut Delivery,
    tokens: &'a Tokens,
}

impl<'a> Writer<'a> {
    /// For a call.
    pub fn new(io: &'a mut Io, delivery: &'a mut Delivery, tokens: &'a Tokens) -> Writer<'a> {
        Writer { io, delivery, tokens }
    }
}
