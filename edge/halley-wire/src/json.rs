//! The little JSON that the edge writes itself: strings, and a member put first into an object.

/// Appends `text` to `out` as a JSON string, quotes included (RFC 8259 section 7).
pub fn escape(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 0xf)]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// The pieces of the object `json` with `"cursor":"<cursor>"` as its first member; their
/// concatenation is the text. An empty cursor, or a `json` that is no object, leaves it as it is.
///
/// `cursor` needs no escaping: link.md 7.2 allows only `[A-Za-z0-9_-]` in it.
pub(crate) fn with_cursor<'a>(cursor: &'a [u8], json: &'a [u8]) -> [&'a [u8]; 4] {
    match json.split_first() {
        Some((b'{', rest)) if !cursor.is_empty() => {
            let separator: &[u8] = if rest == b"}" { b"\"" } else { b"\"," };
            [b"{\"cursor\":\"", cursor, separator, rest]
        }
        _ => [json, b"", b"", b""],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_quotes_backslashes_and_control_characters() {
        let mut out = Vec::new();
        escape(&mut out, "a\"b\\c\n\r\t\u{1}\u{1f}é");
        assert_eq!(out, "\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u001fé\"".as_bytes());
    }

    #[test]
    fn cursor_becomes_the_first_member() {
        let spliced = |cursor: &[u8], json: &[u8]| with_cursor(cursor, json).concat();
        assert_eq!(spliced(b"c1", b"{\"id\":1}"), b"{\"cursor\":\"c1\",\"id\":1}");
        assert_eq!(spliced(b"", b"{\"id\":1}"), b"{\"id\":1}");
        assert_eq!(spliced(b"c1", b"{}"), b"{\"cursor\":\"c1\"}");
        assert_eq!(spliced(b"c1", b"[]"), b"[]");
        assert_eq!(spliced(b"c1", b""), b"");
    }
}
