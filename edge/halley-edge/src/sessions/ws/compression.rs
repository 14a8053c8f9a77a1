//! permessage-deflate (RFC 7692, `protocol/http.md` 8.5 and 9.8 to 9.11) at work: whether it is
//! agreed on, and the buffers that a worker lends to all WebSockets with it. An event is compressed
//! once for all its receivers (`outbox/pieces.rs`); `docs/internals/deflate.md` has the reasons.
//!
//! Invariant: nothing here belongs to a connection. Which ones have agreed is their transport.
//!
//! Bounds: a compressed message is inflated within `message_bytes_max`. As a thousandth of that is
//! enough to ask for it, a client is read in small pieces, and its turn is over after
//! [`INFLATED_PER_TURN`]; so one turn inflates that and what a piece can hold, 4 MB, at most.

use halley_wire::http1::head::Request;
use halley_wire::websocket::extension::{Agreement, Offers};
use halley_wire::websocket::{Deflater, Inflater, encode};

use crate::conns::READ_BYTES;
use crate::settings::Settings;
use crate::stats::{Stat, Stats};
use crate::transport::Transport;

/// How much is inflated for a client before others have their turn.
pub const INFLATED_PER_TURN: u64 = 1_048_576;
/// What is read at once of a client that may compress.
const COMPRESSED_READ_BYTES: usize = 4_096;

/// What a worker compresses and inflates with; it has memory only while that happens.
#[derive(Default)]
pub struct Compression {
    /// Of events.
    deflater: Deflater,
    /// Of messages.
    inflater: Inflater,
}

impl Compression {
    /// Of events.
    pub fn deflater(&mut self) -> &mut Deflater {
        &mut self.deflater
    }

    /// Of messages.
    pub fn inflater(&mut self) -> &mut Inflater {
        &mut self.inflater
    }

    /// An echo as an event would be sent: compressed, where that is agreed on and is shorter.
    pub fn echo(&mut self, transport: Option<Transport>, frame: Vec<u8>) -> Vec<u8> {
        let agreement = match transport {
            Some(Transport::Deflate) => Agreement::Usual,
            Some(Transport::DeflateNarrow) => Agreement::Narrow,
            _ => return frame,
        };
        let mut out = Vec::new();
        if encode::compressed(&mut out, &frame, agreement, &mut self.deflater) {
            out
        } else {
            frame
        }
    }

    /// Bytes that were inflated so far.
    pub fn inflated(&self) -> u64 {
        self.inflater.totals().bytes_out
    }

    /// Says how much was compressed and inflated.
    pub fn count(&self, stats: &mut Stats) {
        let (deflated, inflated) = (self.deflater.totals(), self.inflater.totals());
        for (stat, value) in [
            (Stat::Deflated, deflated.messages),
            (Stat::DeflatedFrom, deflated.bytes_in),
            (Stat::DeflatedTo, deflated.bytes_out),
            (Stat::Inflated, inflated.messages),
            (Stat::InflatedFrom, inflated.bytes_in),
            (Stat::InflatedTo, inflated.bytes_out),
        ] {
            stats.set(stat, value);
        }
    }

    /// Gives its memory back, until the next time.
    pub fn rest(&mut self) {
        self.deflater.rest();
        self.inflater.rest();
    }
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
