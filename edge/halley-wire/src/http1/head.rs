//! Request heads: the request line and the header fields (RFC 9112 sections 2 to 5).
//!
//! `httparse` reads the grammar; this module adds the limits, the strictness against request
//! smuggling (RFC 9112 section 11.2), and what a server concludes from a head: where the body
//! ends, whether the connection stays, whether it changes its protocol.
//!
//! The error is always the one that stands first in the bytes, so it does not depend on how they
//! were cut into reads. Errors that only a whole head shows (a missing `Host`, two framings) are
//! checked last, in [`super::framing`].

use std::mem::MaybeUninit;

use memchr::memchr;

use super::framing::{Authority, Conclusions, is_host_byte};
use super::headers::Headers;
use crate::HttpError;

/// The most header fields that any setting can allow: their places are on the stack.
pub const HEADERS_MAX: usize = 100;

/// The longest method; the longest registered one, `UPDATEREDIRECTREF`, has 17 bytes.
pub const METHOD_BYTES_MAX: usize = 24;

/// The bounds of a request head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the request line with any empty lines before it: beyond it 414.
    pub request_line_bytes_max: usize,
    /// Bytes of all header lines, with their line ends and the empty line: beyond it 431.
    pub header_bytes_max: usize,
    /// Header fields, at most [`HEADERS_MAX`]: beyond it 431.
    pub headers_max: usize,
}

impl HeadLimits {
    /// The most bytes of a head within these limits: a read buffer of this size is enough.
    pub fn head_bytes_max(&self) -> usize {
        self.request_line_bytes_max + CRLF_BYTES + self.header_bytes_max
    }
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits { request_line_bytes_max: 8_192, header_bytes_max: 16_384, headers_max: 64 }
    }
}

/// The version of HTTP that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: no chunks, closes unless asked to stay.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// Where a request's body ends (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body; `Content-Length: 0` is this as well.
    None,
    /// So many bytes after the head; never 0.
    Length(u64),
    /// Chunks: see [`super::chunked`].
    Chunked,
}

/// A request head that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'b> {
    /// The method as it came: methods are case-sensitive.
    pub method: &'b str,
    /// Path and query, beginning with `/`, still percent-encoded, visible ASCII only; the
    /// absolute form is reduced to this, and to the query alone where its path is empty, which
    /// `target::with_path` makes whole. `OPTIONS` may have `*`.
    pub target: &'b str,
    /// The client's version.
    pub version: Version,
    /// The header fields.
    pub headers: Headers<'b>,
    /// How many bytes of the input were the head; the body begins there.
    pub head_bytes: usize,
    /// Where the body ends.
    pub body: BodyFraming,
    /// Whether the connection may serve another request after this one.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// Whether the client asks to go on in the WebSocket protocol.
    pub upgrade_websocket: bool,
}

impl<'b> Request<'b> {
    /// The value of the first header field of this name, whatever the case of its letters.
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.headers.get(name)
    }
}

/// Reads one request head from the beginning of `buf`.
///
/// Gives `None` if more bytes are needed. Then all limits hold for what is there already, so a
/// caller that keeps appending gets an error after [`HeadLimits::head_bytes_max`] bytes at most.
///
/// # Errors
/// - 400 for what breaks the grammar, for `Host` and for ambiguous framing; 414 and 431 for the
///   limits; 417 for an unknown expectation; 501 for an unknown transfer coding, a method that is
///   too long, and `CONNECT`; 505 for another version of HTTP.
pub fn parse_request<'b>(
    buf: &'b [u8],
    limits: &HeadLimits,
) -> Result<Option<Request<'b>>, HttpError> {
    let scan = scan(buf, limits);
    let seen = buf.get(..scan.end).unwrap_or(buf);
    let mut places = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let places = &mut places[..limits.headers_max.min(HEADERS_MAX)];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(seen, places);
    let head_bytes = match (status, scan.violation) {
        (Err(error), _) => return Err(explain(error, seen)),
        (Ok(httparse::Status::Partial), Some(violation)) => return Err(violation),
        (Ok(httparse::Status::Partial), None) => return Ok(None),
        (Ok(httparse::Status::Complete(head_bytes)), _) => head_bytes,
    };
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(BAD_REQUEST_LINE);
    };
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let (authority, target) = origin_form(method, target)?;
    let conclusions = Conclusions::of(version, authority, parsed.headers)?;
    let lines_end = head_bytes - CRLF_BYTES;
    let lines = seen.get(scan.headers_start..lines_end).unwrap_or_default();
    Ok(Some(Request {
        method,
        target,
        version,
        headers: Headers::of_accepted(lines),
        head_bytes,
        body: conclusions.body,
        keep_alive: conclusions.keep_alive,
        expect_continue: conclusions.expect_continue,
        upgrade_websocket: conclusions.upgrade_websocket,
    }))
}

const CRLF_BYTES: usize = 2;

