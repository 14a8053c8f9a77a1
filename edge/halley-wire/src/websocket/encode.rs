//! Frames that a server sends: never masked, never fragmented (RFC 6455 section 5).

use super::deflate::{COMPRESSED_BYTES_MIN, Deflater};
use super::extension::Agreement;
use super::frame::{CONTROL_BYTES_MAX, HEADER_BYTES_MAX, Opcode, RSV1, write_header};
use crate::json;

/// Appends an event as a text message, `cursor` as its first member unless it is empty.
pub fn event(out: &mut Vec<u8>, cursor: &[u8], json: &[u8]) {
    message(out, Opcode::Text, &json::with_cursor(cursor, json));
}

/// Appends a text message.
pub fn text(out: &mut Vec<u8>, text: &str) {
    message(out, Opcode::Text, &[text.as_bytes()]);
}

/// Appends a binary message.
pub fn binary(out: &mut Vec<u8>, bytes: &[u8]) {
    message(out, Opcode::Binary, &[bytes]);
}

/// Appends a ping; of the payload only the first 125 bytes, as a control frame holds no more.
pub fn ping(out: &mut Vec<u8>, payload: &[u8]) {
    message(out, Opcode::Ping, &[truncated(payload)]);
}

/// Appends a pong, the answer to a ping with this payload.
pub fn pong(out: &mut Vec<u8>, payload: &[u8]) {
    message(out, Opcode::Pong, &[truncated(payload)]);
}

/// Appends a close with a code, and as much of the reason as fits; without a code, or with one
/// that must not travel, the frame is empty.
pub fn close(out: &mut Vec<u8>, code: Option<u16>, reason: &str) {
    match code.filter(|&code| super::close_code::may_travel(code)) {
        None => message(out, Opcode::Close, &[]),
        Some(code) => {
            let mut end = reason.len().min(CONTROL_BYTES_MAX - 2);
            while !reason.is_char_boundary(end) {
                end -= 1;
            }
            let code = code.to_be_bytes();
            message(out, Opcode::Close, &[&code, &reason.as_bytes()[..end]]);
        }
    }
}

/// Appends the compressed form (RFC 7692 section 7.2.1) of a message, given as the frame that
/// [`event`], [`text`] or [`binary`] wrote. Nothing is appended, and the answer is false, where the
/// message is too short or too long for it, or no shorter by it: then the frame itself is to be
/// sent, as a message may always be (section 6).
pub fn compressed(
    out: &mut Vec<u8>,
    frame: &[u8],
    agreement: Agreement,
    deflater: &mut Deflater,
) -> bool {
    let (Some(&first), payload) = (frame.first(), payload(frame)) else { return false };
    if !(COMPRESSED_BYTES_MIN..=agreement.compressed_bytes_max()).contains(&payload.len()) {
        return false;
    }
    let Some(shorter) = deflater.compress(payload) else { return false };
    out.reserve(HEADER_BYTES_MAX + shorter.len());
    write_header(out, first | RSV1, shorter.len(), None);
    out.extend_from_slice(shorter);
    true
}

/// What stands behind the header of an unmasked frame.
pub fn payload(frame: &[u8]) -> &[u8] {
    let header_bytes = match frame.get(1) {
        Some(126) => 4,
        Some(127) => 10,
        _ => 2,
    };
    frame.get(header_bytes..).unwrap_or_default()
}

fn truncated(payload: &[u8]) -> &[u8] {
    payload.get(..CONTROL_BYTES_MAX).unwrap_or(payload)
}

fn message(out: &mut Vec<u8>, opcode: Opcode, parts: &[&[u8]]) {
    let payload_bytes = parts.iter().map(|part| part.len()).sum();
    out.reserve(HEADER_BYTES_MAX + payload_bytes);
    write_header(out, opcode as u8, payload_bytes, None);
    for part in parts {
        out.extend_from_slice(part);
    }
}
