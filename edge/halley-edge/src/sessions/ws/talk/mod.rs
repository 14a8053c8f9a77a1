//! The talk with a client of a WebSocket: its frames, by RFC 6455 and 7692. `operations.rs` carries
//! out its messages.
//!
//! Nothing in here ends a session: a call says how its connection is to end ([`Parting`]).
//!
//! Bounds: `message_bytes_max` for a message in the middle; [`ANSWERS_BYTES_MAX`] for what waits
//! for a client that goes on sending: beyond it pings get no pong, and a message that would be
//! refused ends the connection.

pub mod operations;

use std::ops::ControlFlow;

use halley_link::CloseReason;
use halley_wire::websocket::{Decoder, Event, Failure, Rules, Sender, close_code, encode};

use crate::conns::read::READS_PER_TURN;
use crate::conns::table::{Phase, flag};
use crate::sessions::base::detail::{Conns, Detail};
use crate::sessions::base::io::Io;
use crate::sessions::delivery::{Delivery, Writer};
use crate::sessions::subscriptions::Subscriptions;
use crate::sessions::users::tokens::Tokens;
use crate::sessions::ws::WebSockets;
use crate::sessions::ws::compression::{INFLATED_PER_TURN, echo, read_bytes};
use crate::sessions::ws::operation::NOT_TEXT;
use crate::stats::Stat;

/// A client for which so much waits is not read until all of it was taken (http.md 18.5). What it
/// sent before gets no more pongs; a message that would be refused ends it.
const ANSWERS_BYTES_MAX: usize = 65_536;

/// A build in which messages come back as they are, for suites that need an echo (`make doors`).
/// It sends nothing unasked, so no heartbeat either. No release has it.
pub(crate) const ECHO: bool = cfg!(feature = "echo");

/// How a connection ends by what its client sent.
pub struct Parting {
    /// What the client is sent, and nothing after that.
    pub words: Vec<u8>,
    /// Why the session ends.
    pub reason: CloseReason,
}

impl Parting {
    /// By a close frame.
    pub fn by(code: u16, text: &str, reason: CloseReason) -> Parting {
        let mut words = Vec::new();
        encode::close(&mut words, Some(code), text);
        Parting { words, reason }
    }
}

/// Whether the talk goes on; if not, how the connection ends, unless it has ended already.
pub type Goes = ControlFlow<Option<Parting>>;

/// What a talk needs: the operations, what they change of a session, and who writes to it.
pub struct Talk<'a> {
    io: &'a mut Io,
    websockets: &'a mut WebSockets,
    subscriptions: &'a mut Subscriptions,
    tokens: &'a mut Tokens,
    delivery: &'a mut Delivery,
}

