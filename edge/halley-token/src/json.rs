//! JSON objects of which each name is there once (RFC 8259 section 4), and base64url.
//!
//! Parsers differ in which of two equal names they believe, so an object with two is invalid: RFC
//! 7515 and RFC 7519, each in section 4, leave that choice. A value stays text until it is read.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// An object's members, in their order.
pub struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Reads an object with at most `members_max` members, and nothing behind it.
    pub fn read<const MEMBERS_MAX: usize>(json: &'a [u8]) -> Option<Object<'a>> {
        let Members(members) = serde_json::from_slice::<Members<'a, MEMBERS_MAX>>(json).ok()?;
        Some(Object(members))
    }

    /// A member's value as it stands.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.get())
    }

    /// Is there such a member?
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The text that a member is, if it is one.
    pub fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        text(self.get(name)?)
    }
}

/// The text that a JSON value is, if it is one.
pub fn text(json: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str(json).ok().map(|Text(text)| text)
}

/// base64url without padding (RFC 7515 section 2), and of several spellings of the same bytes only
/// the one whose unused bits are zero (RFC 4648, 3.5).
pub fn base64url(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

struct Members<'a, const MAX: usize>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// Borrowed where nothing is escaped, which serde's own `Cow` never is.
struct Text<'a>(Cow<'a, str>);

impl<'de, const MAX: usize> Deserialize<'de> for Members<'de, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor::<MAX>).map(Members)
    }
}

struct MembersVisitor<const MAX: usize>;

impl<'de, const MAX: usize> Visitor<'de> for MembersVisitor<MAX> {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Self::Value = Vec::with_capacity(8);
        while let Some((Text(name), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
            // MAX bounds what this search through all of them costs.
            if members.len() == MAX || members.iter().any(|(other, _)| *other == name) {
                return Err(A::Error::custom("a name is there twice, or too many are"));
            }
            members.push((name, value));
        }
        Ok(members)
    }
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor).map(Text)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(json: &str) -> Option<Object<'_>> {
        Object::read::<4>(json.as_bytes())
    }

    /// RFC 8259, section 4: "The names within an object SHOULD be unique."
    #[test]
    fn a_name_is_there_once_however_it_is_spelled() {
        assert!(read(r#"{"a":1,"b":{"a":2,"a":3}}"#).is_some(), "what is inside is nobody's");
        for twice in [r#"{"a":1,"a":1}"#, r#"{"a":1,"b":2,"\u0061":3}"#, r#"{"":1,"":1}"#] {
            assert!(read(twice).is_none(), "{twice}");
        }
    }

    #[test]
    fn what_is_no_object_is_none() {
        for other in ["", "1", "null", "{", "{}x", "{}{}", "{\"a\"}", "\u{feff}{}", "{\"a\":}"] {
            assert!(read(other).is_none(), "{other}");
        }
        // Where a struct is read, serde takes a list for one.
        for list in ["[]", r#"["HS256"]"#, r#"[["alg","HS256"]]"#, r#"[{"alg":"HS256"}]"#] {
            assert!(read(list).is_none(), "{list}");
        }
        assert!(Object::read::<4>(b"{\"a\":\"\xff\"}").is_none(), "no UTF-8");
        assert!(read(" {\"a\":1}\r\n\t").is_some());
        assert!(read(r#"{"a":1,"b":1,"c":1,"d":1}"#).is_some());
        assert!(read(r#"{"a":1,"b":1,"c":1,"d":1,"e":1}"#).is_none(), "one too many");
    }

    #[test]
    fn values_are_given_as_they_stand() {
        let object = read(r#"{"n":1.50,"t":"\u00e9\n","o": { "x" : 1 } }"#).unwrap();
        assert_eq!(object.get("n"), Some("1.50"));
        assert_eq!(object.get("o"), Some("{ \"x\" : 1 }"));
        assert_eq!(object.text("t").as_deref(), Some("é\n"));
        assert_eq!(object.text("n"), None);
        assert!(!object.has("N"));
    }

    /// However deep it is nested, what nobody asks for takes no stack.
    #[test]
    fn nesting_is_no_danger() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(&deep).is_some());
    }

    /// RFC 7515, section 2: base64url "with all trailing '=' characters omitted".
    #[test]
    fn base64url_has_one_spelling() {
        assert_eq!(base64url("_-8").as_deref(), Some(&[0xff, 0xef][..]));
        for bad in ["_-8=", "_-9", "/+8", "_-8\n", " _-8", "_", "_-8="] {
            assert_eq!(base64url(bad), None, "{bad}");
        }
    }
}
