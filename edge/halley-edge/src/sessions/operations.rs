//! The operations of WebSockets at work: one at a time goes to the brain, as a request on the
//! session's connection id (link.md 12.7), and some wait for their turn (`protocol/http.md` 18).
//!
//! An entry is here while the brain has a request of the session. One that the brain is late with
//! is answered and given up, but its entry stays: another answer could otherwise be mistaken for
//! it.
//!
//! Bounds: `operations_waiting_max` messages and `message_bytes_max` bytes wait for one session;
//! a session that waits has a request in flight, of which there are `requests_in_flight_max`. Of
//! an answer [`ANSWER_BYTES_MAX`] are kept.

use std::collections::VecDeque;

use halley_link::{FLAG_END, Frame, Item, List, Pair};
use halley_wire::HttpError;

use crate::conns::table::Phase;
use crate::limits::places::Place;
use crate::limits::sketch::Key;
use crate::sessions::base::answer::Answer;
use crate::sessions::base::errors::{ANSWER_LATE, BUSY, NO_BRAIN, no_place};
use crate::sessions::base::io::Io;
use crate::sessions::operation::{self, Ask, Refused, Wish};
use crate::sessions::operation_queue::{Asked, Gathered, Operations, Waiting};
use crate::sessions::state::Sessions;
use crate::sessions::subscriptions::change::Change;
use crate::sessions::subscriptions::view::EVERYBODY;
use crate::sessions::users::identity::{OTHER_SESSION, refused};
use crate::settings::AuthMode;
use crate::stats::Stat;
use crate::transport::Transport;

/// Answers are an id, two numbers, or a page of events, which has 262,144 bytes and one event more.
const ANSWER_BYTES_MAX: u64 = 524_288;

const TOO_MANY: HttpError = HttpError::new(
    429,
    "operations_waiting_max",
    "Too many messages of this WebSocket wait for their turn: wait for answers before you send \
     more.",
);
const GIVEN_UP: HttpError = HttpError::new(
    503,
    "brain_busy",
    "The brain hasn't answered an operation of this WebSocket yet: try again, or open another one.",
)
.after(1);

impl Sessions {
    /// A message of a WebSocket's client; false when the connection ends.
    pub fn operate(&mut self, io: &mut Io, index: u32, text: &str) -> bool {
        let operation = match operation::read(text) {
            Ok(operation) => operation,
            Err(refused) => return self.refuse_message(io, index, &refused),
        };
        let reference = operation.reference;
        let user = match io.conns.table.user(index).is_empty() {
            false => io.conns.table.user_key(index),
            true => self.visitor_key(io, index),
        };
        if let Err(error) = io.conns.user_may_ask(user) {
            return self.refuse_message(io, index, &Refused { reference, error });
        }
        let ask = match operation.wish {
            Wish::Ask(ask) => ask,
            Wish::Token(token) => {
                return match self.renew_token(io, index, &token) {
                    Ok(json) => {
                        self.say(io, index, &operation::answer(reference.as_deref(), "ok", &json))
                    }
                    Err(error) => self.refuse_message(io, index, &Refused { reference, error }),
                };
            }
        };
        let waiting = Waiting { reference, ask };
        let (most, bytes_max) =
            (io.conns.settings.operations_waiting_max, io.conns.settings.message_bytes_max);
        let error = match self.operations.get_mut(&index) {
            None => match self.ask(io, index, &waiting) {
                Ok(place) => {
                    let asked = Some(self.asked(io, waiting.reference));
                    let change = waiting.ask.change;
                    self.add_operations(io, index, place, asked, change, VecDeque::new());
                    return true;
                }
                Err(error) => error,
            },
            Some(operations) if operations.asked.is_none() => GIVEN_UP,
            Some(operations) => {
                let bytes = operations.waiting_bytes + waiting.bytes();
                if operations.waiting.len() < most && bytes <= bytes_max {
                    operations.waiting_bytes = bytes;
                    operations.waiting.push_back(waiting);
                    return true;
                }
                TOO_MANY
            }
        };
        self.refuse_message(io, index, &Refused { reference: waiting.reference, error })
    }

    /// A visitor's connection counts as a user; no id begins with NUL.
    fn visitor_key(&self, io: &mut Io, index: u32) -> Key {
        let mut name = [0; 9];
        name[1..].copy_from_slice(&io.conns.table.conn(index).to_be_bytes());
        io.conns.table.limits.hasher.name(&name)
    }

    fn asked(&self, io: &Io, reference: Option<Box<str>>) -> Asked {
        Asked { reference, until_ms: io.conns.clock.now_ms + io.conns.settings.response_ms_max }
    }

