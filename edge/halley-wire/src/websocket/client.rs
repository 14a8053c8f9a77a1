//! The client's side, as far as load tools and tests need it: the request, and masked frames.
//!
//! A server's frames are read by a [`super::Decoder`] with [`super::Sender::Server`]. Keys are
//! given by the caller, who has the randomness.

use super::frame::{HEADER_BYTES_MAX, Opcode, mask, write_header};
use super::handshake::AcceptKey;

/// Appends the request that opens a connection (RFC 6455 section 4.1). `key` is 16 random bytes in
/// Base64; the response must have [`expected_accept`] of it in `Sec-WebSocket-Accept`.
pub fn request(out: &mut Vec<u8>, host: &str, target: &str, key: &str) {
    let parts = [
        "GET ",
        target,
        " HTTP/1.1\r\nHost: ",
        host,
        "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
        "Sec-WebSocket-Key: ",
        key,
        "\r\n\r\n",
    ];
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

/// What the server must answer to this key.
pub fn expected_accept(key: &str) -> AcceptKey {
    AcceptKey::of(key.as_bytes())
}

/// Appends a masked text message.
pub fn text(out: &mut Vec<u8>, text: &str, key: [u8; 4]) {
    message(out, Opcode::Text, text.as_bytes(), key);
}

/// Appends a masked binary message.
pub fn binary(out: &mut Vec<u8>, bytes: &[u8], key: [u8; 4]) {
    message(out, Opcode::Binary, bytes, key);
}

/// Appends a masked ping; `payload` has at most 125 bytes.
pub fn ping(out: &mut Vec<u8>, payload: &[u8], key: [u8; 4]) {
    message(out, Opcode::Ping, payload, key);
}

/// Appends a masked pong; `payload` has at most 125 bytes, as that of the ping.
pub fn pong(out: &mut Vec<u8>, payload: &[u8], key: [u8; 4]) {
    message(out, Opcode::Pong, payload, key);
}

/// Appends a masked close without a reason.
pub fn close(out: &mut Vec<u8>, code: u16, key: [u8; 4]) {
    message(out, Opcode::Close, &code.to_be_bytes(), key);
}

fn message(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], key: [u8; 4]) {
    out.reserve(HEADER_BYTES_MAX + payload.len());
    write_header(out, opcode as u8, payload.len(), Some(key));
    let start = out.len();
    out.extend_from_slice(payload);
    mask(out.get_mut(start..).unwrap_or_default(), key, 0);
}
