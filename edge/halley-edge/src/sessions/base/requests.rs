//! The request of a connection that waits for the brain.

use halley_link::Frame;

use crate::sessions::base::detail::exchange_of;
use crate::sessions::base::io::Io;

/// Its client is gone, or no longer to be answered (8.6).
pub fn gone(io: &mut Io, index: u32) {
    let conn = io.conns.table.conn(index);
    let Some(exchange) = exchange_of(&mut io.conns, index) else { return };
    let place = exchange.in_flight.take();
    if place.is_some() {
        io.conns.request_is_over(place);
        io.link.send(&Frame::RequestGone { conn });
    }
}
