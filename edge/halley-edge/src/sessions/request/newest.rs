//! `last=`: a session that begins with the newest events about what it is subscribed to
//! (`protocol/http.md` 25). To the brain it is one that comes with a cursor of another kind, so it
//! is held and replayed as any other (link.md 14.7).

use halley_wire::HttpError;
use halley_wire::target;

use crate::sessions::base::io::Io;
use crate::sessions::ws::wish::{BAD_LAST, last_of};

const UNKNOWN: HttpError = HttpError::new(
    503,
    "last_unknown",
    "The brain behind this edge is of a build before last=: open the stream without.",
)
.after(5);

/// What a session goes on behind. A cursor says more than `last=`: who comes back to the same
/// address has had the newest ones.
///
/// # Errors
/// 400 for what is no such number, and as for any parameter; 503 if the brain doesn't know it.
pub fn or_newest(
    io: &Io,
    target: &str,
    cursor: Vec<u8>,
    subjects: &[u8],
) -> Result<Vec<u8>, HttpError> {
    let Some(text) = target::query_value(target, "last")? else { return Ok(cursor) };
    let max = io.conns.settings.last_events_max;
    let newest = last_of(&text).filter(|_| !subjects.is_empty()).ok_or(BAD_LAST)?;
    if max == 0 {
        return Err(UNKNOWN);
    }
    if newest > max {
        return Err(BAD_LAST);
    }
    Ok(if cursor.is_empty() { format!("last-{newest}").into_bytes() } else { cursor })
}