    fn add_operations(
        &mut self,
        io: &mut Io,
        index: u32,
        place: Place,
        asked: Option<Asked>,
        change: Option<Change>,
        waiting: VecDeque<Waiting>,
    ) {
        let waiting_bytes = waiting.iter().map(Waiting::bytes).sum();
        let sent_ms = io.conns.clock.stamp_ms();
        let change = change.map(|change| (change, sent_ms));
        let (answer, judge_again) = (None, false);
        let operations =
            Operations { place, asked, change, answer, judge_again, waiting, waiting_bytes };
        self.operations.insert(index, Box::new(operations));
        self.watch_session(&mut io.conns, index);
    }

    /// Sends an operation to the brain; gives its place there.
    fn ask(&mut self, io: &mut Io, index: u32, waiting: &Waiting) -> Result<Place, HttpError> {
        // What was said last may have been too much for the client: then the slot is nobody's, and
        // its id the next one's.
        if !io.conns.is_in(index, Phase::Live) {
            return Err(GIVEN_UP);
        }
        if !io.link.is_up() {
            return Err(NO_BRAIN.after(1));
        }
        if !io.link_has_room() {
            return Err(BUSY.after(1));
        }
        let whose = io.conns.whose_operation(index);
        let place = io.conns.request_begins(whose).map_err(|full| no_place(&full).after(1))?;
        // The sync may not have come to it, or its OPEN waits for the end of the round: the brain
        // would have a request of a session that it doesn't know.
        self.announce_session(io, index);
        io.link.announce();
        let conn = io.conns.table.conn(index);
        let rights = self.tokens.rights_of(&mut io.conns, index);
        let mut items = Vec::new();
        let headers = [
            ("halley-user", io.conns.table.user(index)),
            ("halley-rights", rights.as_bytes()),
            ("content-type", b"application/json".as_slice()),
            // The brain may grant less than everybody (link.md 19.3).
            ("halley-view", b"kept"),
        ];
        let sees = waiting.ask.change.as_ref().is_some_and(|change| change.is_of(EVERYBODY));
        let headers = &headers[..if sees { 4 } else { 3 }];
        for (name, value) in headers {
            Pair { name: name.as_bytes(), value }.write(&mut items);
        }
        let Ask { method, target, body, .. } = &waiting.ask;
        io.link.send(&Frame::Request {
            conn,
            listener: 1,
            flags: FLAG_END,
            method: method.as_bytes(),
            target: target.as_bytes(),
            headers: List::from_items(headers.len() as u16, &items),
            body: body.as_bytes(),
        });
        io.conns.stats.count(Stat::PassedOn);
        io.conns.stats.count(Stat::Operations);
        Ok(place)
    }

    /// Another token of the session's user takes the place of the last one (14.7); gives what the
    /// client is told.
    fn renew_token(&mut self, io: &mut Io, index: u32, token: &str) -> Result<String, HttpError> {
        if io.conns.settings.auth_mode == AuthMode::None {
            return Ok("{\"expires\":null}".to_owned());
        }
        let principal =
            self.tokens.principal_of_token(&mut io.conns, token.as_bytes()).map_err(refused)?;
        if principal.user.as_bytes() != io.conns.table.user(index) {
            io.conns.stats.count(Stat::TokensOfOthers);
            return Err(OTHER_SESSION);
        }
        let may_else = *self.tokens.rights(index) != *principal.rights;
        self.tokens.take(index, Transport::WebSocket, &principal);
        io.conns.stats.count(Stat::TokensRenewed);
        if may_else {
            self.rights_changed(io, index);
        }
        self.watch_session(&mut io.conns, index);
        let leeway_s = io.conns.settings.token_rules.leeway_s;
        Ok(format!("{{\"expires\":{}}}", u64::from(principal.until_s).saturating_sub(leeway_s)))
    }

