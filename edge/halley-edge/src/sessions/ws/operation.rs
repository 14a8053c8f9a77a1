//! The messages of a WebSocket's client (`protocol/http.md` 18). Text in, an operation for the
//! brain or a refusal out. No state.
//!
//! `wish.rs` makes an operation of a message's members.

use halley_link::{Item, List, Member, MemberName, What};
use halley_wire::HttpError;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::sessions::subscriptions::change::Change;
use crate::sessions::ws::wish::{BAD_OPERATION, Members, raw, wish};

/// Longest `ref`, as JSON text.
const REFERENCE_BYTES_MAX: usize = 64;
const NOT_JSON: HttpError = HttpError::new(
    400,
    "bad_json",
    "A message is one JSON object with each member once, sent as text, such as \
     {\"op\":\"follow\",\"subject\":\"ann\"}.",
);
const BAD_REFERENCE: HttpError =
    HttpError::new(400, "bad_ref", "\"ref\" is a string or a number of at most 64 bytes.");
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
    /// One more.
    pub fn add(&mut self, name: MemberName, value: &str) {
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

/// All that is looked for in a message that has other members, or lacks some.
#[derive(Deserialize)]
struct Reference<'m> {
    #[serde(borrow, default, rename = "ref", deserialize_with = "raw")]
    reference: Option<&'m RawValue>,
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
