//! The path of a request, with places for a user and a channel: `/sub/{channel}`.

use std::str::FromStr;

use crate::error::{Failure, Result};
use crate::target::push_encoded;

/// A path, its query included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    User,
    Channel,
}

impl FromStr for Path {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            let right = "expected one as /sub/{channel} or /test/{user}";
            Failure::Message(format!("--path {text}: {right}"))
        };
        if !text.starts_with('/') || text.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(bad());
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, behind)) = rest.split_once('{') {
            let (name, after) = behind.split_once('}').ok_or_else(bad)?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(match name {
                "user" => Part::User,
                "channel" => Part::Channel,
                _ => return Err(bad()),
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }
}

impl Path {
    /// Whether it has a place for a user: a publisher has none to put there.
    #[must_use]
    pub fn has_user(&self) -> bool {
        self.0.contains(&Part::User)
    }

    /// Appends the path of this user and channel, percent-encoded.
    pub fn push(&self, user: &str, channel: &str, out: &mut Vec<u8>) {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::User => push_encoded(user, out),
                Part::Channel => push_encoded(channel, out),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn places_are_filled_and_encoded() {
        for (path, expected) in [
            ("/sub/{channel}", "/sub/g%201"),
            ("/a{user}b?c={channel}&u={user}", "/aann%2Fb?c=g%201&u=ann%2F"),
            ("/", "/"),
        ] {
            let mut out = Vec::new();
            path.parse::<Path>().unwrap().push("ann/", "g 1", &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_path_says_what_would_be() {
        for bad in ["", "sub/{channel}", "/{", "/{name}", "/a b", "/a\r\nX: y", "/é", "/{user"] {
            let message = bad.parse::<Path>().unwrap_err().to_string();
            assert!(message.contains("expected one as /sub/{channel}"), "{message}");
        }
    }
}
