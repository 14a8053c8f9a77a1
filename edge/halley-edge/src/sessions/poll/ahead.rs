//! Bytes that the client of a poll sends ahead of its answer: the next request, or its end.

use crate::conns::table::flag;
use crate::sessions::base::detail::{Conns, poll_of};

/// What a client may send ahead of its answer before it is not read any more.
const AHEAD_BYTES_MAX: usize = 16_384;

/// Keeps what came behind the request of a poll.
pub fn read_ahead(conns: &mut Conns, index: u32, bytes: &[u8]) {
    let Some(poll) = poll_of(conns, index) else { return };
    if poll.keep_ahead(bytes) >= AHEAD_BYTES_MAX {
        // Nothing more is read, so only an event tells that the client has left; it may have
        // come together with the request.
        conns.watch_again(index);
    }
}

/// Reads what a waiting client sends: the next request, or its end.
pub fn readable(conns: &mut Conns, index: u32) {
    loop {
        let Some(poll) = poll_of(conns, index) else { return };
        let room = AHEAD_BYTES_MAX.saturating_sub(poll.ahead());
        if room == 0 {
            if let Some(slot) = conns.slot(index) {
                slot.set(flag::UNREAD);
            }
            return;
        }
        let mut scratch = std::mem::take(&mut conns.scratch);
        let most = room.min(scratch.len());
        let read = conns.read(index, &mut scratch, most);
        if let Some(n) = read {
            read_ahead(conns, index, &scratch[..n]);
        }
        conns.scratch = scratch;
        if read.is_none() {
            return;
        }
    }
}
