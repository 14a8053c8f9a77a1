//! An operation as a request for the brain, on the session's connection id (link.md 12.7).

use halley_link::{FLAG_END, Frame, Item, List, Pair};
use halley_wire::HttpError;

use crate::conns::table::Phase;
use crate::limits::places::Place;
use crate::limits::sketch::Key;
use crate::sessions::base::errors::{BUSY, NO_BRAIN, no_place};
use crate::sessions::base::io::Io;
use crate::sessions::subscriptions::view::EVERYBODY;
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

/// Sends it to the brain, with what the session's user may do.
pub fn send(io: &mut Io, index: u32, ask: &Ask, rights: &str) {
    let conn = io.conns.table.conn(index);
    let mut items = Vec::new();
    let headers = [
        ("halley-user", io.conns.table.user(index)),
        ("halley-rights", rights.as_bytes()),
        ("content-type", b"application/json".as_slice()),
        // The brain may grant less than everybody (link.md 19.3).
        ("halley-view", b"kept"),
    ];
    let sees = ask.change.as_ref().is_some_and(|change| change.is_of(EVERYBODY));
    let headers = &headers[..if sees { 4 } else { 3 }];
    for (name, value) in headers {
        Pair { name: name.as_bytes(), value }.write(&mut items);
    }
    io.link.send(&Frame::Request {
        conn,
        listener: 1,
        flags: FLAG_END,
        method: ask.method.as_bytes(),
        target: ask.target.as_bytes(),
        headers: List::from_items(headers.len() as u16, &items),
        body: ask.body.as_bytes(),
    });
    io.conns.stats.count(Stat::PassedOn);
    io.conns.stats.count(Stat::Operations);
}
