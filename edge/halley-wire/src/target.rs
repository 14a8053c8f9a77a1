//! Request targets: path segments and query parameters, percent-decoded (RFC 3986 section 2.1).
//!
//! Decoded text is UTF-8 without NUL, or the request is refused: two readers of one target must
//! not come to two different ids.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use crate::HttpError;

/// The path and, after the first `?`, the query of a target; both still encoded.
pub fn split(target: &str) -> (&str, Option<&str>) {
    match target.split_once('?') {
        Some(("", query)) => ("/", Some(query)),
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    }
}

/// The target with its path: an absolute one may have a query alone, whose path is `/` (RFC 9110
/// section 4.2.3).
pub fn with_path(target: &str) -> Cow<'_, str> {
    if target.starts_with('?') { Cow::Owned(format!("/{target}")) } else { Cow::Borrowed(target) }
}

/// The decoded segments of a path: `/test/a%20b` has `test` and `a b`; `/` has one, empty.
///
/// A segment may decode to something with a `/` in it, which separates nothing.
pub fn segments(path: &str) -> impl Iterator<Item = Result<Cow<'_, str>, HttpError>> {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split('/').map(|segment| decode(segment, Plus::Literal))
}

/// The decoded value of a query parameter, if the target has it. `name=` and `name` alone have the
/// empty value.
///
/// # Errors
/// 400 for bad escapes in this parameter, and if it is there twice: which one counts would depend
/// on the reader.
pub fn query_value<'t>(target: &'t str, name: &str) -> Result<Option<Cow<'t, str>>, HttpError> {
    let (_, query) = split(target);
    let mut found = None;
    for pair in query.unwrap_or_default().split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !names(key, name) {
            continue;
        }
        if found.is_some() {
            return Err(HttpError::new(
                400,
                "duplicate_parameter",
                "A query parameter is given twice; give it once.",
            ));
        }
        found = Some(decode(value, Plus::Space)?);
    }
    Ok(found)
}

/// The decoded names of the query's parameters with their values, which are still encoded.
///
/// # Errors
/// Of a name: 400 for bad escapes in it.
pub fn query_pairs(target: &str) -> impl Iterator<Item = Result<(Cow<'_, str>, &str), HttpError>> {
    let (_, query) = split(target);
    query.unwrap_or_default().split('&').map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        decode(key, Plus::Space).map(|key| (key, value))
    })
}

/// The target without the query parameter of this name, wherever it is and however its name is
/// encoded; everything else stays as it was.
pub fn without<'t>(target: &'t str, name: &str) -> Cow<'t, str> {
    let (path, query) = split(target);
    let is_named = |pair: &&str| names(pair.split('=').next().unwrap_or_default(), name);
    let Some(query) = query.filter(|query| query.split('&').any(|pair| is_named(&pair))) else {
        return with_path(target);
    };
    let left: Vec<&str> = query.split('&').filter(|pair| !is_named(pair)).collect();
    if left.is_empty() {
        return Cow::Borrowed(path);
    }
    Cow::Owned(format!("{path}?{}", left.join("&")))
}

/// Whether the encoded `key` is `name`. Keys of other people's parameters may be anything, so one
/// that can't be decoded is only not this name.
fn names(key: &str, name: &str) -> bool {
    key == name || decode(key, Plus::Space).is_ok_and(|key| key == name)
}

/// What `+` stands for: a space in queries, as HTML forms encode it, itself in paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plus {
    /// `+` is `+`.
    Literal,
    /// `+` is a space.
    Space,
}

/// Decodes percent escapes; borrows where there are none.
///
/// # Errors
/// 400 for a `%` without two hexadecimal digits, for what decodes to no UTF-8, and for NUL.
pub fn decode(text: &str, plus: Plus) -> Result<Cow<'_, str>, HttpError> {
    let bytes = text.as_bytes();
    let first = match plus {
        Plus::Literal => memchr(b'%', bytes),
        Plus::Space => memchr2(b'%', b'+', bytes),
    };
    let Some(first) = first else {
        return if memchr(0, bytes).is_some() { Err(BAD_TEXT) } else { Ok(Cow::Borrowed(text)) };
    };
    let mut decoded = Vec::with_capacity(bytes.len());
    let (plain, mut rest) = bytes.split_at(first);
    decoded.extend_from_slice(plain);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let (escape, after) = rest.split_at_checked(2).ok_or(BAD_ESCAPE)?;
                decoded.push(hex_pair(escape).ok_or(BAD_ESCAPE)?);
                rest = after;
            }
            b'+' if plus == Plus::Space => decoded.push(b' '),
            _ => decoded.push(byte),
        }
    }
    if memchr(0, &decoded).is_some() {
        return Err(BAD_TEXT);
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| BAD_TEXT)
}

