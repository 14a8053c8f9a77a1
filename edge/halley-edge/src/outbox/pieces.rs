//! Events as outboxes hold them: encoded once per kind of stream, compressed once, shared.

use std::rc::Rc;

use halley_link::Event;
use halley_wire::websocket::extension::Agreement;
use halley_wire::websocket::{Deflater, encode};

use crate::outbox::{EventMark, Piece};
use crate::settings::{Settings, SlowConsumer};
use crate::transport::{TRANSPORTS, Transport};

/// An event's pieces: encoded for each kind of stream when the first of that kind asks.
pub struct Pieces {
    encoded: [Option<Rc<[u8]>>; TRANSPORTS],
    mark: Option<Rc<EventMark>>,
}

impl Pieces {
    /// Of this event; nothing is encoded yet.
    pub fn new(event: &Event<'_>, settings: &Settings) -> Pieces {
        let mark = || Rc::new(EventMark { at: event.at, subject: event.subject().into() });
        let mark = (settings.slow_consumer != SlowConsumer::Disconnect).then(mark);
        Pieces { encoded: [const { None }; TRANSPORTS], mark }
    }

    /// What a stream of this kind writes. The event is always the same.
    pub fn of(
        &mut self,
        event: &Event<'_>,
        transport: Transport,
        deflater: &mut Deflater,
    ) -> Piece {
        let bytes = match transport {
            Transport::Deflate => self.compressed(event, Agreement::Usual, deflater),
            Transport::DeflateNarrow => self.compressed(event, Agreement::Narrow, deflater),
            plain => self.plain(event, plain),
        };
        Piece { bytes: Rc::clone(bytes), event: self.mark.clone() }
    }

    fn plain(&mut self, event: &Event<'_>, transport: Transport) -> &Rc<[u8]> {
        self.encoded[transport as usize].get_or_insert_with(|| {
            let mut out = Vec::with_capacity(event.json.len() + event.cursor.len() + 64);
            transport.event(&mut out, event.cursor, event.json, event.data_offset);
            out.into()
        })
    }

    /// What isn't compressed is what other WebSockets write.
    fn compressed(
        &mut self,
        event: &Event<'_>,
        agreement: Agreement,
        deflater: &mut Deflater,
    ) -> &Rc<[u8]> {
        let plain = Rc::clone(self.plain(event, Transport::WebSocket));
        if encode::payload(&plain).len() > agreement.compressed_bytes_max() {
            return self.plain(event, Transport::WebSocket);
        }
        self.encoded[Transport::Deflate as usize].get_or_insert_with(|| {
            let mut out = Vec::new();
            let shorter = encode::compressed(&mut out, &plain, Agreement::Usual, deflater);
            if shorter { out.into() } else { plain }
        })
    }
}

/// One event in hand, and its pieces.
pub struct Encoder<'e> {
    event: &'e Event<'e>,
    pieces: Pieces,
}

impl<'e> Encoder<'e> {
    /// Of this event.
    pub fn new(event: &'e Event<'e>, settings: &Settings) -> Encoder<'e> {
        Encoder { event, pieces: Pieces::new(event, settings) }
    }

    /// Of an event that is not dropped from an outbox.
    pub fn unmarked(event: &'e Event<'e>) -> Encoder<'e> {
        Encoder { event, pieces: Pieces { encoded: [const { None }; TRANSPORTS], mark: None } }
    }

    /// What a stream of this kind writes.
    pub fn piece(&mut self, transport: Transport, deflater: &mut Deflater) -> Piece {
        self.pieces.of(self.event, transport, deflater)
    }
}
