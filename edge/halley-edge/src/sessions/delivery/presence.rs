//! PRESENCE (`protocol/link.md` 15): who came to a subject or left it, for sessions that asked.
//!
//! It is state, not history: it has no cursor and no place among the events, so it is written at
//! once, also to a session that is held. It is never dropped from an outbox: a client that reads
//! too slowly for it is closed, and gets the state anew when it comes back. Missed events of a held
//! session may wait with it. Presence that comes before the welcome waits for it. ENDED (18) is
//! written likewise.

use std::rc::Rc;

use halley_link::{CloseReason, List};

use crate::conns::table::{Phase, flag};
use crate::sessions::delivery::Writer;
use crate::stats::Stat;
use crate::transport::{TRANSPORTS, Transport};

/// One text, encoded once for each kind of stream.
struct Texts<'a> {
    json: &'a [u8],
    encoded: [Option<Rc<[u8]>>; TRANSPORTS],
}

impl Texts<'_> {
    fn of(&mut self, transport: Transport) -> Rc<[u8]> {
        let kind = match transport {
            Transport::Deflate | Transport::DeflateNarrow => Transport::WebSocket,
            kind => kind,
        };
        let text = self.encoded[kind as usize].get_or_insert_with(|| {
            let mut out = Vec::with_capacity(self.json.len() + 32);
            kind.presence(&mut out, self.json);
            out.into()
        });
        Rc::clone(text)
    }
}

impl Writer<'_> {
    /// PRESENCE: tells these connections.
    pub fn presence(&mut self, json: &[u8], conns: List<'_, u64>) {
        let mut texts = Texts { json, encoded: [const { None }; TRANSPORTS] };
        let (mut told, mut stale) = (0, 0);
        for conn in conns.iter() {
            let Some((index, slot)) = self.io.conns.find(conn) else {
                stale += 1;
                continue;
            };
            // It asked whether a stream may be told (http.md 22.5), no more.
            if slot.transport == Transport::Poll {
                continue;
            }
            let (text, held) = (texts.of(slot.transport), slot.has(flag::BUFFERED));
            match slot.phase() {
                Phase::Live => {
                    if held {
                        self.io.conns.push_beside_replay(index, text.into());
                    } else {
                        self.io.conns.push(index, text.into());
                    }
                    told += 1;
                }
                Phase::Opening => {
                    self.waits_for_welcome(index, &text);
                    told += 1;
                }
                _ => stale += 1,
            }
        }
        self.io.conns.stats.add(Stat::PresenceTold, told);
        self.io.conns.stats.add(Stat::Stale, stale);
    }

    /// ENDED: which subscriptions have ended.
    pub fn ended(&mut self, index: u32, json: &[u8]) {
        let Some(slot) = self.io.conns.slot(index) else { return };
        let (phase, transport, held) = (slot.phase(), slot.transport, slot.has(flag::BUFFERED));
        let mut text = Vec::new();
        transport.ended(&mut text, json);
        match phase {
            Phase::Live if held => self.io.conns.push_beside_replay(index, text.into()),
            Phase::Live => self.io.conns.push(index, text.into()),
            Phase::Opening => self.waits_for_welcome(index, &text),
            _ => {}
        }
    }

    /// It is written behind the welcome.
    fn waits_for_welcome(&mut self, index: u32, text: &[u8]) {
        let bytes_max = self.io.conns.settings.outbox_bytes_max;
        let early = self.delivery.early.entry(index).or_default();
        if early.len() + text.len() > bytes_max {
            return self.io.conns.doom(index, CloseReason::SlowConsumer);
        }
        early.extend_from_slice(text);
    }
}
