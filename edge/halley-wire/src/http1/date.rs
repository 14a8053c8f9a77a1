//! The `Date` header (RFC 9110 section 5.6.7), from seconds that the caller's clock gives.

/// A moment as HTTP writes it, such as `Sun, 06 Nov 1994 08:49:37 GMT`. Made once a second and
/// copied into every response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpDate([u8; 29]);

impl HttpDate {
    /// The moment `unix_s` seconds after 1970-01-01 UTC; past the year 9999 it stays at its end.
    pub fn from_unix_s(unix_s: u64) -> HttpDate {
        const UNIX_S_MAX: u64 = 253_402_300_799;
        let unix_s = unix_s.min(UNIX_S_MAX);
        let (days, seconds) = (unix_s / 86_400, unix_s % 86_400);
        let (year, month, day) = civil(days);
        let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
        // 1970-01-01 was a Thursday.
        text[..3].copy_from_slice(name(b"ThuFriSatSunMonTueWed", days % 7));
        two_digits(&mut text[5..7], day);
        text[8..11].copy_from_slice(name(b"JanFebMarAprMayJunJulAugSepOctNovDec", month));
        two_digits(&mut text[12..14], year / 100);
        two_digits(&mut text[14..16], year % 100);
        two_digits(&mut text[17..19], seconds / 3_600);
        two_digits(&mut text[20..22], seconds / 60 % 60);
        two_digits(&mut text[23..25], seconds % 60);
        HttpDate(text)
    }

    /// The 29 bytes of the header's value.
    pub fn as_bytes(&self) -> &[u8; 29] {
        &self.0
    }
}

/// Year, month from 0, day from 1 of a day counted from 1970-01-01, by the algorithm of Howard
/// Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = year_of_era + era * 400 + u64::from(month < 2);
    (year, month, day)
}

fn name(names: &[u8], index: u64) -> &[u8] {
    names.chunks_exact(3).nth(index as usize).unwrap_or(b"???")
}

fn two_digits(out: &mut [u8], value: u64) {
    out.copy_from_slice(&[b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        let cases = [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (1_740_787_200, "Sat, 01 Mar 2025 00:00:00 GMT"),
            (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ];
        for (unix_s, text) in cases {
            let date = HttpDate::from_unix_s(unix_s);
            assert_eq!(date.as_bytes(), text.as_bytes(), "{unix_s}");
        }
    }
}
