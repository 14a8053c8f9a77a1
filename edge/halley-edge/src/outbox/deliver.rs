//! From DELIVER to the outboxes: encode once per kind of stream, compress once, share.

use std::rc::Rc;

use halley_link::{Event, List};
use halley_wire::websocket::extension::Agreement;
use halley_wire::websocket::{Deflater, encode};

use crate::link::goodbye::LinkEnd;
use crate::outbox::{EventMark, Piece};
use crate::sessions::transport::{TRANSPORTS, Transport};
use crate::settings::{Settings, SlowConsumer};
use crate::stats::Stat;
use crate::table::{Phase, flag};
use crate::worker::Worker;

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

impl Worker {
    /// DELIVER: puts an event into the outboxes of these connections.
    ///
    /// # Errors
    /// The link's, if the event has no cursor and can't move the link's.
    pub(crate) fn deliver(
        &mut self,
        event: &Event<'_>,
        conns: List<'_, u64>,
    ) -> Result<(), LinkEnd> {
        self.link.cursor_passes(event)?;
        // A copy: what is done for a connection may look at the link's own.
        let mut cursor = std::mem::take(&mut self.event_cursor);
        cursor.clear();
        cursor.extend_from_slice(self.link.cursor());
        self.fan_out(&Event { cursor: &cursor, ..*event }, conns);
        self.event_cursor = cursor;
        Ok(())
    }

    fn fan_out(&mut self, event: &Event<'_>, conns: List<'_, u64>) {
        let mut encoder = Encoder::new(event, &self.settings);
        let (mut delivered, mut stale) = (0, 0);
        let under_way = self.groups.under_way() > 0;
        for conn in conns.iter() {
            if under_way {
                self.overdue_to(conn);
            }
            let Some((index, slot)) = self.table.find(conn) else {
                stale += 1;
                continue;
            };
            let transport = slot.transport;
            let aside = slot.has(flag::ASIDE);
            match slot.phase {
                Phase::Live => {}
                Phase::Opening if aside => {}
                Phase::Opening => self.welcome(index, b""),
                _ => {
                    stale += 1;
                    continue;
                }
            }
            let piece = encoder.piece(transport, &mut self.compression.deflater);
            if aside {
                self.set_aside(index, event.shard, event.seq, piece);
            } else {
                self.push(index, piece);
                delivered += 1;
            }
        }
        self.stats.add(Stat::Delivered, delivered);
        self.stats.add(Stat::Stale, stale);
    }
}
