//! The messages of a WebSocket's client (`protocol/http.md` 18). Text in, an operation for the brain
//! or a refusal out. No state.
//!
//! The members' values go to the brain as they were written, so it judges them as it does for
//! HTTP; only a subject that stands alone is looked at here.

use halley_link::{FRAME_BYTES_MAX, Item, List, Member, MemberName, What};
use halley_wire::HttpError;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::sessions::subscriptions::change::{Change, SUBJECT_BYTES_MAX, presence_of};

/// Longest `ref`, as JSON text.
const REFERENCE_BYTES_MAX: usize = 64;
/// Longest message that says a state; the brain knows how long a state may be.
const STATE_BYTES_MAX: usize = 4_096;
/// An operation is one frame (link.md 20), with a user and rights beside its members.
const MEMBERS_BYTES_MAX: usize = FRAME_BYTES_MAX - 16_384;

const NOT_JSON: HttpError = HttpError::new(
    400,
    "bad_json",
    "A message is one JSON object with each member once, sent as text, such as \
     {\"op\":\"follow\",\"subject\":\"ann\"}.",
);
const BAD_OPERATION: HttpError = HttpError::new(
    400,
    "bad_operation",
    "\"op\" is \"publish\" with \"subject\" or \"to\", and \"data\", and \"id\" and \"ack\" if you \
     like; or \"follow\", \"unfollow\", \"subscribe\" or \"unsubscribe\" with \"subject\", the \
     last two also with \"presence\" in its place; or \"state\" with \"data\"; or \"token\" with \
     \"token\". Each may have \"ref\", and nothing else.",
);
const BAD_REFERENCE: HttpError =
    HttpError::new(400, "bad_ref", "\"ref\" is a string or a number of at most 64 bytes.");
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
/// Answer to a binary message.
pub const NOT_TEXT: Refused = Refused { reference: None, error: NOT_JSON };

/// A message that is understood.
#[derive(Debug, PartialEq, Eq)]
pub struct Operation {
    /// `ref`, as it was written.
    pub reference: Option<Box<str>>,
    /// What is wanted.
    pub wish: Wish,
}

/// What an operation wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish {
    /// Something of the brain.
    Ask(Ask),
    /// To go on with another token.
    Token(String),
}

/// An operation for the brain, as link.md 20 has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Ask {
    /// Which.
    pub what: What,
    /// The subject that stands alone; for its presence after the byte for that.
    pub subject: String,
    /// How many of the newest events are wanted with a subscription.
    pub last: u32,
    /// The members of the others.
    pub members: Texts,
    /// What the session is subscribed to then.
    pub change: Option<Change>,
}

/// Members with their values, in the order of link.md 20.3.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Texts {
    count: u16,
    /// The items of a list.
    items: Vec<u8>,
}

impl Texts {
    fn add(&mut self, name: MemberName, value: &str) {
        Member { name, value: value.as_bytes() }.write(&mut self.items);
        self.count += 1;
    }

    /// As they travel.
    pub fn list(&self) -> List<'_, Member<'_>> {
        List::from_items(self.count, &self.items)
    }

    /// How many bytes they have.
    pub fn bytes(&self) -> usize {
        self.items.len()
    }
}

/// A message that isn't understood.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// `ref`, if it could be read.
    pub reference: Option<Box<str>>,
    /// Why.
    pub error: HttpError,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members<'m> {
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
    #[serde(borrow, default, rename = "ref", deserialize_with = "raw")]
    reference: Option<&'m RawValue>,
}

/// All that is looked for in a message that has other members, or lacks some.
#[derive(Deserialize)]
struct Reference<'m> {
    #[serde(borrow, default, rename = "ref", deserialize_with = "raw")]
    reference: Option<&'m RawValue>,
}

/// `null` is a value like any other.
fn raw<'m, D: Deserializer<'m>>(member: D) -> Result<Option<&'m RawValue>, D::Error> {
    <&RawValue>::deserialize(member).map(Some)
}

/// Reads a message.
///
/// # Errors
/// What the client is to be told.
pub fn read(text: &str) -> Result<Operation, Refused> {
    let refused = |error| Refused { reference: None, error };
    // serde takes the members of a list for those of an object, in their order.
    if !text.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{') {
        return Err(refused(NOT_JSON));
    }
    let members: Result<Members<'_>, _> = serde_json::from_str(text);
    let reference = match &members {
        Ok(members) => members.reference,
        Err(_) => {
            let found = serde_json::from_str::<Reference<'_>>(text);
            found.map_err(|_| refused(NOT_JSON))?.reference
        }
    };
    let reference = match reference.map(RawValue::get) {
        Some(text) if is_reference(text) => Some(Box::from(text)),
        Some(_) => return Err(refused(BAD_REFERENCE)),
        None => None,
    };
    match members.map_err(|_| BAD_OPERATION).and_then(wish) {
        Ok(wish) => Ok(Operation { reference, wish }),
        Err(error) => Err(Refused { reference, error }),
    }
}