const BAD_REQUEST_LINE: HttpError = HttpError::new(
    400,
    "bad_request_line",
    "The request line must be a method, a target and HTTP/1.1, with one space between them.",
);
const BARE_LF: HttpError = HttpError::new(
    400,
    "bad_line_end",
    "A line of the request's head ends in LF alone; lines end in CR LF.",
);
const LINE_TOO_LONG: HttpError = HttpError::new(
    414,
    "request_line_too_long",
    "The request line is longer than this server reads; shorten the path or the query.",
);
const HEADERS_TOO_LARGE: HttpError = HttpError::new(
    431,
    "headers_too_large",
    "The header fields are larger than this server reads; send fewer or shorter ones.",
);
const TOO_MANY_HEADERS: HttpError = HttpError::new(
    431,
    "too_many_headers",
    "There are more header fields than this server reads; send fewer.",
);

/// What the walk over the lines found: `violation` stands at `end` and nothing before it is wrong
/// in this walk's eyes, or `end` is the end of the head or of the input.
struct Scan {
    end: usize,
    /// Where the first header line begins; 0 while the request line is not complete.
    headers_start: usize,
    violation: Option<HttpError>,
}

/// Finds the first line that `httparse` would let pass and this server doesn't: one that ends in a
/// bare LF, or goes beyond a limit.
fn scan(buf: &[u8], limits: &HeadLimits) -> Scan {
    let mut line_start = 0;
    while buf.get(line_start..line_start + CRLF_BYTES) == Some(b"\r\n") {
        line_start += CRLF_BYTES;
    }
    let mut headers_start = 0;
    let mut end_max = limits.request_line_bytes_max + CRLF_BYTES;
    let mut too_long = LINE_TOO_LONG;
    loop {
        let visible = buf.get(line_start..buf.len().min(end_max)).unwrap_or_default();
        let Some(line_bytes) = memchr(b'\n', visible) else {
            let full = buf.len() >= end_max;
            return Scan {
                end: buf.len().min(end_max),
                headers_start,
                violation: full.then_some(too_long),
            };
        };
        let line_end = line_start + line_bytes;
        if !buf[..line_end].ends_with(b"\r") {
            return Scan { end: line_end, headers_start, violation: Some(BARE_LF) };
        }
        line_start = line_end + 1;
        if headers_start == 0 {
            headers_start = line_start;
            end_max = line_start + limits.header_bytes_max;
            too_long = HEADERS_TOO_LARGE;
        } else if line_bytes == 1 {
            return Scan { end: line_start, headers_start, violation: None };
        }
    }
}

fn explain(error: httparse::Error, seen: &[u8]) -> HttpError {
    match error {
        httparse::Error::TooManyHeaders => TOO_MANY_HEADERS,
        httparse::Error::Version if names_a_version(seen) => HttpError::new(
            505,
            "version_not_supported",
            "This server doesn't speak this version of HTTP; use HTTP/1.1.",
        ),
        httparse::Error::HeaderName => HttpError::new(
            400,
            "bad_header_name",
            "A header line must begin with a name of letters, digits and the like, then a colon \
             without white space before it; lines are not folded.",
        ),
        httparse::Error::HeaderValue => HttpError::new(
            400,
            "bad_header_value",
            "A header value has a control character; values are visible characters, spaces and \
             tabs.",
        ),
        httparse::Error::NewLine => HttpError::new(
            400,
            "bad_line_end",
            "A CR in the request's head is not followed by LF; lines end in CR LF.",
        ),
        _ => BAD_REQUEST_LINE,
    }
}

/// Whether the request line ends in `HTTP/` and a digit, as another version's would.
fn names_a_version(seen: &[u8]) -> bool {
    let line = seen.trim_ascii_start();
    let version = line.split(|&byte| byte == b' ').nth(2).unwrap_or_default();
    let digit = version.strip_prefix(b"HTTP/").and_then(<[u8]>::first);
    digit.is_some_and(u8::is_ascii_digit)
}

/// The target as path and query, and what the absolute form says before them (RFC 9112 section
/// 3.2).
fn origin_form<'b>(
    method: &str,
    target: &'b str,
) -> Result<(Option<Authority<'b>>, &'b str), HttpError> {
    const BAD_TARGET: HttpError = HttpError::new(
        400,
        "bad_target",
        "The request's target must be a path that begins with '/', with an optional query, in \
         visible ASCII without '#'; percent-encode other bytes.",
    );
    if method.len() > METHOD_BYTES_MAX {
        return Err(HttpError::new(
            501,
            "method_unknown",
            "The method is longer than any that this server knows.",
        ));
    }
    if method == "CONNECT" {
        return Err(HttpError::new(
            501,
            "connect_unsupported",
            "This server is no proxy; CONNECT is not served.",
        ));
    }
    if !target.is_ascii() || target.contains('#') {
        return Err(BAD_TARGET);
    }
    if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        return Ok((None, target));
    }
    let (rest, scheme_port) = strip_scheme(target).ok_or(BAD_TARGET)?;
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    // No user information either, which is there to look like a host (RFC 9110 section 4.2.4).
    if host.is_empty() || !host.bytes().all(is_host_byte) {
        return Err(BAD_TARGET);
    }
    Ok((Some(Authority { host, scheme_port }), if path.is_empty() { "/" } else { path }))
}

/// What follows the scheme, and the port that the scheme means without saying it.
fn strip_scheme(target: &str) -> Option<(&str, &'static str)> {
    [("http://", ":80"), ("https://", ":443")].into_iter().find_map(|(scheme, port)| {
        let (head, rest) = target.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some((rest, port))
    })
}
