//! Response heads and small whole responses (RFC 9110 section 15, RFC 9112 section 4).

use super::body::Framing;
use super::cors::Cors;
use super::date::HttpDate;
use super::head::{Request, Version};
use crate::{HttpError, json};

/// What a response says about its connection and its reader, whatever it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseOptions<'o> {
    /// The version of the request.
    pub version: Version,
    /// Whether the connection stays open after the response; if not, the response says so.
    pub keep_alive: bool,
    /// The request was HEAD: the head is that of GET, the body is left out.
    pub head_only: bool,
    /// Seconds after which it is worth trying again.
    pub retry_after_s: Option<u32>,
    /// The methods for the `Allow` header, comma-separated; a 405 must have it.
    pub allow: Option<&'o str>,
    /// The challenge for the `WWW-Authenticate` header; a 401 must have it (RFC 9110 15.5.2).
    pub challenge: Option<&'o str>,
    /// What the origin of the request may read.
    pub cors: Cors<'o>,
    /// For the `Date` header.
    pub date: Option<HttpDate>,
}

impl Default for ResponseOptions<'_> {
    /// For a client of which nothing is known: the connection closes.
    fn default() -> Self {
        ResponseOptions {
            version: Version::Http11,
            keep_alive: false,
            head_only: false,
            retry_after_s: None,
            allow: None,
            challenge: None,
            cors: Cors::default(),
            date: None,
        }
    }
}

impl<'o> ResponseOptions<'o> {
    /// The options that follow from the request's version, persistence and method.
    pub fn of(request: &Request<'_>) -> ResponseOptions<'o> {
        ResponseOptions {
            version: request.version,
            keep_alive: request.keep_alive,
            head_only: request.method == "HEAD",
            ..ResponseOptions::default()
        }
    }
}

/// A response head that is being written.
///
/// Begins with [`Head::begin`]; one of the methods that take `self` ends it.
#[derive(Debug)]
#[must_use = "a head ends by one of `length`, `framed` and `bodyless`"]
pub struct Head<'v> {
    out: &'v mut Vec<u8>,
}

impl<'v> Head<'v> {
    /// Appends the status line and the headers of `options`.
    pub fn begin(out: &'v mut Vec<u8>, status: u16, options: &ResponseOptions<'_>) -> Head<'v> {
        out.extend_from_slice(b"HTTP/1.1 ");
        write_decimal(out, u64::from(status));
        out.push(b' ');
        out.extend_from_slice(reason(status).as_bytes());
        out.extend_from_slice(b"\r\n");
        let mut head = Head { out };
        if let Some(date) = &options.date {
            head.header("Date", date.as_bytes());
        }
        match (status, options.keep_alive, options.version) {
            // The handshake of another protocol, or a head that another one follows.
            (100..200, _, _) | (_, true, Version::Http11) => {}
            (_, true, Version::Http10) => head.header("Connection", b"keep-alive"),
            (_, false, _) => head.header("Connection", b"close"),
        }
        if let Some(seconds) = options.retry_after_s {
            head.number("Retry-After", u64::from(seconds));
        }
        if let Some(methods) = options.allow {
            head.header("Allow", methods.as_bytes());
        }
        if let Some(challenge) = options.challenge {
            head.header("WWW-Authenticate", challenge.as_bytes());
        }
        options.cors.write(&mut head);
        head
    }

    /// Appends a header field. Bytes that would end the line early become spaces, so a value
    /// never becomes a header of its own.
    pub fn header(&mut self, name: &str, value: &[u8]) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        let start = self.out.len();
        self.out.extend_from_slice(value);
        let written = self.out.get_mut(start..).unwrap_or_default();
        for byte in written.iter_mut().filter(|byte| byte.is_ascii_control()) {
            *byte = b' ';
        }
        self.out.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, name: &str, value: u64) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        write_decimal(self.out, value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Ends the head of a response with a body of this many bytes.
    pub fn length(mut self, body_bytes: u64) {
        self.number("Content-Length", body_bytes);
        self.bodyless();
    }

    /// Ends the head of a response whose body comes in this framing.
    pub fn framed(mut self, framing: Framing) {
        if framing == Framing::Chunked {
            self.header("Transfer-Encoding", b"chunked");
        }
        self.bodyless();
    }

    /// Ends the head of a response that has no body by its status: 1xx, 204, 304.
    pub fn bodyless(self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Appends a whole response with this body; for HEAD its head alone.
pub fn full(
    out: &mut Vec<u8>,
    status: u16,
    content_type: &str,
    body: &[u8],
    options: &ResponseOptions<'_>,
) {
    let mut head = Head::begin(out, status, options);
    if matches!(status, 100..200 | 204 | 304) {
        return head.bodyless();
    }
    head.header("Content-Type", content_type.as_bytes());
    head.length(body.len() as u64);
    if !options.head_only {
        out.extend_from_slice(body);
    }
}

/// Appends the contract's error: `{"error":{"code":…,"message":…}}`. A 426 says as well what to
/// upgrade to (RFC 9110 section 15.5.22, RFC 6455 section 4.4).
pub fn json_error(
    out: &mut Vec<u8>,
    status: u16,
    code: &str,
    message: &str,
    options: &ResponseOptions<'_>,
) {
    let mut body = Vec::with_capacity(ERROR_BODY_BYTES_TYPICAL);
    body.extend_from_slice(b"{\"error\":{\"code\":");
    json::escape(&mut body, code);
    body.extend_from_slice(b",\"message\":");
    json::escape(&mut body, message);
    body.extend_from_slice(b"}}");
    let mut head = Head::begin(out, status, options);
    if status == 426 {
        head.header("Upgrade", b"websocket");
        head.header("Sec-WebSocket-Version", b"13");
    }
    head.header("Content-Type", b"application/json");
    head.length(body.len() as u64);
    if !options.head_only {
        out.extend_from_slice(&body);
    }
}

/// Appends `error` as [`json_error`] does.
pub fn http_error(out: &mut Vec<u8>, error: &HttpError, options: &ResponseOptions<'_>) {
    let retry_after_s = error.retry_after_s.or(options.retry_after_s);
    let options = ResponseOptions { retry_after_s, ..*options };
    json_error(out, error.status, error.code, error.message, &options);
}

/// The interim response that asks a client for the body it holds back.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

const ERROR_BODY_BYTES_TYPICAL: usize = 256;

/// The reason phrase of a status (RFC 9110 section 15); empty for one that it doesn't have.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

pub(crate) fn write_decimal(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0_u8; 20];
    let mut rest = value;
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[digits.len() - used..]);
}
