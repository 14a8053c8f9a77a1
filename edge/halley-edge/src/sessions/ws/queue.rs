//! One WebSocket's request at the brain, and messages that wait for their turn.
//!
//! Bounds: `operations_waiting_max` messages and `message_bytes_max` bytes wait; of an answer
//! [`ANSWER_BYTES_MAX`] are kept.

use std::collections::VecDeque;

use halley_wire::HttpError;

use crate::limits::places::Place;
use crate::sessions::base::answer::Answer;
use crate::sessions::subscriptions::change::Change;
use crate::sessions::ws::answers;
use crate::sessions::ws::earlier;
use crate::sessions::ws::operation::{Ask, Refused};
use crate::settings::Settings;

/// Answers are an id, two numbers, or a page of events, which has 262,144 bytes and one event more.
const ANSWER_BYTES_MAX: u64 = 524_288;

const TOO_MANY: HttpError = HttpError::new(
    429,
    "operations_waiting_max",
    "Too many messages of this WebSocket wait for their turn: wait for answers before you send \
     more.",
);
/// Answer to what waited behind an operation that the brain is late with.
pub const GIVEN_UP: HttpError = HttpError::new(
    503,
    "brain_busy",
    "The brain hasn't answered an operation of this WebSocket yet: try again, or open another one.",
)
.after(1);

/// What the client waits for.
struct Asked {
    reference: Option<Box<str>>,
    until_ms: u64,
}

/// An operation that waits for its turn.
pub struct Waiting {
    /// `ref` of its message.
    pub reference: Option<Box<str>>,
    /// What it wants of the brain.
    pub ask: Ask,
}

impl Waiting {
    /// What it takes of the bound.
    fn bytes(&self) -> usize {
        self.ask.subject.len() + self.ask.members.bytes()
    }
}

/// When an operation has its turn.
pub enum Turn {
    /// The brain has none of this WebSocket.
    Now(Waiting),
    /// After others.
    Later,
    /// Too many wait.
    Never(Refused),
}

/// An operation that was sent to the brain.
pub struct Sent {
    /// Its place among the requests there.
    pub place: Place,
    /// What its answer has; `None` for a brain of an earlier build, which answers by RESPONSE.
    pub number: Option<u32>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// How an answer says what became of it.
enum Form {
    /// By ERROR.
    Flag { done: bool },
    /// As HTTP does.
    Response { status: u16, retry_after_s: Option<u32> },
}

impl Form {
    fn is_done(&self) -> bool {
        match self {
            Form::Flag { done } => *done,
            Form::Response { status, .. } => (200..300).contains(status),
        }
    }
}

/// What has come of an answer.
struct Gathered {
    form: Form,
    body: Vec<u8>,
    too_large: bool,
}

impl Gathered {
    fn new(form: Form) -> Gathered {
        Gathered { form, body: Vec::new(), too_large: false }
    }

    /// What the client is sent.
    fn text(self, reference: Option<&str>) -> String {
        let Gathered { form, body, too_large } = self;
        match form {
            _ if too_large => answers::unreadable(reference),
            Form::Flag { done } => match std::str::from_utf8(&body) {
                Ok(json) => answers::answer(reference, if done { "ok" } else { "error" }, json),
                Err(_) => answers::unreadable(reference),
            },
            Form::Response { status, retry_after_s } => {
                earlier::answer(reference, status, &body, retry_after_s)
            }
        }
    }
}

/// What the brain has answered to the end.
pub struct Done {
    /// That of the request.
    pub place: Place,
    /// What holds for the session from now on; and when it was sent to the brain, in milliseconds
    /// since 1970. Nothing if the brain hasn't done it.
    pub change: Option<(Change, u64)>,
    /// The session's rights have changed since the brain was asked.
    pub judge_again: bool,
    /// What the client is sent, unless it was given up.
    pub text: Option<String>,
    /// Those whose turn comes now.
    pub waiting: VecDeque<Waiting>,
}

/// What is given up as the brain is late.
pub struct Late {
    /// `ref` of what the brain was asked.
    pub reference: Option<Box<str>>,
    /// What waited behind it.
    pub waiting: VecDeque<Waiting>,
}

/// Those of one session. Invariant: the brain has a request of it.
pub struct Operations {
    sent: Sent,
    /// `None` when it was given up.
    asked: Option<Asked>,
    /// What holds for the session once the brain has done it, whether that is too late or not.
    change: Option<Change>,
    answer: Option<Gathered>,
    /// The session's rights have changed since the brain was asked.
    judge_again: bool,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
}

impl Operations {
    /// The brain was sent `now`; the `rest` waits. The answer is late after `until_ms`, by the
    /// worker's time.
    pub fn new(sent: Sent, now: Waiting, until_ms: u64, rest: VecDeque<Waiting>) -> Operations {
        let waiting_bytes = rest.iter().map(Waiting::bytes).sum();
        Operations {
            sent,
            asked: Some(Asked { reference: now.reference, until_ms }),
            change: now.ask.change,
            answer: None,
            judge_again: false,
            waiting: rest,
            waiting_bytes,
        }
    }

