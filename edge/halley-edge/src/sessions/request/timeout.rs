//! `timeout` of a poll (`protocol/http.md` 11.2).

use halley_wire::{HttpError, target};

/// Without `timeout`.
const TIMEOUT_MS: u64 = 25_000;

const BAD_TIMEOUT: HttpError = HttpError::new(
    400,
    "bad_timeout",
    "timeout is in seconds, a decimal number such as 2.5: for how long the answer may wait.",
);

/// How long the answer to this request may wait, in milliseconds.
///
/// # Errors
/// 400 for what is no number of seconds, and as for any parameter.
pub fn of_target(target: &str) -> Result<u64, HttpError> {
    match target::query_value(target, "timeout")? {
        Some(text) => milliseconds(&text).ok_or(BAD_TIMEOUT),
        None => Ok(TIMEOUT_MS),
    }
}

/// A decimal number of seconds, as long as it likes (11.2).
fn milliseconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return None;
    }
    let whole = whole.parse().unwrap_or(u64::MAX / 1_000 - 1);
    let thousandths = part.bytes().chain(*b"000").take(3);
    let part = thousandths.fold(0, |ms, digit| 10 * ms + u64::from(digit - b'0'));
    Some(whole.min(u64::MAX / 1_000 - 1) * 1_000 + part)
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    /// http.md 11.2.
    #[test]
    fn a_timeout_is_a_decimal_number_of_seconds() {
        for (text, ms) in [
            ("0", 0),
            ("2.5", 2_500),
            ("25", 25_000),
            ("0.0019", 1),
            ("007.25", 7_250),
            ("1.0000000000000000000000000000000001", 1_000),
        ] {
            assert_eq!(milliseconds(text), Some(ms), "{text}");
        }
        let long = "9".repeat(60);
        assert!(milliseconds(&long).is_some_and(|ms| ms > u64::MAX / 2));
        for text in ["", ".", "1.", ".5", "-1", "+1", "1e3", "inf", "1,5", " 1", "1.2.3", "\u{661}"]
        {
            assert_eq!(milliseconds(text), None, "{text}");
        }
    }
}
