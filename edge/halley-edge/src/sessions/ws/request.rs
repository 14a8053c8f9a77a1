//! An operation on its way to the brain (link.md 20): its place there, and its frame.

use halley_link::Frame;
use halley_wire::HttpError;

use crate::conns::table::Phase;
use crate::limits::places::Place;
use crate::limits::sketch::Key;
use crate::sessions::base::errors::{BUSY, NO_BRAIN, no_place};
use crate::sessions::base::io::Io;
use crate::sessions::ws::earlier;
use crate::sessions::ws::operation::Ask;
use crate::sessions::ws::queue::GIVEN_UP;
use crate::stats::Stat;

/// Whose operation it is. A visitor's connection counts as a user; no id begins with NUL.
pub fn asker(io: &mut Io, index: u32) -> Key {
    if !io.conns.table.user(index).is_empty() {
        return io.conns.table.user_key(index);
    }
    let mut name = [0; 9];
    name[1..].copy_from_slice(&io.conns.table.conn(index).to_be_bytes());
    io.conns.table.limits.hasher.name(&name)
}

/// The place of a request among those that wait for the brain.
///
/// # Errors
/// What the client is answered if the brain can't be asked now.
pub fn place(io: &mut Io, index: u32) -> Result<Place, HttpError> {
    // What was said last may have been too much for the client: then the slot is nobody's, and
    // its id the next one's.
    if !io.conns.is_in(index, Phase::Live) {
        return Err(GIVEN_UP);
    }
    if !io.link.is_up() {
        return Err(NO_BRAIN.after(1));
    }
    if !io.link_has_room() {
        return Err(BUSY.after(1));
    }
    let whose = io.conns.whose_operation(index);
    io.conns.request_begins(whose).map_err(|full| no_place(&full).after(1))
}

/// Sends it to the brain, with what the session's user may do; without a number as a brain of an
/// earlier build takes it.
pub fn send(io: &mut Io, index: u32, ask: &Ask, rights: &str, number: Option<u32>) {
    match number {
        Some(number) => {
            let conn = io.conns.table.conn(index);
            io.link.send(&Frame::Operation {
                conn,
                number,
                what: ask.what,
                user: io.conns.table.user(index),
                rights: rights.as_bytes(),
                subject: ask.subject.as_bytes(),
                last: ask.last,
                members: ask.members.list(),
            });
        }
        None => earlier::send(io, index, ask, rights),
    }
    io.conns.stats.count(Stat::PassedOn);
    io.conns.stats.count(Stat::Operations);
}