impl<'a> Talk<'a> {
    /// For a call.
    pub fn new(
        io: &'a mut Io,
        websockets: &'a mut WebSockets,
        subscriptions: &'a mut Subscriptions,
        tokens: &'a mut Tokens,
        delivery: &'a mut Delivery,
    ) -> Talk<'a> {
        Talk { io, websockets, subscriptions, tokens, delivery }
    }

    /// Writes to the session.
    fn writer(&mut self) -> Writer<'_> {
        Writer::new(self.io, self.delivery, self.tokens)
    }

    /// Reads what a stream's client sends: messages of a WebSocket, nothing of interest otherwise.
    pub fn readable(&mut self, index: u32) -> Option<Parting> {
        let inflated_max = self.websockets.inflated() + INFLATED_PER_TURN;
        for _ in 0..READS_PER_TURN {
            let slot = self.io.conns.slot(index)?;
            let (websocket, room) = (slot.transport.is_websocket(), read_bytes(slot.transport));
            let early = matches!(slot.phase(), Phase::Waiting | Phase::Opening);
            if websocket && (early || has_much_to_say(&mut self.io.conns, index)) {
                // Frames may come right behind the request; they wait in the socket for the
                // decoder. Later ones wait until the client has taken its answers.
                self.io.conns.slot(index)?.set(flag::UNREAD);
                return None;
            }
            if !matches!(self.io.conns.phase(index), Phase::Waiting | Phase::Opening | Phase::Live)
            {
                return None;
            }
            if let Some(parting) = self.messages_ahead(index) {
                return Some(parting);
            }
            let mut scratch = std::mem::take(&mut self.io.conns.scratch);
            let read = self.io.conns.read(index, &mut scratch, room);
            let heard = match read {
                Some(n) if websocket => self.messages(index, &mut scratch[..n]),
                _ => None,
            };
            self.io.conns.scratch = scratch;
            if heard.is_some() || read.is_none() {
                return heard;
            }
            if self.websockets.inflated() > inflated_max {
                break;
            }
        }
        self.io.conns.turn_is_over(index);
        None
    }

    /// What came before the session was there goes before what is in the socket.
    fn messages_ahead(&mut self, index: u32) -> Option<Parting> {
        if !matches!(self.io.conns.table.detail(index), Some(Detail::Ahead(_))) {
            return None;
        }
        match self.io.conns.table.take_detail(index) {
            Detail::Ahead(mut ahead) => self.messages(index, &mut ahead.bytes),
            _ => None,
        }
    }

    /// Decodes and answers what came in; `bytes` is unmasked in place.
    fn messages(&mut self, index: u32, bytes: &mut [u8]) -> Option<Parting> {
        let rules = Rules {
            sender: Sender::Client,
            message_bytes_max: self.io.conns.settings.message_bytes_max,
        };
        let slot = self.io.conns.slot(index)?;
        slot.clear(flag::PINGED);
        let deflate = slot.transport.is_deflate();
        // Taken out for the loop, so that it can be answered meanwhile; without one, nothing is in
        // the middle.
        let mut decoder = match self.io.conns.table.take_detail(index) {
            Detail::WebSocket(decoder) => decoder,
            _ => Decoder::new(),
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let inflater = if deflate { Some(self.websockets.inflater()) } else { None };
            match decoder.decode_with(rest, &rules, inflater) {
                Ok(decoded) => {
                    let consumed = decoded.consumed;
                    match decoded.event.map(|event| self.event(index, &event)) {
                        Some(ControlFlow::Break(parting)) => return parting,
                        Some(ControlFlow::Continue(())) => {}
                        None => break,
                    }
                    rest = &mut rest[consumed..];
                }
                Err(failure) => return Some(self.failed(&failure)),
            }
        }
        if self.io.conns.is_in(index, Phase::Live) && !decoder.is_idle() {
            self.io.conns.table.set_detail(index, Detail::WebSocket(decoder));
        }
        None
    }

    fn event(&mut self, index: u32, event: &Event<'_>) -> Goes {
        let mut out = Vec::new();
        match event {
            Event::Text(text) if ECHO => {
                encode::text(&mut out, text);
                out = self.echo(index, out);
            }
            Event::Binary(bytes) if ECHO => {
                encode::binary(&mut out, bytes);
                out = self.echo(index, out);
            }
            Event::Text(text) => {
                self.io.conns.stats.count(Stat::Messages);
                return self.operate(index, text);
            }
            Event::Binary(_) => {
                self.io.conns.stats.count(Stat::Messages);
                return self.refuse(index, &NOT_TEXT);
            }
            Event::Pong(_) => return Goes::Continue(()),
            Event::Ping(_) if has_much_to_say(&mut self.io.conns, index) => {
                return Goes::Continue(());
            }
            Event::Ping(payload) => encode::pong(&mut out, payload),
            Event::Close(code) => {
                encode::close(&mut out, *code, "");
                let parting = Parting { words: out, reason: CloseReason::Client };
                return Goes::Break(Some(parting));
            }
        }
        self.write(index, out)
    }

    fn echo(&mut self, index: u32, frame: Vec<u8>) -> Vec<u8> {
        let transport = self.io.conns.slot(index).map(|slot| slot.transport);
        echo(self.delivery.deflater(), transport, frame)
    }

    /// RFC 6455 section 7.1.7.
    fn failed(&mut self, failure: &Failure) -> Parting {
        self.io.conns.stats.count(Stat::ProtocolErrors);
        Parting::by(failure.code, failure.reason, CloseReason::Protocol)
    }

    /// Answers a message at once, unless the client leaves too much of its answers where they are.
    fn say(&mut self, index: u32, text: &str) -> Goes {
        if has_much_to_say(&mut self.io.conns, index) {
            let (code, why) = (close_code::POLICY_VIOLATION, "answers are not read");
            return Goes::Break(Some(Parting::by(code, why, CloseReason::Protocol)));
        }
        let mut out = Vec::new();
        encode::text(&mut out, text);
        self.write(index, out)
    }

    fn write(&mut self, index: u32, frame: Vec<u8>) -> Goes {
        self.writer().push(index, frame.into());
        let goes = self.io.conns.is_in(index, Phase::Live);
        if goes { Goes::Continue(()) } else { Goes::Break(None) }
    }
}

/// Is the backlog of answers above the limit?
fn has_much_to_say(conns: &mut Conns, index: u32) -> bool {
    conns.outbox(index).is_some_and(|outbox| outbox.bytes() > ANSWERS_BYTES_MAX)
}