    /// RESPONSE, if the connection is a WebSocket's; else gives the answer back.
    pub fn operation_answer<'a>(
        &mut self,
        io: &mut Io,
        index: u32,
        answer: Answer<'a>,
    ) -> Option<Answer<'a>> {
        let Some(operations) = self.operations.get_mut(&index) else { return Some(answer) };
        let header = answer.headers.iter().find(|header| header.name == b"retry-after");
        let seconds = header.and_then(|header| std::str::from_utf8(header.value).ok());
        operations.answer.get_or_insert(Gathered {
            status: answer.status,
            retry_after_s: seconds.and_then(|seconds| seconds.parse().ok()),
            body: Vec::new(),
            too_large: answer.body_bytes > ANSWER_BYTES_MAX,
        });
        self.operation_answer_body(io, index, answer.flags, answer.body);
        None
    }

    /// RESPONSE_BODY; false if the connection is no WebSocket's that waits for one.
    pub fn operation_answer_body(
        &mut self,
        io: &mut Io,
        index: u32,
        flags: u8,
        body: &[u8],
    ) -> bool {
        let Some(operations) = self.operations.get_mut(&index) else { return false };
        let Some(answer) = operations.answer.as_mut() else { return true };
        answer.too_large |= (answer.body.len() + body.len()) as u64 > ANSWER_BYTES_MAX;
        if !answer.too_large {
            answer.body.extend_from_slice(body);
        }
        if flags & FLAG_END != 0 {
            self.operation_done(io, index);
        }
        true
    }

    fn operation_done(&mut self, io: &mut Io, index: u32) {
        let Some(operations) = self.operations.remove(&index) else { return };
        let Operations { place, asked, change, answer, judge_again, mut waiting, .. } = *operations;
        io.conns.request_is_over(Some(place));
        let done = answer.as_ref().is_some_and(|answer| (200..300).contains(&answer.status));
        if let (Some((change, sent_ms)), true) = (change, done) {
            self.subscriptions.change(index, sent_ms, &change);
            if change.is_of(EVERYBODY) {
                self.may_see(io, index);
            }
        }
        if judge_again {
            self.rights_changed(io, index);
        }
        if let (Some(asked), Some(Gathered { status, retry_after_s, mut body, too_large })) =
            (asked, answer)
        {
            if too_large {
                body.clear();
            }
            let reference = asked.reference.as_deref();
            self.tell(io, index, &operation::of_the_brain(reference, status, &body, retry_after_s));
        }
        while let Some(next) = waiting.pop_front() {
            match self.ask(io, index, &next) {
                Ok(place) => {
                    let asked = Some(self.asked(io, next.reference));
                    return self.add_operations(io, index, place, asked, next.ask.change, waiting);
                }
                Err(error) => self.tell_refusal(io, index, next.reference.as_deref(), &error),
            }
        }
    }

    /// The brain may be late with an operation.
    pub fn operation_may_be_late(&mut self, io: &mut Io, index: u32) {
        let heard_ms = io.conns.clock.heard_ms;
        let Some(operations) = self.operations.get_mut(&index) else { return };
        if operations.until_ms().is_none_or(|until_ms| until_ms > heard_ms) {
            return;
        }
        operations.waiting_bytes = 0;
        let (asked, waiting) = (operations.asked.take(), std::mem::take(&mut operations.waiting));
        if let Some(asked) = asked {
            io.conns.stats.count(Stat::Unavailable);
            self.tell_refusal(io, index, asked.reference.as_deref(), &ANSWER_LATE);
        }
        for waiting in waiting {
            self.tell_refusal(io, index, waiting.reference.as_deref(), &GIVEN_UP);
        }
    }

    /// The brain is away: nothing of this is going to be answered (8.7).
    pub fn operations_lost(&mut self, io: &mut Io) {
        for (index, operations) in std::mem::take(&mut self.operations) {
            let Operations { place, asked, waiting, .. } = *operations;
            io.conns.request_is_over(Some(place));
            let asked = asked.into_iter().map(|asked| asked.reference);
            for reference in asked.chain(waiting.into_iter().map(|waiting| waiting.reference)) {
                self.tell_refusal(io, index, reference.as_deref(), &NO_BRAIN.after(1));
            }
        }
    }

    /// The session ends, and its request with it (12.7).
    pub fn operations_gone(&mut self, io: &mut Io, index: u32) {
        if let Some(operations) = self.operations.remove(&index) {
            let conn = io.conns.table.conn(index);
            io.conns.request_is_over(Some(operations.place));
            io.link.send(&Frame::RequestGone { conn });
        }
    }

    /// Answers a message that goes no further; false when the connection ends.
    pub fn refuse_message(&mut self, io: &mut Io, index: u32, refused: &Refused) -> bool {
        io.conns.stats.count(Stat::OperationsRefused);
        self.say(io, index, &operation::refusal(refused.reference.as_deref(), &refused.error))
    }

    fn tell_refusal(
        &mut self,
        io: &mut Io,
        index: u32,
        reference: Option<&str>,
        error: &HttpError,
    ) {
        io.conns.stats.count(Stat::OperationsRefused);
        self.tell(io, index, &operation::refusal(reference, error));
    }

    /// Says what became of an operation; there are as many as may wait.
    fn tell(&mut self, io: &mut Io, index: u32, text: &str) {
        if io.conns.is_in(index, Phase::Live) {
            let mut out = Vec::new();
            halley_wire::websocket::encode::text(&mut out, text);
            self.push(io, index, out.into());
        }
    }
}
