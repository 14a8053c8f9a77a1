//! permessage-deflate (RFC 7692, `protocol/http.md` 8.5 and 9.8 to 9.11): whether it is agreed on,
//! and how much is read at once. An event is compressed once for all its receivers
//! (`outbox/pieces.rs`); `docs/internals/deflate.md` has the reasons.
//!
//! Invariant: no buffer belongs to a connection: a worker lends its own to all of them. Which ones
//! have agreed is their transport.
//!
//! Bounds: a compressed message is inflated within `message_bytes_max`. As a thousandth of that is
//! enough to ask for it, a client is read in small pieces, and its turn is over after
//! [`INFLATED_PER_TURN`]; so one turn inflates that and what a piece can hold, 4 MB, at most.

use halley_wire::http1::head::Request;
use halley_wire::websocket::extension::{Agreement, Offers};
use halley_wire::websocket::{Deflater, encode};

use crate::conns::READ_BYTES;
use crate::settings::Settings;
use crate::stats::{Stat, Stats};
use crate::transport::Transport;

/// How much is inflated for a client before others have their turn.
pub const INFLATED_PER_TURN: u64 = 1_048_576;
/// What is read at once of a client that may compress.
const COMPRESSED_READ_BYTES: usize = 4_096;

/// An echo as an event would be sent: compressed, where that is agreed on and is shorter.
pub fn echo(deflater: &mut Deflater, transport: Option<Transport>, frame: Vec<u8>) -> Vec<u8> {
    let agreement = match transport {
        Some(Transport::Deflate) => Agreement::Usual,
        Some(Transport::DeflateNarrow) => Agreement::Narrow,
        _ => return frame,
    };
    let mut out = Vec::new();
    if encode::compressed(&mut out, &frame, agreement, deflater) { out } else { frame }
}

/// How much of a stream's client is read at once.
pub fn read_bytes(transport: Transport) -> usize {
    if transport.is_deflate() { COMPRESSED_READ_BYTES } else { READ_BYTES }
}

/// What is answered to a client's offers.
pub fn agree(req: &Request<'_>, settings: &Settings, stats: &mut Stats) -> Option<Agreement> {
    if !settings.websocket_compression {
        return None;
    }
    match Offers::of(req) {
        Offers::None => None,
        Offers::Declined => {
            stats.count(Stat::DeflateDeclined);
            None
        }
        Offers::Accepted(agreement) => Some(agreement),
    }
}
