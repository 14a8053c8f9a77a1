//! The endpoint of the article that Halley descends from, `GET /test/<user>`: Richard Jones, "A
//! Million-user Comet Application with Mochiweb" (2008), part 3, the libevent server.
//!
//! A chunked `text/html` body: a welcome, then the data of each event, one chunk each.

use crate::http1::body::{self, Framing};
use crate::http1::head::Version;
use crate::http1::response::{Head, ResponseOptions};

/// Appends the head of a stream. Its body is framed by [`Framing::of`] the request's version.
///
/// The data of events is other people's text in a page of this origin, so the page may run and
/// load nothing.
pub fn head(out: &mut Vec<u8>, options: &ResponseOptions<'_>) {
    let options = ResponseOptions {
        keep_alive: options.keep_alive && options.version == Version::Http11,
        ..*options
    };
    let mut head = Head::begin(out, 200, &options);
    head.header("Content-Type", b"text/html; charset=utf-8");
    head.header("Cache-Control", b"no-cache, no-transform");
    head.header("X-Accel-Buffering", b"no");
    head.header("X-Content-Type-Options", b"nosniff");
    head.header("Content-Security-Policy", b"default-src 'none'; sandbox");
    head.framed(Framing::of(options.version));
}

/// Appends the welcome chunk, such as `Welcome, Url: '/test/123' Id: 123`.
pub fn welcome(out: &mut Vec<u8>, framing: Framing, target: &str, user: &str) {
    let mut text = Vec::with_capacity(target.len() + user.len() + 32);
    text.extend_from_slice(b"Welcome, Url: '");
    escape_html(&mut text, target);
    text.extend_from_slice(b"' Id: ");
    escape_html(&mut text, user);
    text.push(b'\n');
    body::write(out, framing, &[&text]);
}

/// Appends one event: `data` is its JSON text, see [`data_of`].
pub fn encode_event(out: &mut Vec<u8>, framing: Framing, data: &[u8]) {
    body::write(out, framing, &[data]);
}

/// The value of `data` in an event's JSON text (link.md 7.1), if `data_offset` lies in it.
pub fn data_of(json: &[u8], data_offset: usize) -> Option<&[u8]> {
    json.get(data_offset..json.len().checked_sub(1)?)
}

/// Appends a line end, which keeps the way between open and which a page doesn't show.
pub fn heartbeat(out: &mut Vec<u8>, framing: Framing) {
    body::write(out, framing, &[b"\n"]);
}

/// Appends the end of the stream.
pub fn end(out: &mut Vec<u8>, framing: Framing) {
    body::write_end(out, framing);
}

fn escape_html(out: &mut Vec<u8>, text: &str) {
    for &byte in text.as_bytes() {
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            _ => out.push(byte),
        }
    }
}
