//! The operations of WebSockets at work: one at a time goes to the brain (link.md 20), and some
//! wait for their turn (`protocol/http.md` 18).
//!
//! [`WebSockets`](crate::sessions::ws::WebSockets) has an entry while the brain has an operation of
//! the session. One that the brain is late with is answered and given up, but its entry stays: the
//! brain has one at a time.
//!
//! Bounds: those of `ws/queue.rs` for one session; a session that waits has a request in flight, of
//! which there are `requests_in_flight_max`.

use std::collections::VecDeque;

use halley_wire::HttpError;

use crate::conns::table::Phase;
use crate::limits::places::Place;
use crate::sessions::Sessions;
use crate::sessions::base::answer::Answer;
use crate::sessions::base::errors::{ANSWER_LATE, NO_BRAIN};
use crate::sessions::base::io::Io;
use crate::sessions::subscriptions::view::EVERYBODY;
use crate::sessions::users::identity::{OTHER_SESSION, refused};
use crate::sessions::ws::operation::{self, Refused, Wish};
use crate::sessions::ws::queue::{Done, GIVEN_UP, Late, Turn, Waiting};
use crate::sessions::ws::{Came, request};
use crate::settings::AuthMode;
use crate::stats::Stat;
use crate::transport::Transport;

impl Sessions {
    /// A message of a WebSocket's client; false when the connection ends.
    pub fn operate(&mut self, io: &mut Io, index: u32, text: &str) -> bool {
        let operation = match operation::read(text) {
            Ok(operation) => operation,
            Err(refused) => return self.refuse_message(io, index, &refused),
        };
        let reference = operation.reference;
        let user = request::asker(io, index);
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
        let refused = match self.websockets.turn(&io.conns.settings, index, waiting) {
            Turn::Later => return true,
            Turn::Now(waiting) => match self.ask(io, index, &waiting) {
                Ok(sent) => {
                    self.asked(io, index, sent, waiting, VecDeque::new());
                    return true;
                }
                Err(error) => Refused { reference: waiting.reference, error },
            },
            Turn::Never(refused) => refused,
        };
        self.refuse_message(io, index, &refused)
    }

    /// Sends an operation to the brain; gives its place and its number there.
    fn ask(
        &mut self,
        io: &mut Io,
        index: u32,
        waiting: &Waiting,
    ) -> Result<(Place, Option<u32>), HttpError> {
        let place = request::place(io, index)?;
        // The sync may not have come to it, or its OPEN waits for the end of the round: the brain
        // would have a request of a session that it doesn't know.
        self.announce_session(io, index);
        io.link.announce();
        let rights = self.tokens.rights_of(&mut io.conns, index);
        let number = self.websockets.next_number(&io.conns.settings);
        request::send(io, index, &waiting.ask, &rights, number);
        Ok((place, number))
    }

    fn asked(
        &mut self,
        io: &mut Io,
        index: u32,
        sent: (Place, Option<u32>),
        now: Waiting,
        rest: VecDeque<Waiting>,
    ) {
        self.websockets.begin(&mut io.conns, index, sent, now, rest);
        self.watch_session(&mut io.conns, index);
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

    /// OPERATION_ANSWER.
    pub fn operation_answered(
        &mut self,
        io: &mut Io,
        conn: u64,
        number: u32,
        flags: u8,
        json: &[u8],
    ) {
        let Some((index, _)) = io.conns.find(conn) else { return };
        if self.websockets.answered(index, number, flags, json) == Came::Whole {
            self.operation_done(io, index);
        }
    }

    /// RESPONSE, if the connection is a WebSocket's; else gives the answer back.
    pub fn operation_answer<'a>(
        &mut self,
        io: &mut Io,
        index: u32,
        answer: Answer<'a>,
    ) -> Option<Answer<'a>> {
        match self.websockets.answer(index, &answer) {
            Came::NotHere => return Some(answer),
            Came::Part => {}
            Came::Whole => self.operation_done(io, index),
        }
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
        let came = self.websockets.answer_body(index, flags, body);
        if came == Came::Whole {
            self.operation_done(io, index);
        }
        came != Came::NotHere
    }

    fn operation_done(&mut self, io: &mut Io, index: u32) {
        let Some(done) = self.websockets.done(index) else { return };
        let Done { place, change, judge_again, text, mut waiting } = done;
        io.conns.request_is_over(Some(place));
        if let Some((change, sent_ms)) = change {
            self.subscriptions.change(index, sent_ms, &change);
            if change.is_of(EVERYBODY) {
                self.may_see(io, index);
            }
        }
        if judge_again {
            self.rights_changed(io, index);
        }
        if let Some(text) = text {
            self.tell(io, index, &text);
        }
        while let Some(next) = waiting.pop_front() {
            match self.ask(io, index, &next) {
                Ok(sent) => return self.asked(io, index, sent, next, waiting),
                Err(error) => self.tell_refusal(io, index, next.reference.as_deref(), &error),
            }
        }
    }

    /// The brain may be late with an operation.
    pub fn operation_may_be_late(&mut self, io: &mut Io, index: u32) {
        let heard_ms = io.conns.clock.heard_ms;
        let Some(Late { reference, waiting }) = self.websockets.late(index, heard_ms) else {
            return;
        };
        io.conns.stats.count(Stat::Unavailable);
        self.tell_refusal(io, index, reference.as_deref(), &ANSWER_LATE);
        for waiting in waiting {
            self.tell_refusal(io, index, waiting.reference.as_deref(), &GIVEN_UP);
        }
    }

    /// The brain is away: nothing of this is going to be answered (8.7).
    pub fn operations_lost(&mut self, io: &mut Io) {
        for (index, operations) in self.websockets.lost() {
            let (place, references) = operations.lost();
            io.conns.request_is_over(Some(place));
            for reference in references {
                self.tell_refusal(io, index, reference.as_deref(), &NO_BRAIN.after(1));
            }
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
            self.writer(io).push(index, out.into());
        }
    }
}