fn is_reference(text: &str) -> bool {
    let first = text.bytes().next().unwrap_or_default();
    let kind = first == b'"' || first == b'-' || first.is_ascii_digit();
    kind && text.len() <= REFERENCE_BYTES_MAX
}

fn wish(members: Members<'_>) -> Result<Wish, HttpError> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn ask(text: &str) -> Ask {
        match read(text).unwrap().wish {
            Wish::Ask(ask) => ask,
            Wish::Token(_) => panic!("a token"),
        }
    }

    fn members(ask: &Ask) -> Vec<(&'static str, &str)> {
        let text = |value| std::str::from_utf8(value).unwrap();
        ask.members.list().iter().map(|member| (member.name.text(), text(member.value))).collect()
    }

    fn code(text: &str) -> (Option<String>, &'static str) {
        let Refused { reference, error } = read(text).unwrap_err();
        (reference.map(String::from), error.code)
    }

    /// http.md 18.2: values travel as they were written; link.md 20.2, 20.3.
    #[test]
    fn what_travels() {
        let text = r#"{"op":"publish","subject":"a","data":{"n":1.0e5,"s":"é\u0000"}}"#;
        let publish = ask(text);
        assert_eq!((publish.what, publish.subject.as_str()), (What::Publish, ""));
        let data = r#"{"n":1.0e5,"s":"é\u0000"}"#;
        assert_eq!(members(&publish), [("subject", r#""a""#), ("data", data)]);
        let text = r#"{"keep":true,"id":7,"ack":"memory","data":null,"to":[],"op":"publish"}"#;
        let expected =
            [("to", "[]"), ("data", "null"), ("id", "7"), ("ack", "\"memory\""), ("keep", "true")];
        assert_eq!(members(&ask(text)), expected, "in the order of 20.3");
        for (text, what, subject, last) in [
            (r#"{"op":"follow","subject":"room/7 é?"}"#, What::Follow, "room/7 é?", 0),
            (r#"{"op":"unfollow","subject":"\u0061"}"#, What::Unfollow, "a", 0),
            (r#"{"op":"subscribe","last":20,"subject":"r"}"#, What::Subscribe, "r", 20),
            (r#"{"op":"unsubscribe","presence":"*"}"#, What::Unsubscribe, "\u{1}*", 0),
        ] {
            let ask = ask(text);
            assert_eq!((ask.what, ask.subject.as_str(), ask.last), (what, subject, last));
            assert!(members(&ask).is_empty(), "{text}");
        }
        let state = ask("{\"op\":\"state\",\"data\":{\"n\":1.0e5,\n\t\"s\":\"é\\n\"}}");
        assert_eq!(members(&state), [("data", r#"{"n":1.0e5,"s":"é\n"}"#)]);
        let token = read(r#"{"op":"token","token":"abc","ref":"x"}"#).unwrap();
        let expected =
            Operation { reference: Some("\"x\"".into()), wish: Wish::Token("abc".into()) };
        assert_eq!(token, expected);
    }

    /// http.md 25.1
    #[test]
    fn numbers_of_the_newest() {
        assert_eq!(last_of("20"), Some(20));
        for text in ["", "0", "020", "+20", "-1", "2.0", " 2", "x", "1234567", "٣"] {
            assert_eq!(last_of(text), None, "{text}");
        }
    }

    /// http.md 18.2: what isn't understood is refused, under its `ref` where that can be read.
    #[test]
    fn what_is_not_understood() {
        for text in ["", "x", "7", "null", "\"{}\"", "{", "{}{}", "\u{0}", "\u{a0}{\"op\":1}"] {
            assert_eq!(code(text), (None, "bad_json"), "{text}");
        }
        assert_eq!(code(r#"{"op":"follow"} "#), (None, "bad_operation"));
        for text in [
            r#"{"ref":1}"#,
            r#"{"ref":1,"op":7}"#,
            r#"{"ref":1,"op":"shout"}"#,
            r#"{"ref":1,"op":"publish","subject":"a"}"#,
            r#"{"ref":1,"op":"publish","data":1}"#,
            r#"{"ref":1,"op":"publish","subject":"a","data":1,"user":"bob"}"#,
            r#"{"ref":1,"op":"publish","subject":"a","data":1,"data":2}"#,
            r#"{"ref":1,"op":"publish","subject":"a","data":1,"token":"t"}"#,
            r#"{"ref":1,"op":"publish","subject":"a","to":["bob"],"data":1}"#,
            r#"{"ref":1,"op":"publish","to":["bob"]}"#,
            r#"{"ref":1,"op":"publish","subjects":["a"],"to":["bob"],"data":1}"#,
            r#"{"ref":1,"op":"publish","subjects":["a"],"subject":"b","data":1}"#,
            r#"{"ref":1,"op":"follow","subject":"a","subjects":["a"]}"#,
            r#"{"ref":1,"op":"follow","subject":"a","to":["bob"]}"#,
            r#"{"ref":1,"op":"follow","to":["bob"]}"#,
            r#"{"ref":1,"op":"token","token":"t","to":["bob"]}"#,
            r#"{"ref":1,"op":"follow","subject":"a","data":1}"#,
            r#"{"ref":1,"op":"follow","subject":"a","last":2}"#,
            r#"{"ref":1,"op":"follow","subject":"a","keep":true}"#,
            r#"{"ref":1,"op":"unsubscribe","subject":"a","last":2}"#,
            r#"{"ref":1,"op":"publish","subject":"a","data":1,"last":2}"#,
            r#"{"ref":1,"op":"follow","presence":"a"}"#,
            r#"{"ref":1,"op":"subscribe","presence":"a","last":2}"#,
            r#"{"ref":1,"op":"subscribe","subject":"a","presence":"a"}"#,
            r#"{"ref":1,"op":"publish","subject":"a","data":1,"presence":"a"}"#,
            r#"{"ref":1,"op":"state"}"#,
            r#"{"ref":1,"op":"state","data":1,"subject":"a"}"#,
            r#"{"ref":1,"op":"state","data":1,"id":"a"}"#,
            r#"{"ref":1,"op":"token"}"#,
            r#"{"ref":1,"op":"token","token":7}"#,
        ] {
            assert_eq!(code(text), (Some("1".into()), "bad_operation"), "{text}");
        }
    }

    /// http.md 18.2: so is a member whose value it can't be.
    #[test]
    fn values_that_cannot_be() {
        for last in ["0", "-1", "2.0", "1e2", "\"2\"", "null", "1234567"] {
            let text = format!(r#"{{"op":"subscribe","subject":"a","last":{last}}}"#);
            assert_eq!(code(&text), (None, "bad_last"));
        }
        for subject in ["7", "null", "\"\"", "[]", &format!("\"{}\"", "x".repeat(256))] {
            let text = format!(r#"{{"ref":"r","op":"follow","subject":{subject}}}"#);
            assert_eq!(code(&text), (Some("\"r\"".into()), "bad_subject"));
        }
        for subject in ["7", "null", "\"\"", "[]", &format!("\"{}\"", "x".repeat(255))] {
            let text = format!(r#"{{"ref":"r","op":"subscribe","presence":{subject}}}"#);
            assert_eq!(code(&text), (Some("\"r\"".into()), "bad_presence"));
        }
        for reference in ["null", "true", "{}", "[1]", &format!("\"{}\"", "x".repeat(63))] {
            let text = format!(r#"{{"ref":{reference},"op":"follow","subject":"a"}}"#);
            assert_eq!(code(&text), (None, "bad_ref"), "{reference}");
        }
        let twice = r#"{"ref":1,"ref":2,"op":"follow","subject":"a"}"#;
        assert_eq!(code(twice), (None, "bad_json"));
        let large = "x".repeat(MEMBERS_BYTES_MAX);
        let text = format!(r#"{{"op":"publish","subject":"a","data":"{large}"}}"#);
        assert_eq!(code(&text), (None, "data_too_large"));
        let text = format!(r#"{{"op":"state","data":"{}"}}"#, "x".repeat(STATE_BYTES_MAX - 1));
        assert_eq!(code(&text), (None, "state_too_large"));
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let text = format!(r#"{{"op":"publish","subject":"a","data":{deep}}}"#);
        assert!(read(&text).is_err(), "and nothing overflows");
    }

    /// RFC 8259 to the letter, by the cases that HTTP has; those in no UTF-8 are no text message.
    #[test]
    fn data_is_json() {
        let cases = include_str!("../../../../../protocol/json.json");
        let cases: serde_json::Value = serde_json::from_str(cases).unwrap();
        for case in cases["cases"].as_array().unwrap() {
            let bytes = case["text"].as_str().unwrap().chars().map(|c| c as u8).collect();
            if let Ok(data) = String::from_utf8(bytes) {
                let text = format!(r#"{{"op":"publish","subject":"s","data":{data},"ref":1}}"#);
                assert_eq!(case["json"], read(&text).is_ok(), "{}", case["name"]);
            }
        }
    }

    /// http.md 18.1: "one JSON object", and no list with the values of one.
    #[test]
    fn a_list_is_no_operation() {
        for text in [
            "[]",
            r#"["follow","a"]"#,
            r#"["publish","a",1]"#,
            r#"["publish","a",1,"id","memory",null,7]"#,
            " \n\t\r[\"follow\",\"a\"]",
            r#"[{"op":"follow","subject":"a"}]"#,
        ] {
            assert_eq!(code(text), (None, "bad_json"), "{text}");
        }
        let spaced = ask(" \n\t\r{\"op\":\"follow\",\"subject\":\"a\"}");
        assert_eq!(spaced.what, What::Follow);
    }

    /// http.md 23.1: what is kept of it is what was said, or nothing.
    #[test]
    fn states() {
        for (data, kept) in [("{\"a\":\n[1]}", "{\"a\":[1]}"), ("null", ""), ("\"\"", "\"\"")] {
            let Wish::Ask(asked) =
                read(&format!(r#"{{"op":"state","data":{data}}}"#)).unwrap().wish
            else {
                panic!("no request");
            };
            assert_eq!(asked.change, Some(Change::State(kept.into())), "{data}");
        }
    }
}
