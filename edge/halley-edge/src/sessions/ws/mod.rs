//! WebSockets' own (`protocol/http.md` 8, 9, 18): their messages, their operations while the brain
//! has one or one waits for its turn, and compression.
//!
//! - `talk/` reads what clients send, and carries out their operations;
//! - `operation.rs` and `wish.rs` parse messages, `answers.rs` writes answers to them;
//! - [`WebSockets`] has the operations, and `queue.rs` those of one WebSocket;
//! - `request.rs` sends an operation to the brain, `earlier.rs` to one of an earlier build;
//! - `compression.rs` agrees on compression.
//!
//! Nothing in here ends a session.

pub mod answers;
pub mod compression;
pub mod earlier;
pub mod operation;
#[cfg(test)]
mod operation_tests;
pub mod queue;
pub mod request;
pub mod talk;
pub mod wish;

use std::collections::{HashMap, VecDeque};

use halley_link::{FLAG_END, FLAG_ERROR, Frame};
use halley_wire::websocket::Inflater;

use crate::limits::places::Place;
use crate::sessions::base::answer::Answer;
use crate::sessions::base::detail::Conns;
use crate::sessions::base::io::Io;
use crate::sessions::subscriptions::change::Change;
use crate::sessions::users::tokens::Tokens;
use crate::sessions::ws::queue::{Done, Late, Operations, Sent, Turn, Waiting};
use crate::settings::Settings;
use crate::stats::{Stat, Stats};

/// What came of a part of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// The connection is no WebSocket's that waits for one.
    NotHere,
    /// More is to come.
    Part,
    /// The answer is whole.
    Whole,
}

/// See the module. Invariant: an entry belongs to the session that is in the slot now, of which the
/// brain has a request.
#[derive(Default)]
pub struct WebSockets {
    /// By index.
    operations: HashMap<u32, Box<Operations>>,
    /// The number of the last operation that had one.
    number: u32,
    /// Inflates messages for all; it has memory only while that happens.
    inflater: Inflater,
}

impl WebSockets {
    /// Sees to it that a session is looked at when its token expires, or the brain is late with an
    /// operation, if that is soon.
    pub fn watch(&self, tokens: &Tokens, conns: &mut Conns, index: u32) {
        let ms = self.left_ms(conns, index);
        tokens.watch(conns, index, ms);
    }

    /// In how many milliseconds an operation is late; never without one.
    fn left_ms(&self, conns: &Conns, index: u32) -> u64 {
        let operations = self.operations.get(&index);
        let until_ms = operations.and_then(|operations| operations.until_ms());
        until_ms.map_or(u64::MAX, |until_ms| until_ms.saturating_sub(conns.clock.now_ms))
    }

    /// What the operation in hand is going to change.
    pub fn change(&self, index: u32) -> Option<&Change> {
        self.operations.get(&index).and_then(|operations| operations.change())
    }

    /// The session's rights have changed since the brain was asked.
    pub fn judge_again(&mut self, index: u32) {
        if let Some(operations) = self.operations.get_mut(&index) {
            operations.judge_again();
        }
    }

    /// When this operation has its turn; one that has it later is kept.
    pub fn turn(&mut self, settings: &Settings, index: u32, waiting: Waiting) -> Turn {
        match self.operations.get_mut(&index) {
            None => Turn::Now(waiting),
            Some(operations) => operations.turn(settings, waiting),
        }
    }

    /// A number for the next operation, if the brain takes OPERATION. It comes again after 2^32 of
    /// them.
    pub fn next_number(&mut self, settings: &Settings) -> Option<u32> {
        settings.operation_frames.then(|| {
            self.number = self.number.wrapping_add(1);
            self.number
        })
    }

    /// The brain was sent `now`; the `rest` waits.
    pub fn begin(
        &mut self,
        conns: &mut Conns,
        index: u32,
        (place, number): (Place, Option<u32>),
        now: Waiting,
        rest: VecDeque<Waiting>,
    ) {
        let until_ms = conns.clock.now_ms + conns.settings.response_ms_max;
        let sent = Sent { place, number, at_ms: conns.clock.stamp_ms() };
        let operations = Operations::new(sent, now, until_ms, rest);
        self.operations.insert(index, Box::new(operations));
    }

    fn sent(&mut self, index: u32, number: Option<u32>) -> Option<&mut Operations> {
        let operations = self.operations.get_mut(&index)?;
        (operations.number() == number).then_some(operations.as_mut())
    }

    /// OPERATION_ANSWER.
    pub fn answered(&mut self, index: u32, number: u32, flags: u8, json: &[u8]) -> Came {
        let Some(operations) = self.sent(index, Some(number)) else { return Came::NotHere };
        operations.answer_comes(flags & FLAG_ERROR == 0, json);
        if flags & FLAG_END != 0 { Came::Whole } else { Came::Part }
    }

    /// RESPONSE.
    pub fn answer(&mut self, index: u32, answer: &Answer<'_>) -> Came {
        let Some(operations) = self.sent(index, None) else { return Came::NotHere };
        operations.answer_begins(answer);
        self.answer_body(index, answer.flags, answer.body)
    }

    /// RESPONSE_BODY.
    pub fn answer_body(&mut self, index: u32, flags: u8, body: &[u8]) -> Came {
        let Some(operations) = self.sent(index, None) else { return Came::NotHere };
        let began = operations.answer_goes_on(body);
        if began && flags & FLAG_END != 0 { Came::Whole } else { Came::Part }
    }

    /// The brain has answered to the end.
    pub fn done(&mut self, index: u32) -> Option<Done> {
        self.operations.remove(&index).map(|operations| operations.done())
    }

    /// What is given up as the brain is late with an operation; the entry stays for its answer.
    pub fn late(&mut self, index: u32, heard_ms: u64) -> Option<Late> {
        self.operations.get_mut(&index).and_then(|operations| operations.late(heard_ms))
    }

    /// The brain is away: gives all of them, by index.
    pub fn lost(&mut self) -> HashMap<u32, Box<Operations>> {
        std::mem::take(&mut self.operations)
    }

    /// The session ends, and its request with it (12.7).
    pub fn gone(&mut self, io: &mut Io, index: u32) {
        if let Some(operations) = self.operations.remove(&index) {
            let conn = io.conns.table.conn(index);
            io.conns.request_is_over(Some(operations.into_place()));
            io.link.send(&Frame::RequestGone { conn });
        }
    }

    /// What inflates messages.
    pub fn inflater(&mut self) -> &mut Inflater {
        &mut self.inflater
    }

    /// Bytes that were inflated so far.
    pub fn inflated(&self) -> u64 {
        self.inflater.totals().bytes_out
    }

    /// Says how much was inflated.
    pub fn count(&self, stats: &mut Stats) {
        let inflated = self.inflater.totals();
        stats.set(Stat::Inflated, inflated.messages);
        stats.set(Stat::InflatedFrom, inflated.bytes_in);
        stats.set(Stat::InflatedTo, inflated.bytes_out);
    }

    /// Gives back what a storm left.
    pub fn trim(&mut self) {
        self.inflater.rest();
        self.operations.shrink_to(2 * self.operations.len());
    }
}
