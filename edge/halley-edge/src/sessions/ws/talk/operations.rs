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
use crate::sessions::base::answer::Answer;
use crate::sessions::base::errors::{ANSWER_LATE, NO_BRAIN};
use crate::sessions::subscriptions::view::EVERYBODY;
use crate::sessions::users::identity::{OTHER_SESSION, refused};
use crate::sessions::ws::operation::{self, Refused, Wish};
use crate::sessions::ws::queue::{Done, GIVEN_UP, Late, Turn, Waiting};
use crate::sessions::ws::talk::{Goes, Talk};
use crate::sessions::ws::{Came, answers, request};
use crate::settings::AuthMode;
use crate::stats::Stat;
use crate::transport::Transport;

impl Talk<'_> {
    /// A message of the client.
    pub fn operate(&mut self, index: u32, text: &str) -> Goes {
        let operation = match operation::read(text) {
            Ok(operation) => operation,
            Err(refused) => return self.refuse(index, &refused),
        };
        let reference = operation.reference;
        let user = request::asker(self.io, index);
        if let Err(error) = self.io.conns.user_may_ask(user) {
            return self.refuse(index, &Refused { reference, error });
        }
        let ask = match operation.wish {
            Wish::Ask(ask) => ask,
            Wish::Token(token) => {
                return match self.renew_token(index, &token) {
                    Ok(json) => {
                        self.say(index, &answers::answer(reference.as_deref(), "ok", &json))
                    }
                    Err(error) => self.refuse(index, &Refused { reference, error }),
                };
            }
        };
        let waiting = Waiting { reference, ask };
        let refused = match self.websockets.turn(&self.io.conns.settings, index, waiting) {
            Turn::Later => return Goes::Continue(()),
            Turn::Now(waiting) => match self.ask(index, &waiting) {
                Ok(sent) => {
                    self.asked(index, sent, waiting, VecDeque::new());
                    return Goes::Continue(());
                }
                Err(error) => Refused { reference: waiting.reference, error },
            },
            Turn::Never(refused) => refused,
        };
        self.refuse(index, &refused)
    }

    /// Sends an operation to the brain; gives its place and its number there.
    fn ask(&mut self, index: u32, waiting: &Waiting) -> Result<(Place, Option<u32>), HttpError> {
        let place = request::place(self.io, index)?;
        // The sync may not have come to it, or its OPEN waits for the end of the round: the brain
        // would have a request of a session that it doesn't know.
        let cursor = self.delivery.own_cursor(&mut self.io.conns, index);
        self.subscriptions.announce(self.io, self.tokens, index, cursor);
        self.io.link.announce();
        let rights = self.tokens.rights_of(&mut self.io.conns, index);
        let number = self.websockets.next_number(&self.io.conns.settings);
        request::send(self.io, index, &waiting.ask, &rights, number);
        Ok((place, number))
    }

    fn asked(
        &mut self,
        index: u32,
        sent: (Place, Option<u32>),
        now: Waiting,
        rest: VecDeque<Waiting>,
    ) {
        self.websockets.begin(&mut self.io.conns, index, sent, now, rest);
        self.watch(index);
    }

    fn watch(&mut self, index: u32) {
        self.websockets.watch(self.tokens, &mut self.io.conns, index);
    }

    /// Another token of the session's user takes the place of the last one (14.7); gives what the
    /// client is told.
    fn renew_token(&mut self, index: u32, token: &str) -> Result<String, HttpError> {
        let conns = &mut self.io.conns;
        if conns.settings.auth_mode == AuthMode::None {
            return Ok("{\"expires\":null}".to_owned());
        }
        let principal = self.tokens.principal_of_token(conns, token.as_bytes()).map_err(refused)?;
        if principal.user.as_bytes() != conns.table.user(index) {
            conns.stats.count(Stat::TokensOfOthers);
            return Err(OTHER_SESSION);
        }
        let may_else = *self.tokens.rights(index) != *principal.rights;
        self.tokens.take(index, Transport::WebSocket, &principal);
        conns.stats.count(Stat::TokensRenewed);
        let leeway_s = conns.settings.token_rules.leeway_s;
        if may_else {
            self.rights_changed(index);
        }
        self.watch(index);
        Ok(format!("{{\"expires\":{}}}", u64::from(principal.until_s).saturating_sub(leeway_s)))
    }

    fn rights_changed(&mut self, index: u32) {
        if self.io.conns.settings.rights {
            // The brain may grant by the rights of before what it was asked for already.
            self.websockets.judge_again(index);
        }
        self.subscriptions.rights_changed(self.io, self.tokens, index);
    }

    /// OPERATION_ANSWER.
    pub fn answered(&mut self, conn: u64, number: u32, flags: u8, json: &[u8]) {
        let Some((index, _)) = self.io.conns.find(conn) else { return };
        if self.websockets.answered(index, number, flags, json) == Came::Whole {
            self.done(index);
        }
    }

    /// RESPONSE, if the connection is a WebSocket's; else gives the answer back.
    pub fn answer<'a>(&mut self, index: u32, answer: Answer<'a>) -> Option<Answer<'a>> {
        match self.websockets.answer(index, &answer) {
            Came::NotHere => return Some(answer),
            Came::Part => {}
            Came::Whole => self.done(index),
        }
        None
    }

    /// RESPONSE_BODY; false if the connection is no WebSocket's that waits for one.
    pub fn answer_body(&mut self, index: u32, flags: u8, body: &[u8]) -> bool {
        let came = self.websockets.answer_body(index, flags, body);
        if came == Came::Whole {
            self.done(index);
        }
        came != Came::NotHere
    }

    fn done(&mut self, index: u32) {
        let Some(done) = self.websockets.done(index) else { return };
        let Done { place, change, judge_again, text, mut waiting } = done;
        self.io.conns.request_is_over(Some(place));
        if let Some((change, sent_ms)) = change {
            self.subscriptions.change(index, sent_ms, &change);
            if change.is_of(EVERYBODY) {
                self.subscriptions.keep_view(self.io, self.tokens, index);
            }
        }
        if judge_again {
            self.rights_changed(index);
        }
        if let Some(text) = text {
            self.tell(index, &text);
        }
        while let Some(next) = waiting.pop_front() {
            match self.ask(index, &next) {
                Ok(sent) => return self.asked(index, sent, next, waiting),
                Err(error) => self.tell_refusal(index, next.reference.as_deref(), &error),
            }
        }
    }

    /// The brain may be late with an operation.
    pub fn may_be_late(&mut self, index: u32) {
        let heard_ms = self.io.conns.clock.heard_ms;
        let Some(Late { reference, waiting }) = self.websockets.late(index, heard_ms) else {
            return;
        };
        self.io.conns.stats.count(Stat::Unavailable);
        self.tell_refusal(index, reference.as_deref(), &ANSWER_LATE);
        for waiting in waiting {
            self.tell_refusal(index, waiting.reference.as_deref(), &GIVEN_UP);
        }
    }

    /// The brain is away: nothing of this is going to be answered (8.7).
    pub fn lost(&mut self) {
        for (index, operations) in self.websockets.lost() {
            let (place, references) = operations.lost();
            self.io.conns.request_is_over(Some(place));
            for reference in references {
                self.tell_refusal(index, reference.as_deref(), &NO_BRAIN.after(1));
            }
        }
    }

    /// Answers a message that goes no further.
    pub fn refuse(&mut self, index: u32, refused: &Refused) -> Goes {
        self.io.conns.stats.count(Stat::OperationsRefused);
        self.say(index, &answers::refusal(refused.reference.as_deref(), &refused.error))
    }

    fn tell_refusal(&mut self, index: u32, reference: Option<&str>, error: &HttpError) {
        self.io.conns.stats.count(Stat::OperationsRefused);
        self.tell(index, &answers::refusal(reference, error));
    }

    /// Says what became of an operation; there are as many as may wait.
    fn tell(&mut self, index: u32, text: &str) {
        if self.io.conns.is_in(index, Phase::Live) {
            let mut out = Vec::new();
            halley_wire::websocket::encode::text(&mut out, text);
            self.writer().push(index, out.into());
        }
    }
}
