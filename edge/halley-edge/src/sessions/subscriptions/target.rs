//! The subjects that a request names (`protocol/http.md` 21.1, 22).

use std::borrow::Cow;
use std::collections::HashSet;

use halley_wire::HttpError;
use halley_wire::target::{self, Plus};

use crate::sessions::base::io::Io;
use crate::sessions::subscriptions::change::{SUBJECT_BYTES_MAX, presence_of};
use crate::sessions::subscriptions::packed::{is_presence, put, subjects};

const BAD_SUBJECTS: HttpError = HttpError::new(
    400,
    "bad_subject",
    "subjects= has subjects of 1 to 255 bytes with commas between; subject= has one, and may be \
     there several times.",
);
const UNKNOWN: HttpError = HttpError::new(
    503,
    "subscriptions_unknown",
    "The brain behind this edge is of a build before subscriptions: open the stream without.",
)
.after(5);

const BAD_PRESENCE: HttpError = HttpError::new(
    400,
    "bad_presence",
    "presence= has subjects of 1 to 254 bytes with commas between; a stream or WebSocket takes it, \
     a poll doesn't but with timeout=0: it asks /v1/me/subjects/S/presence.",
);
const NO_PRESENCE: HttpError = HttpError::new(
    400,
    "presence_off",
    "No presence is told here: set presence.subjects to the subjects of which it shall be.",
);

/// The subjects that a request names, packed (21.1); empty for none.
///
/// # Errors
/// 400 for what is no subject, and as for any parameter.
pub fn of_target(target: &str) -> Result<Vec<u8>, HttpError> {
    let mut named = Named::default();
    if let Some(several) = target::query_value(target, "subjects")? {
        several.split(',').try_for_each(|subject| named.put(subject))?;
    }
    let (_, query) = target::split(target);
    for pair in query.unwrap_or_default().split('&') {
        if let Some(value) = pair.strip_prefix("subject=") {
            let subject: Cow<'_, str> = target::decode(value, Plus::Space)?;
            named.put(&subject)?;
        }
    }
    if let Some(several) = target::query_value(target, "presence")? {
        several
            .split(',')
            .try_for_each(|subject| named.put(&presence_of(subject).ok_or(BAD_PRESENCE)?))?;
    }
    Ok(named.packed)
}

/// Subjects of a request, each once. A form names thousands: a look at all for each would take the
/// worker's time.
#[derive(Default)]
struct Named {
    packed: Vec<u8>,
    known: HashSet<Box<str>>,
}

impl Named {
    fn put(&mut self, subject: &str) -> Result<(), HttpError> {
        if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX {
            return Err(BAD_SUBJECTS);
        }
        if self.known.insert(subject.into()) {
            put(&mut self.packed, subject.as_bytes());
        }
        Ok(())
    }
}

/// As [`of_target`] for a poll, which is told of no presence: one that waits for nothing may ask
/// whether a stream would be (22.5).
///
/// # Errors
/// As there, and 400 where a poll that waits wants presence.
pub fn of_poll(target: &str, waits: bool) -> Result<Vec<u8>, HttpError> {
    let packed = of_target(target)?;
    if waits && subjects(&packed).any(is_presence) { Err(BAD_PRESENCE) } else { Ok(packed) }
}

/// Does the brain know of subscriptions?
///
/// # Errors
/// 503 where a request needs that and it isn't so.
pub fn may_have(io: &Io, packed: &[u8]) -> Result<(), HttpError> {
    let settings = &io.conns.settings;
    if packed.is_empty() {
        Ok(())
    } else if !settings.subscriptions {
        Err(UNKNOWN)
    } else if !settings.presence && subjects(packed).any(is_presence) {
        Err(NO_PRESENCE)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::subscriptions::packed::packed;

    /// http.md 21.1
    #[test]
    fn subjects_of_a_request() {
        for (target, all) in [
            ("/v1/stream?user=a", &[][..]),
            ("/v1/stream?subjects=room/7,live/score", &["room/7", "live/score"]),
            ("/v1/stream?subjects=room%2F7%2Ca+b&x=1", &["room/7", "a b"]),
            ("/v1/stream?presence=room/7,*&subject=a", &["a", "\u{1}room/7", "\u{1}*"]),
            ("/v1/stream?subject=a%2Cb&subject=c&subjects=c,d", &["c", "d", "a,b"]),
        ] {
            assert_eq!(of_target(target), Ok(packed(all)), "{target}");
        }
        for target in ["/?subjects=", "/?subjects=a,,b", "/?subject=", "/?subjects=a&subjects=b"] {
            assert!(of_target(target).is_err(), "{target}");
        }
        for target in ["/?presence=", "/?presence=a,,b", "/?presence=a&presence=b"] {
            assert!(of_target(target).is_err(), "{target}");
        }
        assert!(of_target(&format!("/?subject={}", "x".repeat(256))).is_err());
        assert!(of_target(&format!("/?presence={}", "x".repeat(255))).is_err());
        assert_eq!(of_poll("/?subjects=a", true), Ok(packed(&["a"])));
        assert_eq!(of_poll("/?subjects=a&presence=b", true), Err(BAD_PRESENCE));
        assert_eq!(of_poll("/?subjects=a&presence=b", false), Ok(packed(&["a", "\u{1}b"])));
    }
}
