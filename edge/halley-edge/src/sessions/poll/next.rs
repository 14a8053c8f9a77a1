//! The connection of a poll that was answered: it goes on to the next request.

use crate::conns::table::{Phase, flag};
use crate::sessions::base::detail::{Conns, Detail};
use crate::sessions::base::exchange::Exchange;

/// Writes a poll's answer, whose session is over; the client may have sent more `ahead` of it.
pub fn goes_on(conns: &mut Conns, index: u32, answer: Vec<u8>, ahead: Vec<u8>) {
    let Some(slot) = conns.slot(index) else { return };
    slot.clear(flag::ANNOUNCED);
    slot.ended = None;
    slot.user_number = 0;
    conns.become_of(index, Phase::Http);
    conns.back_to_proxy(index);
    conns.table.set_user(index, b"");
    if !ahead.is_empty() {
        let exchange = Exchange { unparsed: ahead, ..Exchange::default() };
        conns.table.set_detail(index, Detail::Http(Box::new(exchange)));
    }
    // What is on its way for this session must not meet the next request, which is about another
    // one.
    conns.table.renew(index);
    conns.watch_again(index);
    conns.push(index, answer.into());
    let ms = conns.answer_ms(index);
    conns.set_deadline(index, ms);
    if let Some(slot) = conns.slot(index) {
        slot.set(flag::UNREAD);
        conns.ready.push(index);
    }
}
