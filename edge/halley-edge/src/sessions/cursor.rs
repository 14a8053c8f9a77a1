//! Cursors (`protocol/link.md` 10.1, `protocol/http.md` 10): the worker's one, which stands for all
//! of its live sessions, and those that clients come back with.

use halley_link::{List, is_cursor};
use halley_wire::http1::head::Request;
use halley_wire::{Gap, HttpError, target};

use crate::conns::table::Phase;
use crate::sessions::state::{Io, Sessions};

/// What is no cursor travels as this, so that the brain can say so to the client (6.2).
const NO_CURSOR: &[u8] = b"-";

impl Sessions {
    /// GAP: tells these connections, or all (10.4).
    pub fn gap(&mut self, io: &mut Io, gap: &Gap<'_>, cursor: &[u8], conns: List<'_, u64>) {
        for conn in conns.iter() {
            if let Some((index, _)) = io.conns.find(conn) {
                self.deliver_pending_first(io, index);
                self.welcome(&mut io.conns, index, b"");
                self.tell_gap(io, index, gap, cursor);
            }
        }
        if conns.is_empty() {
            for index in 0..io.conns.table.slots() {
                // A held session is replayed from its own cursor, with its own gaps. This gap's
                // cursor would skip what it has yet to get.
                if !self.holds.contains_key(&index) {
                    self.tell_gap(io, index, gap, cursor);
                }
            }
        }
    }

    fn tell_gap(&mut self, io: &mut Io, index: u32, gap: &Gap<'_>, cursor: &[u8]) {
        self.deliver_pending_first(io, index);
        let Some(slot) = io.conns.slot(index) else { return };
        let transport = slot.transport;
        if !matches!(slot.phase(), Phase::Opening | Phase::Live) {
            return;
        }
        if let Some(hold) = self.holds.get_mut(&index) {
            hold.moved(cursor);
        }
        if !self.poll_gap(io, index, gap, cursor) && io.conns.is_in(index, Phase::Live) {
            let mut out = Vec::new();
            transport.gap(&mut out, cursor, gap);
            self.push(io, index, out.into());
        }
    }
}

/// What a client goes on behind, from its address; empty for none.
///
/// # Errors
/// 400 as for any parameter.
pub fn of_target(req: &Request<'_>) -> Result<Vec<u8>, HttpError> {
    let cursor = target::query_value(req.target, "cursor")?.unwrap_or_default();
    Ok(checked(cursor.as_bytes()))
}

/// Likewise, but the header goes first: an EventSource comes back to the address that it was made
/// with, and says in the header where it really was.
///
/// # Errors
/// 400 as for any parameter.
pub fn of_request(req: &Request<'_>) -> Result<Vec<u8>, HttpError> {
    let cursor = of_target(req)?;
    let header = req.header("last-event-id").unwrap_or_default();
    Ok(if header.is_empty() { cursor } else { checked(header) })
}

fn checked(cursor: &[u8]) -> Vec<u8> {
    if is_cursor(cursor) { cursor.to_vec() } else { NO_CURSOR.to_vec() }
}
