//! The members of a client's message, and the operation that they are (`protocol/http.md` 18.2).
//!
//! Their values go to the brain as they were written, so it judges them as it does for HTTP; only a
//! subject that stands alone is looked at here.

use halley_link::{FRAME_BYTES_MAX, MemberName, What};
use halley_wire::HttpError;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::sessions::subscriptions::change::{Change, SUBJECT_BYTES_MAX, presence_of};
use crate::sessions::ws::operation::{Ask, Texts, Wish};

/// Longest message that says a state; the brain knows how long a state may be.
pub const STATE_BYTES_MAX: usize = 4_096;
/// An operation is one frame (link.md 20), with a user and rights beside its members.
pub const MEMBERS_BYTES_MAX: usize = FRAME_BYTES_MAX - 16_384;

/// To what is no operation.
pub const BAD_OPERATION: HttpError = HttpError::new(
    400,
    "bad_operation",
    "\"op\" is \"publish\" with \"subject\" or \"to\", and \"data\", and \"id\" and \"ack\" if you \
     like; or \"follow\", \"unfollow\", \"subscribe\" or \"unsubscribe\" with \"subject\", the \
     last two also with \"presence\" in its place; or \"state\" with \"data\"; or \"token\" with \
     \"token\". Each may have \"ref\", and nothing else.",
);
const BAD_SUBJECT: HttpError =
    HttpError::new(400, "bad_subject", "\"subject\" is a string of 1 to 255 bytes.");
const BAD_PRESENCE: HttpError =
    HttpError::new(400, "bad_presence", "\"presence\" is a string of 1 to 254 bytes.");
const TOO_LARGE: HttpError = HttpError::new(
    413,
    "data_too_large",
    "The message is longer than a request to the brain can be: publish less at once.",
);
const STATE_TOO_LARGE: HttpError = HttpError::new(
    413,
    "state_too_large",
    "A session's state has limits.session_state_bytes_max bytes at most (1,024 if nothing else is \
     set): say less, or publish it as an event.",
);
/// To what is no such number.
pub const BAD_LAST: HttpError = HttpError::new(
    400,
    "bad_last",
    "last is how many of the newest events about each subject come first: a number from 1 to \
     limits.last_events_max, beside subjects= or subject=.",
);

/// As a message has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Members<'m> {
    op: String,
    #[serde(borrow, default, deserialize_with = "raw")]
    subject: Option<&'m RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    subjects: Option<&'m RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    to: Option<&'m RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    data: Option<&'m RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    id: Option<&'m RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    ack: Option<&'m RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    last: Option<&'m RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    keep: Option<&'m RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    presence: Option<&'m RawValue>,
    #[serde(default)]
    token: Option<String>,
    /// `ref`.
    #[serde(borrow, default, rename = "ref", deserialize_with = "raw")]
    pub reference: Option<&'m RawValue>,
}

/// `null` is a value like any other.
///
/// # Errors
/// Those of JSON.
pub fn raw<'m, D: Deserializer<'m>>(member: D) -> Result<Option<&'m RawValue>, D::Error> {
    <&RawValue>::deserialize(member).map(Some)
}

/// What they want.
///
/// # Errors
/// What the client is to be told.
pub fn wish(members: Members<'_>) -> Result<Wish, HttpError> {
    let ask = match members {
        Members { ref op, last: None, presence: None, token: None, .. } if op == "publish" => {
            publish(&members)?
        }
        Members {
            op,
            subject,
            subjects: None,
            presence,
            to: None,
            data: None,
            id: None,
            ack: None,
            last,
            keep: None,
            token: None,
            ..
        } => of_one(&op, subject, presence, last)?,
        Members {
            op,
            subject: None,
            subjects: None,
            presence: None,
            to: None,
            data: None,
            id: None,
            ack: None,
            last: None,
            keep: None,
            token: Some(token),
            ..
        } if op == "token" => {
            return Ok(Wish::Token(token));
        }
        Members {
            op,
            subject: None,
            subjects: None,
            presence: None,
            to: None,
            data: Some(data),
            id: None,
            ack: None,
            last: None,
            keep: None,
            token: None,
            ..
        } if op == "state" => state(data)?,
        _ => return Err(BAD_OPERATION),
    };
    Ok(Wish::Ask(ask))
}

