//! The opening handshake, the server's side (RFC 6455 section 4.2).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

use super::extension::Agreement;
use crate::HttpError;
use crate::http1::head::{BodyFraming, Request};
use crate::http1::response::{Head, ResponseOptions};

/// The value of `Sec-WebSocket-Accept`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptKey([u8; 28]);

impl AcceptKey {
    /// SHA-1 of the client's key and the protocol's own GUID, in Base64 (section 4.2.2).
    pub(super) fn of(key: &[u8]) -> AcceptKey {
        const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
        let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
        let mut accept = [0; 28];
        // 20 bytes are 28 digits: the one error, too little room, can't be.
        let _ = STANDARD.encode_slice(digest, &mut accept);
        AcceptKey(accept)
    }

    /// The 28 bytes of the header's value.
    pub fn as_bytes(&self) -> &[u8; 28] {
        &self.0
    }
}

/// Checks that `request` opens a WebSocket and gives what to answer.
///
/// # Errors
/// 405 for another method than GET (the response needs `Allow: GET`), 426 for a request that asks
/// for no upgrade or for another version, 400 for a bad key and for a body.
pub fn accept(request: &Request<'_>) -> Result<AcceptKey, HttpError> {
    if request.method != "GET" {
        return Err(HttpError::new(405, "method_not_allowed", "A WebSocket is opened by GET."));
    }
    if !request.upgrade_websocket {
        return Err(HttpError::new(
            426,
            "upgrade_required",
            "This path speaks WebSocket: send Connection: Upgrade and Upgrade: websocket in \
             HTTP/1.1.",
        ));
    }
    if request.body != BodyFraming::None {
        return Err(HttpError::new(
            400,
            "body_not_allowed",
            "A request that opens a WebSocket has no body.",
        ));
    }
    if only(request, "sec-websocket-version") != Some(b"13") {
        return Err(HttpError::new(
            426,
            "websocket_version_unsupported",
            "The only version of WebSocket spoken here is 13; send Sec-WebSocket-Version: 13 once.",
        ));
    }
    match only(request, "sec-websocket-key") {
        Some(key) if is_key(key) => Ok(AcceptKey::of(key)),
        _ => Err(HttpError::new(
            400,
            "bad_websocket_key",
            "Sec-WebSocket-Key must be given once, as 16 bytes in Base64.",
        )),
    }
}

/// What else the answer says.
#[derive(Debug, Default, Clone, Copy)]
pub struct Agreed {
    /// About compression.
    pub deflate: Option<Agreement>,
    /// [`PROTOCOL`] was offered.
    pub protocol: bool,
}

/// The subprotocol that is spoken here, if a client asks for one (`protocol/http.md` 8.4).
pub const PROTOCOL: &str = "halley";
/// What a token stands behind that is offered beside it (14.2).
const TOKEN: &[u8] = b"halley.token.";

/// Which tokens are offered as subprotocols, by a request that opens a WebSocket.
pub fn tokens<'r>(request: &Request<'r>) -> impl Iterator<Item = &'r [u8]> {
    offered(request).filter_map(|offer| offer.strip_prefix(TOKEN))
}

/// Is [`PROTOCOL`] to be agreed on?
///
/// # Errors
/// 400 for a token without it: a browser has the opening fail whose answer names none of its
/// offers, and the token is not to be repeated.
pub fn protocol(request: &Request<'_>) -> Result<bool, HttpError> {
    let is_offered = offered(request).any(|offer| offer == PROTOCOL.as_bytes());
    if !is_offered && tokens(request).next().is_some() {
        return Err(HttpError::new(
            400,
            "bad_subprotocol",
            "Offer the subprotocol halley beside halley.token.<token>: it is the one that the \
             answer names.",
        ));
    }
    Ok(is_offered)
}

fn offered<'r>(request: &Request<'r>) -> impl Iterator<Item = &'r [u8]> {
    let lines = request.headers.iter().filter(|(name, _)| {
        request.upgrade_websocket && name.eq_ignore_ascii_case("sec-websocket-protocol")
    });
    lines.flat_map(|(_, value)| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

/// Appends the response that accepts. What follows it on the connection are frames.
pub fn response(out: &mut Vec<u8>, accept: &AcceptKey, options: &ResponseOptions<'_>) {
    response_with(out, accept, Agreed::default(), options);
}

/// The same, with what was agreed on.
pub fn response_with(
    out: &mut Vec<u8>,
    accept: &AcceptKey,
    agreed: Agreed,
    options: &ResponseOptions<'_>,
) {
    let mut head = Head::begin(out, 101, options);
    head.header("Upgrade", b"websocket");
    head.header("Connection", b"Upgrade");
    head.header("Sec-WebSocket-Accept", accept.as_bytes());
    if agreed.protocol {
        head.header("Sec-WebSocket-Protocol", PROTOCOL.as_bytes());
    }
    if let Some(agreement) = agreed.deflate {
        head.header("Sec-WebSocket-Extensions", agreement.value().as_bytes());
    }
    head.bodyless();
}

/// The value of a field that must be there exactly once.
fn only<'b>(request: &Request<'b>, name: &str) -> Option<&'b [u8]> {
    let mut values = request.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let first = values.next().map(|(_, value)| value);
    if values.next().is_some() { None } else { first }
}

fn is_key(key: &[u8]) -> bool {
    const KEY_DIGITS: usize = 24;
    // The decoder asks for room for three bytes for every four digits, padding included.
    let mut decoded = [0; KEY_DIGITS / 4 * 3];
    key.len() == KEY_DIGITS && STANDARD.decode_slice(key, &mut decoded) == Ok(16)
}
