//! ENDED (`protocol/link.md` 18): subscriptions that the brain has ended, as rights have changed or
//! a server wanted it. They are forgotten, so that they aren't sent to the next brain, and the
//! client gets a message.

use halley_wire::json_escape;

use crate::sessions::subscriptions::change::Change;
use crate::sessions::subscriptions::packed::{STATE, is_presence};

/// The reason of an ENDED that answers RIGHTS.
pub const RIGHT_MISSING: &[u8] = b"right_missing";
/// The session's state, as ENDED names it.
const OWN_STATE: &[u8] = &[STATE];

/// Would this change bring one of these back?
pub fn brings(change: &Change, ended: &[&[u8]]) -> bool {
    match change {
        Change::Add(subject) => ended.contains(&subject.as_bytes()),
        Change::State(_) => ended.contains(&OWN_STATE),
        Change::Remove(_) => false,
    }
}

/// What a client is told (http.md 21.9).
pub fn json(reason: &str, ended: &[&[u8]]) -> Vec<u8> {
    let mut out = b"{\"ended\":{\"reason\":".to_vec();
    json_escape(&mut out, reason);
    let subjects = ended.iter().filter(|subject| **subject != OWN_STATE && !is_presence(subject));
    put_list(&mut out, "subjects", subjects.copied());
    let presence = ended.iter().filter(|subject| is_presence(subject));
    put_list(&mut out, "presence", presence.map(|subject| &subject[1..]));
    if ended.contains(&OWN_STATE) {
        out.extend_from_slice(b",\"state\":true");
    }
    out.extend_from_slice(b"}}");
    out
}

fn put_list<'a>(out: &mut Vec<u8>, name: &str, subjects: impl Iterator<Item = &'a [u8]>) {
    let mut before = format!(",\"{name}\":[");
    for subject in subjects {
        out.extend_from_slice(before.as_bytes());
        json_escape(out, &String::from_utf8_lossy(subject));
        before = ",".to_owned();
    }
    if before == "," {
        out.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// http.md 21.9
    #[test]
    fn what_has_ended_is_named() {
        for (ended, text) in [
            (&[&b"a\"b"[..], b"c"][..], r#""subjects":["a\"b","c"]"#),
            (&[b"\x01*", b"\x02"], r#""presence":["*"],"state":true"#),
            (&[b"\x02", b"\x01a", b"a"], r#""subjects":["a"],"presence":["a"],"state":true"#),
        ] {
            let all = format!("{{\"ended\":{{\"reason\":\"right_missing\",{text}}}}}");
            assert_eq!(String::from_utf8_lossy(&json("right_missing", ended)), all);
        }
    }
}
