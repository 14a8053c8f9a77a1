//! What WebSocket clients send, as RFC 6455 and 7692 have it. What a message says is
//! `operations.rs`'s.
//!
//! Bounds: `message_bytes_max` for a message in the middle; [`ANSWERS_BYTES_MAX`] for what waits
//! for a client that goes on sending: beyond it pings get no pong, and a message that would be
//! refused ends the connection.

use halley_link::CloseReason;
use halley_wire::websocket::extension::Agreement;
use halley_wire::websocket::{Decoder, Event, Failure, Rules, Sender, close_code, encode};

use crate::conns::table::{Phase, flag};
use crate::outbox;
use crate::sessions::detail::Detail;
use crate::sessions::operation::NOT_TEXT;
use crate::stats::Stat;
use crate::transport::Transport;
use crate::worker::Worker;

/// A client for which so much waits is not read until all of it was taken (http.md 18.5). What it
/// sent before gets no more pongs; a message that would be refused ends it.
const ANSWERS_BYTES_MAX: usize = 65_536;

/// A build in which messages come back as they are, for suites that need an echo (`make doors`).
/// No release has it.
const ECHO: bool = cfg!(feature = "echo");

impl Worker {
    /// Decodes and answers what came in; `bytes` is unmasked in place.
    pub(crate) fn messages(&mut self, index: u32, bytes: &mut [u8]) {
        let rules =
            Rules { sender: Sender::Client, message_bytes_max: self.settings.message_bytes_max };
        let Some(slot) = self.table.get(index) else { return };
        slot.clear(flag::PINGED);
        let deflate = slot.transport.is_deflate();
        // Taken out for the loop, so that the worker can answer meanwhile; without one, nothing is
        // in the middle.
        let mut decoder = match self.table.take_detail(index) {
            Detail::WebSocket(decoder) => decoder,
            _ => Decoder::new(),
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let inflater = deflate.then_some(&mut self.compression.inflater);
            match decoder.decode_with(rest, &rules, inflater) {
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
        if self.is_live(index) && !decoder.is_idle() {
            self.table.set_detail(index, Detail::WebSocket(decoder));
        }
    }

    /// Answers one event; false when the connection ends.
    fn message(&mut self, index: u32, event: &Event<'_>) -> bool {
        let mut out = Vec::new();
        match event {
            Event::Text(text) if ECHO => {
                encode::text(&mut out, text);
                out = self.compressed(index, out);
            }
            Event::Binary(bytes) if ECHO => {
                encode::binary(&mut out, bytes);
                out = self.compressed(index, out);
            }
            Event::Text(text) => {
                self.stats.count(Stat::Messages);
                return self.operate(index, text);
            }
            Event::Binary(_) => {
                self.stats.count(Stat::Messages);
                return self.refuse_message(index, &NOT_TEXT);
            }
            Event::Pong(_) => return true,
            Event::Ping(_) if self.has_much_to_say(index) => return true,
            Event::Ping(payload) => encode::pong(&mut out, payload),
            Event::Close(code) => {
                encode::close(&mut out, *code, "");
                self.push(index, out.into());
                self.close_after_flush(index, CloseReason::Client);
                return false;
            }
        }
        self.push(index, out.into());
        self.is_live(index)
    }

    /// An echo as an event would be sent: compressed, where that is agreed on and is shorter.
    fn compressed(&mut self, index: u32, frame: Vec<u8>) -> Vec<u8> {
        let agreement = match self.table.get(index).map(|slot| slot.transport) {
            Some(Transport::Deflate) => Agreement::Usual,
            Some(Transport::DeflateNarrow) => Agreement::Narrow,
            _ => return frame,
        };
        let mut out = Vec::new();
        let deflater = &mut self.compression.deflater;
        if encode::compressed(&mut out, &frame, agreement, deflater) { out } else { frame }
    }

    /// May the next message be dealt with, or has what was said ended the session?
    fn is_live(&mut self, index: u32) -> bool {
        self.table.get(index).is_some_and(|slot| slot.phase == Phase::Live)
    }

    /// Does more wait for the client than it shall be answered to?
    pub(crate) fn has_much_to_say(&mut self, index: u32) -> bool {
        let outbox = self.table.get(index).map_or(outbox::NONE, |slot| slot.outbox);
        self.pool.get(outbox).is_some_and(|outbox| outbox.bytes() > ANSWERS_BYTES_MAX)
    }

    /// Answers a message at once; false when the connection ends instead.
    pub(crate) fn say(&mut self, index: u32, text: &str) -> bool {
        if self.has_much_to_say(index) {
            let (code, reason) = (close_code::POLICY_VIOLATION, "answers are not read");
            self.close_websocket(index, code, reason, CloseReason::Protocol);
            return false;
        }
        let mut out = Vec::new();
        encode::text(&mut out, text);
        self.push(index, out.into());
        self.is_live(index)
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