fn hex_pair(pair: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| (*byte as char).to_digit(16);
    match pair {
        [high, low] => Some((digit(high)? * 16 + digit(low)?) as u8),
        _ => None,
    }
}

const BAD_ESCAPE: HttpError = HttpError::new(
    400,
    "bad_escape",
    "A '%' in the path or the query is not followed by two hexadecimal digits; write '%' as %25.",
);
const BAD_TEXT: HttpError =
    HttpError::new(400, "bad_text", "The path or the query must decode to UTF-8 without NUL.");

#[cfg(test)]
mod tests {
    use super::*;

    fn value(target: &str, name: &str) -> Result<Option<String>, &'static str> {
        let found = query_value(target, name).map_err(|error| error.code)?;
        Ok(found.map(Cow::into_owned))
    }

    #[test]
    fn split_is_at_the_first_question_mark() {
        assert_eq!(split("/a?b?c"), ("/a", Some("b?c")));
        assert_eq!(split("/a"), ("/a", None));
        assert_eq!(split("/a?"), ("/a", Some("")));
    }

    #[test]
    fn plus_is_a_space_in_queries_only() {
        assert_eq!(value("/s?user=a+b%2Bc", "user"), Ok(Some("a b+c".into())));
        assert_eq!(decode("a+b", Plus::Literal).as_deref(), Ok("a+b"));
    }

    #[test]
    fn parameters_are_found_by_their_decoded_name_once() {
        assert_eq!(value("/s?x=1&user=ann&y", "user"), Ok(Some("ann".into())));
        assert_eq!(value("/s?us%65r=ann", "user"), Ok(Some("ann".into())));
        assert_eq!(value("/s?user", "user"), Ok(Some(String::new())));
        assert_eq!(value("/s?user=&x=%", "user"), Ok(Some(String::new())));
        assert_eq!(value("/s?%zz=1&username=1", "user"), Ok(None));
        assert_eq!(value("/s", "user"), Ok(None));
        assert_eq!(value("/s?user=a&user=a", "user"), Err("duplicate_parameter"));
    }

    /// link.md 12.9: a token doesn't travel on, however it was written.
    #[test]
    fn a_parameter_is_taken_out_wherever_it_is() {
        for (target, left) in [
            ("/s?token=t", "/s"),
            ("/s?a=1&token=t&b=2", "/s?a=1&b=2"),
            ("/s?token=t&token=u&a", "/s?a"),
            ("/s?%74oken=t&x=token", "/s?x=token"),
            ("/s?token", "/s"),
            ("/s?tokens=t&a=%zz", "/s?tokens=t&a=%zz"),
            ("/token=t", "/token=t"),
        ] {
            assert_eq!(without(target, "token"), left, "{target}");
        }
    }

    #[test]
    fn escapes_that_are_no_text_are_refused() {
        let codes = [
            ("%", "bad_escape"),
            ("%1", "bad_escape"),
            ("%1g", "bad_escape"),
            ("%+1", "bad_escape"),
            ("%00", "bad_text"),
            ("\0", "bad_text"),
            ("%ff", "bad_text"),
            ("%c0%80", "bad_text"),
            ("%ed%a0%80", "bad_text"),
        ];
        for (text, code) in codes {
            let error = decode(text, Plus::Space).map_err(|error| error.code);
            assert_eq!(error, Err(code), "{text:?}");
        }
    }

    #[test]
    fn segments_are_decoded_one_by_one() {
        let all = |path| segments(path).collect::<Result<Vec<_>, _>>();
        assert_eq!(all("/test/%C3%A9%2F%20"), Ok(vec!["test".into(), "é/ ".into()]));
        assert_eq!(all("/"), Ok(vec!["".into()]));
        assert_eq!(all("/a//"), Ok(vec!["a".into(), "".into(), "".into()]));
        assert!(all("/a/%").is_err());
    }
}