fn of_one(
    op: &str,
    subject: Option<&RawValue>,
    presence: Option<&RawValue>,
    last: Option<&RawValue>,
) -> Result<Ask, HttpError> {
    match (op, subject, presence, last) {
        ("subscribe", Some(subject), None, last) => of_subject(op, subject, last),
        ("follow" | "unfollow" | "unsubscribe", Some(subject), None, None) => {
            of_subject(op, subject, None)
        }
        ("subscribe" | "unsubscribe", None, Some(presence), None) => of_presence(op, presence),
        _ => Err(BAD_OPERATION),
    }
}

fn publish(members: &Members<'_>) -> Result<Ask, HttpError> {
    let Members { subject, subjects, to, data, id, ack, keep, .. } = *members;
    let whom = [subject, subjects, to].iter().filter(|whom| whom.is_some()).count();
    if whom != 1 || data.is_none() {
        return Err(BAD_OPERATION);
    }
    let mut members = Texts::default();
    for (name, value) in [
        (MemberName::Subject, subject),
        (MemberName::Subjects, subjects),
        (MemberName::To, to),
        (MemberName::Data, data),
        (MemberName::Id, id),
        (MemberName::Ack, ack),
        (MemberName::Keep, keep),
    ] {
        if let Some(value) = value {
            members.add(name, value.get());
        }
    }
    if members.bytes() > MEMBERS_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    Ok(Ask { what: What::Publish, subject: String::new(), last: 0, members, change: None })
}

fn state(data: &RawValue) -> Result<Ask, HttpError> {
    // Inside strings there are no control characters, so these stand between tokens.
    let text: String = data.get().chars().filter(|c| !matches!(c, '\n' | '\r' | '\t')).collect();
    if text.len() > STATE_BYTES_MAX {
        return Err(STATE_TOO_LARGE);
    }
    let mut members = Texts::default();
    members.add(MemberName::Data, &text);
    let kept = if text == "null" { "" } else { &text };
    let change = Some(Change::State(kept.into()));
    Ok(Ask { what: What::State, subject: String::new(), last: 0, members, change })
}

fn of_subject(op: &str, subject: &RawValue, last: Option<&RawValue>) -> Result<Ask, HttpError> {
    let subject: String = serde_json::from_str(subject.get()).map_err(|_| BAD_SUBJECT)?;
    if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX {
        return Err(BAD_SUBJECT);
    }
    asked(op, subject, last)
}

fn of_presence(op: &str, subject: &RawValue) -> Result<Ask, HttpError> {
    let subject: String = serde_json::from_str(subject.get()).map_err(|_| BAD_PRESENCE)?;
    asked(op, presence_of(&subject).ok_or(BAD_PRESENCE)?, None)
}

fn asked(op: &str, subject: String, last: Option<&RawValue>) -> Result<Ask, HttpError> {
    let kept = || subject.as_str().into();
    let (what, change) = match op {
        "follow" => (What::Follow, None),
        "unfollow" => (What::Unfollow, None),
        "subscribe" => (What::Subscribe, Some(Change::Add(kept()))),
        _ => (What::Unsubscribe, Some(Change::Remove(kept()))),
    };
    let last = match last {
        Some(last) => last_of(last.get()).ok_or(BAD_LAST)?,
        None => 0,
    };
    Ok(Ask { what, subject, last, members: Texts::default(), change })
}

/// How many: a number without signs, zeros before it or anything else.
pub fn last_of(text: &str) -> Option<u32> {
    let digits = text.len() <= 6 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits && !text.starts_with('0'))
}
