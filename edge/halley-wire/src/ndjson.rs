//! Newline-delimited JSON (`application/x-ndjson`), as a response body: one event a line.
//!
//! An empty line says nothing and is skipped by readers; it stands where a cursor would, if none is
//! known.

use crate::http1::body::{self, Framing};
use crate::http1::response::ResponseOptions;
use crate::json;
use crate::sse::stream_head;

/// Appends the head of a stream. Its body is framed by [`Framing::of`] the request's version.
pub fn head(out: &mut Vec<u8>, options: &ResponseOptions<'_>) {
    stream_head(out, "application/x-ndjson", options);
}

/// Appends what a new session reads first, at which proxies and clients see that the stream has
/// begun, and what keeps the way between open later: a line with the cursor alone, an empty one if
/// there is none.
pub fn heartbeat(out: &mut Vec<u8>, framing: Framing, cursor: &[u8]) {
    if cursor.is_empty() {
        body::write(out, framing, &[b"\n"]);
    } else {
        encode_event(out, framing, cursor, b"{}");
    }
}

/// Appends one event as a line, `cursor` as its first member unless it is empty.
pub fn encode_event(out: &mut Vec<u8>, framing: Framing, cursor: &[u8], json: &[u8]) {
    let [a, b, c, d] = json::with_cursor(cursor, json);
    body::write(out, framing, &[a, b, c, d, b"\n"]);
}

/// Appends the end of the stream.
pub fn end(out: &mut Vec<u8>, framing: Framing) {
    body::write_end(out, framing);
}
