//! Server-sent events (HTML standard, section 9.2), as a response body.

use crate::http1::body::{self, Framing};
use crate::http1::response::{Head, ResponseOptions};

/// Appends the head of a stream. Its body is framed by [`Framing::of`] the request's version.
pub fn head(out: &mut Vec<u8>, options: &ResponseOptions<'_>) {
    stream_head(out, "text/event-stream", options);
}

/// The head of a response that goes on until someone closes it, in a type that proxies shall
/// neither keep, change nor hold back: `no-transform` also stops compression, `X-Accel-Buffering`
/// is what nginx and its descendants listen to.
pub(crate) fn stream_head(out: &mut Vec<u8>, content_type: &str, options: &ResponseOptions<'_>) {
    let framing = Framing::of(options.version);
    let options = ResponseOptions {
        keep_alive: options.keep_alive && framing == Framing::Chunked,
        ..*options
    };
    let mut head = Head::begin(out, 200, &options);
    head.header("Content-Type", content_type.as_bytes());
    head.header("Cache-Control", b"no-cache, no-transform");
    head.header("X-Accel-Buffering", b"no");
    head.framed(framing);
}

/// Appends what a new session reads first: the comment `welcome`, after how many milliseconds a
/// client that lost its connection shall come back, and what it goes on behind then, if anything.
pub fn welcome(out: &mut Vec<u8>, framing: Framing, retry_ms: u32, cursor: &[u8]) {
    let retry_ms = retry_ms.to_string();
    let id: &[u8] = if cursor.is_empty() { b"" } else { b"\nid: " };
    let parts = [b": welcome\nretry: ".as_slice(), retry_ms.as_bytes(), id, cursor, b"\n\n"];
    body::write(out, framing, &parts);
}

/// Appends one event. `json` is one line without control characters (link.md 7.1); `cursor` has
/// no control characters either (7.2), and if it is empty there is no `id:`, so the client's last
/// one stays.
pub fn encode_event(out: &mut Vec<u8>, framing: Framing, cursor: &[u8], json: &[u8]) {
    if cursor.is_empty() {
        body::write(out, framing, &[b"data: ", json, b"\n\n"]);
    } else {
        let parts = [b"id: ".as_slice(), cursor, b"\ndata: ", json, b"\n\n"];
        body::write(out, framing, &parts);
    }
}

/// Appends a gap event; `json` is [`crate::Gap::object`].
pub fn encode_gap(out: &mut Vec<u8>, framing: Framing, cursor: &[u8], json: &[u8]) {
    named(out, framing, b"event: gap", cursor, json);
}

/// Appends the event that says why the stream ends; `json` is one line.
pub fn encode_end(out: &mut Vec<u8>, framing: Framing, cursor: &[u8], json: &[u8]) {
    named(out, framing, b"event: end", cursor, json);
}

/// Appends what is told of presence; `json` is one line. It has no cursor: it is state, and nothing
/// that a client comes back for.
pub fn encode_presence(out: &mut Vec<u8>, framing: Framing, json: &[u8]) {
    named(out, framing, b"event: presence", b"", json);
}

/// Appends which subscriptions have ended; `json` is one line. It has no cursor, as presence.
pub fn encode_ended(out: &mut Vec<u8>, framing: Framing, json: &[u8]) {
    named(out, framing, b"event: ended", b"", json);
}

fn named(out: &mut Vec<u8>, framing: Framing, name: &[u8], cursor: &[u8], json: &[u8]) {
    let id: &[u8] = if cursor.is_empty() { b"" } else { b"\nid: " };
    body::write(out, framing, &[name, id, cursor, b"\ndata: ", json, b"\n\n"]);
}

/// Appends what keeps the way between open: the cursor, of which clients take note without an
/// event, or a comment, which they ignore.
pub fn heartbeat(out: &mut Vec<u8>, framing: Framing, cursor: &[u8]) {
    if cursor.is_empty() {
        body::write(out, framing, &[b":\n\n"]);
    } else {
        body::write(out, framing, &[b"id: ", cursor, b"\n\n"]);
    }
}

/// Appends all of a stream that can't be had now: a comment, and after how many milliseconds to
/// come back. An `EventSource` heeds this, where it gives up after an error.
pub fn busy(out: &mut Vec<u8>, framing: Framing, retry_ms: u64) {
    let retry_ms = retry_ms.to_string();
    body::write(out, framing, &[b": busy\nretry: ", retry_ms.as_bytes(), b"\n\n"]);
    end(out, framing);
}

/// Appends what a client shall know before the stream ends: where it goes on, if that is known, and
/// after how many milliseconds.
pub fn last_words(out: &mut Vec<u8>, framing: Framing, retry_ms: u64, cursor: &[u8]) {
    let id: &[u8] = if cursor.is_empty() { b"" } else { b"id: " };
    let line: &[u8] = if cursor.is_empty() { b"" } else { b"\n" };
    let retry_ms = retry_ms.to_string();
    let parts = [id, cursor, line, b"retry: ", retry_ms.as_bytes(), b"\n\n"];
    body::write(out, framing, &parts);
}

/// Appends the end of the stream.
pub fn end(out: &mut Vec<u8>, framing: Framing) {
    body::write_end(out, framing);
}
