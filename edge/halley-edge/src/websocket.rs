//! What WebSocket clients send. There is nothing yet that a client may say, so a message is
//! answered by an error; the protocol itself (ping, close, failure) is kept in full.

use halley_link::CloseReason;
use halley_wire::websocket::{Decoder, Event, Failure, Rules, Sender, close_code, encode};

use crate::stats::Stat;
use crate::table::{Detail, Phase, flag};
use crate::worker::Worker;

/// Pongs and answers to messages may wait in an outbox up to here; a client that asks for more
/// and doesn't read is not answered.
const ANSWERS_BYTES_MAX: usize = 65_536;

/// Answer to a message.
const NOT_UNDERSTOOD: &str = concat!(
    r#"{"error":{"code":"message_not_understood","message":"Clients only listen here: "#,
    r#"publish by POST /v1/events on the API listener."}}"#
);

impl Worker {
    /// Decodes and answers what came in; `bytes` is unmasked in place.
    pub(crate) fn messages(&mut self, index: u32, bytes: &mut [u8]) {
        let rules =
            Rules { sender: Sender::Client, message_bytes_max: self.settings.message_bytes_max };
        let Some(slot) = self.table.get(index) else { return };
        slot.clear(flag::PINGED);
        // Taken out for the loop, so that the worker can answer meanwhile; without one, nothing is
        // in the middle.
        let mut decoder = match self.table.take_detail(index) {
            Detail::WebSocket(decoder) => decoder,
            _ => Decoder::new(),
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            match decoder.decode(rest, &rules) {
                Ok(decoded) => {
                    let consumed = decoded.consumed;
                    match decoded.event {
                        Some(event) if !self.message(index, &event) => return,
                        Some(_) => {}
                        None => break,
                    }
                    rest = &mut rest[consumed..];
                }
                Err(failure) => return self.fail_websocket(index, &failure),
            }
        }
        let live = self.table.get(index).is_some_and(|slot| slot.phase == Phase::Live);
        if live && !decoder.is_idle() {
            self.table.set_detail(index, Detail::WebSocket(decoder));
        }
    }

    /// Answers one event; false when the connection ends.
    fn message(&mut self, index: u32, event: &Event<'_>) -> bool {
        let mut out = Vec::new();
        match event {
            Event::Text(_) | Event::Binary(_) => {
                self.stats.count(Stat::Messages);
                encode::text(&mut out, NOT_UNDERSTOOD);
            }
            Event::Ping(payload) => encode::pong(&mut out, payload),
            Event::Pong(_) => return true,
            Event::Close(code) => {
                encode::close(&mut out, *code, "");
                self.push(index, out.into());
                self.close_after_flush(index, CloseReason::Client);
                return false;
            }
        }
        let Some(slot) = self.table.get(index) else { return false };
        let outbox = slot.outbox;
        if self.pool.get(outbox).map_or(0, |outbox| outbox.bytes()) < ANSWERS_BYTES_MAX {
            self.push(index, out.into());
        }
        true
    }

    /// RFC 6455 section 7.1.7.
    fn fail_websocket(&mut self, index: u32, failure: &Failure) {
        self.stats.count(Stat::ProtocolErrors);
        self.close_websocket(index, failure.code, failure.reason, CloseReason::Protocol);
    }

    /// Says why, and closes.
    pub(crate) fn close_websocket(
        &mut self,
        index: u32,
        code: u16,
        text: &str,
        reason: CloseReason,
    ) {
        let mut out = Vec::new();
        encode::close(&mut out, Some(code), text);
        self.push(index, out.into());
        self.close_after_flush(index, reason);
    }

    /// A client that didn't answer a ping.
    pub(crate) fn silent_websocket(&mut self, index: u32) {
        self.close_websocket(index, close_code::GOING_AWAY, "no pong", CloseReason::Vanished);
    }
}
