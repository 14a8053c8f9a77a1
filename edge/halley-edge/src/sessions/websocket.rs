//! Frames of WebSocket clients, by RFC 6455 and 7692. `operations.rs` knows the meaning of a
//! message.
//!
//! Bounds: `message_bytes_max` for a message in the middle; [`ANSWERS_BYTES_MAX`] for what waits
//! for a client that goes on sending: beyond it pings get no pong, and a message that would be
//! refused ends the connection.

use halley_link::CloseReason;
use halley_wire::websocket::{Decoder, Event, Failure, Rules, Sender, close_code, encode};

use crate::conns::table::{Phase, flag};
use crate::sessions::Sessions;
use crate::sessions::base::detail::{Conns, Detail};
use crate::sessions::base::io::Io;
use crate::sessions::ws::compression::echo;
use crate::sessions::ws::operation::NOT_TEXT;
use crate::stats::Stat;

/// A client for which so much waits is not read until all of it was taken (http.md 18.5). What it
/// sent before gets no more pongs; a message that would be refused ends it.
const ANSWERS_BYTES_MAX: usize = 65_536;

/// A build in which messages come back as they are, for suites that need an echo (`make doors`).
/// It sends nothing unasked, so no heartbeat either. No release has it.
pub(crate) const ECHO: bool = cfg!(feature = "echo");

impl Sessions {
    /// Decodes and answers what came in; `bytes` is unmasked in place.
    pub fn messages(&mut self, io: &mut Io, index: u32, bytes: &mut [u8]) {
        let rules = Rules {
            sender: Sender::Client,
            message_bytes_max: io.conns.settings.message_bytes_max,
        };
        let Some(slot) = io.conns.slot(index) else { return };
        slot.clear(flag::PINGED);
        let deflate = slot.transport.is_deflate();
        // Taken out for the loop, so that the worker can answer meanwhile; without one, nothing is
        // in the middle.
        let mut decoder = match io.conns.table.take_detail(index) {
            Detail::WebSocket(decoder) => decoder,
            _ => Decoder::new(),
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let inflater = if deflate { Some(self.websockets.inflater()) } else { None };
            match decoder.decode_with(rest, &rules, inflater) {
                Ok(decoded) => {
                    let consumed = decoded.consumed;
                    match decoded.event {
                        Some(event) if !self.message(io, index, &event) => return,
                        Some(_) => {}
                        None => break,
                    }
                    rest = &mut rest[consumed..];
                }
                Err(failure) => return self.fail_websocket(io, index, &failure),
            }
        }
        if io.conns.is_in(index, Phase::Live) && !decoder.is_idle() {
            io.conns.table.set_detail(index, Detail::WebSocket(decoder));
        }
    }

    /// Answers one event; false when the connection ends.
    fn message(&mut self, io: &mut Io, index: u32, event: &Event<'_>) -> bool {
        let mut out = Vec::new();
        match event {
            Event::Text(text) if ECHO => {
                encode::text(&mut out, text);
                let transport = io.conns.slot(index).map(|slot| slot.transport);
                out = echo(self.delivery.deflater(), transport, out);
            }
            Event::Binary(bytes) if ECHO => {
                encode::binary(&mut out, bytes);
                let transport = io.conns.slot(index).map(|slot| slot.transport);
                out = echo(self.delivery.deflater(), transport, out);
            }
            Event::Text(text) => {
                io.conns.stats.count(Stat::Messages);
                return self.operate(io, index, text);
            }
            Event::Binary(_) => {
                io.conns.stats.count(Stat::Messages);
                return self.refuse_message(io, index, &NOT_TEXT);
            }
            Event::Pong(_) => return true,
            Event::Ping(_) if has_much_to_say(&mut io.conns, index) => return true,
            Event::Ping(payload) => encode::pong(&mut out, payload),
            Event::Close(code) => {
                encode::close(&mut out, *code, "");
                self.writer(io).push(index, out.into());
                self.close_after_flush(io, index, CloseReason::Client);
                return false;
            }
        }
        self.writer(io).push(index, out.into());
        io.conns.is_in(index, Phase::Live)
    }

    /// Answers a message at once; false when the connection ends instead.
    pub fn say(&mut self, io: &mut Io, index: u32, text: &str) -> bool {
        if has_much_to_say(&mut io.conns, index) {
            let (code, reason) = (close_code::POLICY_VIOLATION, "answers are not read");
            self.close_websocket(io, index, code, reason, CloseReason::Protocol);
            return false;
        }
        let mut out = Vec::new();
        encode::text(&mut out, text);
        self.writer(io).push(index, out.into());
        io.conns.is_in(index, Phase::Live)
    }

    /// RFC 6455 section 7.1.7.
    fn fail_websocket(&mut self, io: &mut Io, index: u32, failure: &Failure) {
        io.conns.stats.count(Stat::ProtocolErrors);
        self.close_websocket(io, index, failure.code, failure.reason, CloseReason::Protocol);
    }

    /// Says why, and closes.
    pub fn close_websocket(
        &mut self,
        io: &mut Io,
        index: u32,
        code: u16,
        text: &str,
        reason: CloseReason,
    ) {
        let mut out = Vec::new();
        encode::close(&mut out, Some(code), text);
        self.writer(io).push(index, out.into());
        self.close_after_flush(io, index, reason);
    }

    /// A client that didn't answer a ping.
    pub fn silent_websocket(&mut self, io: &mut Io, index: u32) {
        self.close_websocket(io, index, close_code::GOING_AWAY, "no pong", CloseReason::Vanished);
    }
}

/// Is the backlog of answers above the limit?
pub fn has_much_to_say(conns: &mut Conns, index: u32) -> bool {
    conns.outbox(index).is_some_and(|outbox| outbox.bytes() > ANSWERS_BYTES_MAX)
}
