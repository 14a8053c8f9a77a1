//! Members of a stream's JSON texts, found without parsing them.
//!
//! | text | is |
//! | --- | --- |
//! | `{"cursor":C}` | a cursor alone: a welcome or a heartbeat |
//! | `{"cursor":C,"gap":…}`, `{"gap":…}` | a gap |
//! | `{"cursor":C,…}` and any other | an event |
//! | `{"welcome"…` | nothing |
//!
//! The members that are looked for can't stand inside a JSON string, where their quotes would be
//! escaped. So the first `"t":` is the stamp and the first `"n":` the number, as long as they are
//! in events that `halley-load publish` wrote. A rival that takes the data for a text brings it
//! inside a string: a stamp is looked for there as well, if it isn't where it should be.

use std::sync::LazyLock;

use memchr::memchr;
use memchr::memmem::Finder;

/// The longest cursor that the protocol allows (link.md 7.2).
pub const CURSOR_BYTES_MAX: usize = 255;

// Made once: a search as short as these costs less than its preparation.
static STAMP: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"t\":"));
static QUOTED_STAMP: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#"\"t\":"#));
static NUMBER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"n\":"));
static SUBJECT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"subject\":\""));

/// An event's JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The text, or of `/test/<user>` the data alone.
    pub json: &'a [u8],
}

/// What a text is.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// An event.
    Event(Event<'a>),
    /// Events are missing here.
    Gap,
    /// No event.
    Nothing,
}

impl<'a> Event<'a> {
    /// When its publisher meant to send it, `CLOCK_MONOTONIC` nanoseconds.
    #[must_use]
    pub fn stamp(&self) -> Option<u64> {
        self.after(&STAMP).or_else(|| self.after(&QUOTED_STAMP)).and_then(digits)
    }

    /// Which of its subject's events it is.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.after(&NUMBER).and_then(digits).and_then(|number| number.try_into().ok())
    }

    /// Its subject, as it stands between the quotes.
    #[must_use]
    pub fn subject(&self) -> Option<&'a [u8]> {
        let rest = self.after(&SUBJECT)?;
        let mut end = 0;
        loop {
            end += memchr(b'"', rest.get(end..)?)?;
            let escapes = rest[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
            if escapes % 2 == 0 {
                return Some(&rest[..end]);
            }
            end += 1;
        }
    }

    fn after(&self, name: &Finder<'_>) -> Option<&'a [u8]> {
        self.json.get(name.find(self.json)? + name.needle().len()..)
    }
}

/// The cursor that a text brings, and what else it is.
#[must_use]
pub fn read(json: &[u8]) -> (Option<&[u8]>, Message<'_>) {
    let event = Message::Event(Event { json });
    let Some(rest) = json.strip_prefix(b"{\"cursor\":\"") else {
        let message = match json {
            _ if json.starts_with(b"{\"gap\"") => Message::Gap,
            _ if json.starts_with(b"{\"welcome\"") => Message::Nothing,
            _ => event,
        };
        return (None, message);
    };
    let Some(end) = memchr(b'"', rest) else { return (None, event) };
    let message = match &rest[end + 1..] {
        after if after.starts_with(b"}") => Message::Nothing,
        after if after.starts_with(b",\"gap\"") => Message::Gap,
        _ => event,
    };
    (Some(&rest[..end]), message)
}

/// The decimal number at the start, after white space.
#[must_use]
pub fn digits(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = text[..count.min(19)].iter();
    (count > 0).then(|| value.fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_apart() {
        let event = |json: &'static str| Message::Event(Event { json: json.as_bytes() });
        let cases = [
            (r#"{"cursor":"c-1"}"#, Some("c-1"), Message::Nothing),
            (r#"{"cursor":"c","gap":{"from":1}}"#, Some("c"), Message::Gap),
            (r#"{"gap":{"from":null}}"#, None, Message::Gap),
            (r#"{"welcome":{}}"#, None, Message::Nothing),
            (r#"{"cursor":"c","id":"1"}"#, Some("c"), event(r#"{"cursor":"c","id":"1"}"#)),
            (r#"{"id":"1"}"#, None, event(r#"{"id":"1"}"#)),
            (r#"{"cursor":"c"#, None, event(r#"{"cursor":"c"#)),
        ];
        for (json, cursor, message) in cases {
            assert_eq!(read(json.as_bytes()), (cursor.map(str::as_bytes), message), "{json}");
        }
    }

    #[test]
    fn members_are_found_where_they_are() {
        let json =
            br#"{"id":"\"n\":9","subject":"a\\\"b\\","at":1,"data":{"t":12,"n":7,"pad":"\"t\":"}}"#;
        let event = Event { json };
        assert_eq!((event.stamp(), event.number()), (Some(12), Some(7)));
        assert_eq!(event.subject(), Some(&br#"a\\\"b\\"#[..]));
        let other = Event { json: br#"{"subject":"never ends"# };
        assert_eq!((other.stamp(), other.number(), other.subject()), (None, None, None));
        assert_eq!(Event { json: br#"{"n":4294967296}"# }.number(), None);
    }
}
