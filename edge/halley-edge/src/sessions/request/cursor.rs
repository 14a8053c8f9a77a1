//! Cursors that clients come back with (`protocol/http.md` 10).

use halley_link::is_cursor;
use halley_wire::http1::head::Request;
use halley_wire::{HttpError, target};

/// What is no cursor travels as this, so that the brain can say so to the client (6.2).
const NO_CURSOR: &[u8] = b"-";

const LAST_EVENT_ID_TWICE: HttpError = HttpError::new(
    400,
    "duplicate_parameter",
    "lastEventId is given twice, in whichever spelling; give it once.",
);
const CURSOR_UNKNOWN: HttpError = HttpError::new(
    400,
    "unknown_cursor",
    "A parameter seems to say where to go on, and isn't known here: say cursor=<cursor>, or the \
     header Last-Event-ID.",
);

/// What a client goes on behind, from its address; empty for none. What clients of others add when
/// they come back (`lastEventId`) goes before what the address was made with.
///
/// # Errors
/// 400 as for any parameter, and for one that seems to be a cursor and is none here.
pub fn of_target(req: &Request<'_>) -> Result<Vec<u8>, HttpError> {
    let mut last = None;
    for pair in target::query_pairs(req.target) {
        // What can't be read is no name of these.
        let Ok((name, value)) = pair else { continue };
        match meaning(&name) {
            Meaning::LastEventId if last.is_some() => return Err(LAST_EVENT_ID_TWICE),
            Meaning::LastEventId => last = Some(target::decode(value, target::Plus::Space)?),
            Meaning::MeansCursor => return Err(CURSOR_UNKNOWN),
            Meaning::Other => {}
        }
    }
    let cursor = match last.filter(|last| !last.is_empty()) {
        Some(last) => last,
        None => target::query_value(req.target, "cursor")?.unwrap_or_default(),
    };
    Ok(checked(cursor.as_bytes()))
}

/// Likewise, but the header goes first: an EventSource comes back to the address that it was made
/// with, and says in the header where it really was.
///
/// # Errors
/// 400 as for any parameter.
pub fn of_request(req: &Request<'_>) -> Result<Vec<u8>, HttpError> {
    let cursor = of_target(req)?;
    let header = req.header("last-event-id").unwrap_or_default();
    Ok(if header.is_empty() { cursor } else { checked(header) })
}

fn checked(cursor: &[u8]) -> Vec<u8> {
    if is_cursor(cursor) { cursor.to_vec() } else { NO_CURSOR.to_vec() }
}

/// What a parameter says of a cursor.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// As event-source-polyfill, Mercure and others spell it.
    LastEventId,
    /// Somebody who writes this expects to go on somewhere, and would lose events without a word.
    MeansCursor,
    Other,
}

/// In lower case, without `-` and `_`.
const MEAN_CURSOR: [&str; 9] =
    ["cursor", "lastid", "lastcursor", "eventid", "since", "sinceid", "after", "resume", "offset"];

fn meaning(name: &str) -> Meaning {
    if name == "cursor" {
        return Meaning::Other;
    }
    let plain: String = name
        .chars()
        .filter(|letter| !matches!(letter, '-' | '_'))
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    match plain.as_str() {
        "lasteventid" => Meaning::LastEventId,
        plain if MEAN_CURSOR.contains(&plain) => Meaning::MeansCursor,
        _ => Meaning::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// http.md 10.1.
    #[test]
    fn parameters_that_seem_to_be_a_cursor() {
        use Meaning::{LastEventId, MeansCursor, Other};
        for (meant, names) in [
            (
                LastEventId,
                ["lastEventId", "lastEventID", "last_event_id", "Last-Event-ID", "LASTEVENTID"]
                    .as_slice(),
            ),
            (MeansCursor, &["Cursor", "since", "since_id", "last-id", "after", "offset", "resume"]),
            (Other, &["cursor", "last", "user", "subjects", "token", "t", "_", "", "lastevent"]),
        ] {
            for name in names {
                assert_eq!(meaning(name), meant, "{name}");
            }
        }
    }
}
