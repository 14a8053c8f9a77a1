//! The users that a session with `presence=*` may see (`protocol/http.md` 22.6): its *view*, the
//! patterns of the list `presence` in its rights.
//!
//! Rights are mostly not kept, and a brain that begins must not reveal more than the one before it
//! did. So a view stands among the session's subscriptions, in pieces, each after [`VIEW`] and its
//! number (link.md 19). Only sessions with `*` have one, and those that may see all users have
//! none.

use halley_link::{Id, Item};
use serde::Deserialize;

use crate::sessions::users::identity::ALL_RIGHTS;

/// What a session is subscribed to that is told of all whom its user follows.
pub const EVERYBODY: &[u8] = b"\x01*";
/// Before the pieces of a view; no id begins with it.
const VIEW: u8 = 4;
/// Of a piece, behind [`VIEW`] and its number.
const PIECE_BYTES: usize = 253;
/// No id is longer.
const PATTERN_BYTES_MAX: usize = 255;

#[derive(Deserialize)]
struct Rights {
    #[serde(default)]
    presence: Vec<serde_json::Value>,
}

/// Is this a piece of a view?
pub fn is_piece(subject: &[u8]) -> bool {
    subject.first() == Some(&VIEW)
}

/// The pieces of the view that these rights give; none for everybody. What isn't understood gives
/// nothing, as with the brain.
pub fn pieces(rights: &str) -> Vec<Vec<u8>> {
    if rights == ALL_RIGHTS {
        return Vec::new();
    }
    let list = serde_json::from_str(rights).map_or_else(|_| Vec::new(), |r: Rights| r.presence);
    let patterns = || list.iter().filter_map(serde_json::Value::as_str);
    if patterns().any(|pattern| pattern == "*") {
        return Vec::new();
    }
    let mut whole = Vec::new();
    let fitting = patterns().filter(|pattern| pattern.len() <= PATTERN_BYTES_MAX);
    fitting.for_each(|pattern| Id(pattern.as_bytes()).write(&mut whole));
    // Nobody is one piece: without any it would be everybody.
    let parts: Vec<&[u8]> = match whole.as_slice() {
        b"" => vec![b""],
        whole => whole.chunks(PIECE_BYTES).collect(),
    };
    // A number has one byte. A view that is longer is cut, and the brain refuses it whole.
    (0..=u8::MAX).zip(parts).map(|(number, part)| [&[VIEW, number], part].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// link.md 19.1
    #[test]
    fn views_of_rights() {
        for (rights, all) in [
            (ALL_RIGHTS, &[][..]),
            (r#"{"presence":["a","*"]}"#, &[]),
            (r#"{"presence":["team/*","a"]}"#, &[&b"\x04\x00\x06team/*\x01a"[..]]),
            (r#"{"presence":["**",7]}"#, &[b"\x04\x00\x02**"]),
            (r#"{"presence":[]}"#, &[b"\x04\x00"]),
            (r#"{"presence":"*"}"#, &[b"\x04\x00"]),
            (r#"{"presence":["*"],"presence":["*"]}"#, &[b"\x04\x00"]),
            ("{}", &[b"\x04\x00"]),
            ("", &[b"\x04\x00"]),
        ] {
            assert_eq!(pieces(rights), all, "{rights}");
        }
    }

    /// link.md 19.1
    #[test]
    fn long_views_are_cut() {
        let (short, long) = ("x".repeat(255), "y".repeat(256));
        let pieces = pieces(&format!(r#"{{"presence":["{short}","{long}","z"]}}"#));
        let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece[2..].to_vec()).collect();
        assert_eq!(whole, [&[255], short.as_bytes(), b"\x01z"].concat());
        assert_eq!(pieces.iter().map(|piece| piece[1]).collect::<Vec<_>>(), [0, 1]);
        assert!(pieces.iter().all(|piece| is_piece(piece) && piece.len() <= 255));
    }

    /// link.md 19.1: of a token that is larger than the default allows.
    #[test]
    fn no_more_pieces_than_have_numbers() {
        let most: Vec<String> = (0..300).map(|n| format!("{n:03}{}", "x".repeat(252))).collect();
        let rights = serde_json::json!({ "presence": most }).to_string();
        assert_eq!(pieces(&rights).len(), 256);
    }
}