    /// When the answer is late, by the worker's time; `None` if it was given up.
    pub fn until_ms(&self) -> Option<u64> {
        self.asked.as_ref().map(|asked| asked.until_ms)
    }

    /// The number of the one that the brain has.
    pub fn number(&self) -> Option<u32> {
        self.sent.number
    }

    /// What the brain's answer is going to change.
    pub fn change(&self) -> Option<&Change> {
        self.change.as_ref()
    }

    /// The session's rights have changed.
    pub fn judge_again(&mut self) {
        self.judge_again = true;
    }

    /// When one more has its turn; one that has it later is kept.
    pub fn turn(&mut self, settings: &Settings, waiting: Waiting) -> Turn {
        let bytes = self.waiting_bytes + waiting.bytes();
        let error = if self.asked.is_none() {
            GIVEN_UP
        } else if self.waiting.len() < settings.operations_waiting_max
            && bytes <= settings.message_bytes_max
        {
            self.waiting_bytes = bytes;
            self.waiting.push_back(waiting);
            return Turn::Later;
        } else {
            TOO_MANY
        };
        Turn::Never(Refused { reference: waiting.reference, error })
    }

    /// The head of the answer; its body comes by [`Operations::answer_goes_on`].
    pub fn answer_begins(&mut self, answer: &Answer<'_>) {
        let header = answer.headers.iter().find(|header| header.name == b"retry-after");
        let seconds = header.and_then(|header| std::str::from_utf8(header.value).ok());
        let retry_after_s = seconds.and_then(|seconds| seconds.parse().ok());
        let form = Form::Response { status: answer.status, retry_after_s };
        let gathered = self.answer.get_or_insert(Gathered::new(form));
        gathered.too_large |= answer.body_bytes > ANSWER_BYTES_MAX;
    }

    /// A part of the answer to an operation that was done, or has failed.
    pub fn answer_comes(&mut self, done: bool, json: &[u8]) {
        self.answer.get_or_insert(Gathered::new(Form::Flag { done }));
        self.answer_goes_on(json);
    }

    /// More of the answer; false if it hasn't begun.
    pub fn answer_goes_on(&mut self, body: &[u8]) -> bool {
        let Some(answer) = self.answer.as_mut() else { return false };
        answer.too_large |= (answer.body.len() + body.len()) as u64 > ANSWER_BYTES_MAX;
        if !answer.too_large {
            answer.body.extend_from_slice(body);
        }
        true
    }

    /// The answer is whole.
    pub fn done(self) -> Done {
        let Operations { sent, asked, change, answer, judge_again, waiting, .. } = self;
        let done = answer.as_ref().is_some_and(|answer| answer.form.is_done());
        let change = change.filter(|_| done).map(|change| (change, sent.at_ms));
        let text = asked.zip(answer).map(|(asked, answer)| answer.text(asked.reference.as_deref()));
        Done { place: sent.place, change, judge_again, text, waiting }
    }

    /// What is given up if the brain is late by now. The answer is waited for all the same.
    pub fn late(&mut self, heard_ms: u64) -> Option<Late> {
        if self.until_ms()? > heard_ms {
            return None;
        }
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        self.asked.take().map(|asked| Late { reference: asked.reference, waiting })
    }

    /// Nothing of this is going to be answered: the place of the request, and the `ref`s of all
    /// that a client waits for.
    pub fn lost(self) -> (Place, impl Iterator<Item = Option<Box<str>>>) {
        let asked = self.asked.into_iter().map(|asked| asked.reference);
        (self.sent.place, asked.chain(self.waiting.into_iter().map(|waiting| waiting.reference)))
    }

    /// The place of the request.
    pub fn into_place(self) -> Place {
        self.sent.place
    }
}
