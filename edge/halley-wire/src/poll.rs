//! The answer to a long-poll (`protocol/http.md` 11): one JSON object, with a length.

use crate::Gap;
use crate::http1::response::{Head, ResponseOptions};

/// What a poll is answered with.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a, E> {
    /// What may be missing, if anything.
    pub gap: Option<Gap<'a>>,
    /// The events, each one line of JSON.
    pub events: &'a [E],
    /// What the next poll goes on behind (link.md 7.2).
    pub cursor: &'a [u8],
    /// What was missed isn't all here: the next poll brings more of it (http.md 11.5).
    pub more: bool,
    /// Why the next one can't be as this one was, if it can't (http.md 14.6): one word.
    pub end: Option<&'a str>,
}

/// Appends the whole answer; for HEAD its head alone, without a length, as nobody waits for the
/// events.
pub fn answer<E: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    answer: &Answer<'_, E>,
    options: &ResponseOptions<'_>,
) {
    let mut head = Head::begin(out, 200, options);
    head.header("Content-Type", b"application/json");
    head.header("Cache-Control", b"no-store");
    if options.head_only {
        return head.bodyless();
    }
    let mut body = Vec::new();
    write(&mut body, answer);
    head.length(body.len() as u64);
    out.extend_from_slice(&body);
}

fn write<E: AsRef<[u8]>>(out: &mut Vec<u8>, answer: &Answer<'_, E>) {
    out.push(b'{');
    if let Some(gap) = answer.gap {
        out.extend_from_slice(b"\"gap\":");
        gap.write(out);
        out.push(b',');
    }
    out.extend_from_slice(b"\"events\":[");
    for (place, event) in answer.events.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(event.as_ref());
    }
    out.extend_from_slice(b"],\"cursor\":");
    if answer.cursor.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        out.push(b'"');
        out.extend_from_slice(answer.cursor);
        out.push(b'"');
    }
    if answer.more {
        out.extend_from_slice(b",\"more\":true");
    }
    if let Some(reason) = answer.end {
        out.extend_from_slice(b",\"end\":{\"reason\":\"");
        out.extend_from_slice(reason.as_bytes());
        out.extend_from_slice(b"\"}");
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(gap: Option<Gap<'_>>, events: &[&str], cursor: &[u8]) -> String {
        let mut out = Vec::new();
        write(&mut out, &Answer { gap, events, cursor, more: false, end: None });
        String::from_utf8_lossy(&out).into_owned()
    }

    /// http.md 11.1.
    #[test]
    fn the_body_is_one_object() {
        let gap = Gap { reason: "too_old", from: 1, to: 2 };
        assert_eq!(body(None, &[], b"c"), r#"{"events":[],"cursor":"c"}"#);
        assert_eq!(
            body(None, &[r#"{"id":1}"#, r#"{"id":2}"#], b""),
            r#"{"events":[{"id":1},{"id":2}],"cursor":null}"#
        );
        assert_eq!(
            body(Some(gap), &["1"], b"c"),
            r#"{"gap":{"from":1,"to":2,"reason":"too_old"},"events":[1],"cursor":"c"}"#
        );
        let mut out = Vec::new();
        let events: &[&str] = &[];
        let end = Some("token_expired");
        let answer = Answer { gap: None, events, cursor: b"c", more: true, end };
        write(&mut out, &answer);
        let expected = r#"{"events":[],"cursor":"c","more":true,"end":{"reason":"token_expired"}}"#;
        assert_eq!(out, expected.as_bytes(), "http.md 11.5, 14.6");
    }
}
