//! A stream's message where events may be missing (`protocol/http.md` 10.3).

use crate::http1::response::write_decimal;

/// Events between two times that a client may have missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap<'g> {
    /// Why, in the words of http.md 10.3; stands in the text as it is.
    pub reason: &'g str,
    /// Milliseconds since 1970; 0 when nobody knows.
    pub from: u64,
    /// Likewise.
    pub to: u64,
}

impl Gap<'_> {
    /// Appends `{"from":…,"to":…,"reason":…}`.
    pub fn write(&self, out: &mut Vec<u8>) {
        for (name, time) in [("{\"from\":", self.from), (",\"to\":", self.to)] {
            out.extend_from_slice(name.as_bytes());
            match time {
                0 => out.extend_from_slice(b"null"),
                time => write_decimal(out, time),
            }
        }
        out.extend_from_slice(b",\"reason\":\"");
        out.extend_from_slice(self.reason.as_bytes());
        out.extend_from_slice(b"\"}");
    }

    /// The event's object, `{"gap":{…}}`.
    pub fn object(&self) -> Vec<u8> {
        let mut out = b"{\"gap\":".to_vec();
        self.write(&mut out);
        out.push(b'}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_nobody_knows_are_null() {
        let gap = Gap { reason: "too_old", from: 0, to: 1_700_000_000_000 };
        let expected = br#"{"gap":{"from":null,"to":1700000000000,"reason":"too_old"}}"#;
        assert_eq!(gap.object(), expected);
    }
}
