//! The tables of `protocol/` that say what clients may send, walked through the parsers: each case
//! whole and cut, by the crate's reader and by a second one. `halley-edge`'s suite walks the same
//! tables over a real socket.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod connection;
mod deflate;
mod http_requests;
mod second;
mod table;
mod websocket;

/// Inputs longer than this are cut into pieces of [`PIECE_BYTES`] instead of single bytes: a head
/// is looked at anew with each.
const BYTEWISE_BYTES_MAX: usize = 2_000;
const PIECE_BYTES: usize = 61;

/// Lengths of the pieces in which an input is read.
fn steps(input: &[u8]) -> [usize; 3] {
    let small = if input.len() > BYTEWISE_BYTES_MAX { PIECE_BYTES } else { 1 };
    [input.len().max(1), small, 7 * small]
}
