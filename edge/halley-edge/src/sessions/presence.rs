//! PRESENCE (`protocol/link.md` 15): who came to a subject or left it, for sessions that asked.
//!
//! It is state, not history: it has no cursor and no place among the events, so it is written at
//! once, also to a session that is held. It is never dropped from an outbox: a client that reads
//! too slowly for it is closed, and gets the state anew when it comes back. Missed events of a held
//! session may wait with it. Presence that comes before the welcome waits for it.

use std::rc::Rc;

use halley_link::{CloseReason, List};

use crate::conns::table::{Phase, flag};
use crate::sessions::Sessions;
use crate::sessions::base::io::Io;
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

impl Sessions {
    /// PRESENCE: tells these connections.
    pub fn presence(&mut self, io: &mut Io, json: &[u8], conns: List<'_, u64>) {
        let mut texts = Texts { json, encoded: [const { None }; TRANSPORTS] };
        let (mut told, mut stale) = (0, 0);
        for conn in conns.iter() {
            let Some((index, slot)) = io.conns.find(conn) else {
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
                        io.conns.push_beside_replay(index, text.into());
                    } else {
                        io.conns.push(index, text.into());
                    }
                    told += 1;
                }
                Phase::Opening => {
                    self.presence_waits(io, index, &text);
                    told += 1;
                }
                _ => stale += 1,
            }
        }
        io.conns.stats.add(Stat::PresenceTold, told);
        io.conns.stats.add(Stat::Stale, stale);
    }

    /// It is written behind the welcome.
    pub fn presence_waits(&mut self, io: &mut Io, index: u32, text: &[u8]) {
        let bytes_max = io.conns.settings.outbox_bytes_max;
        let early = self.early_presence.entry(index).or_default();
        if early.len() + text.len() > bytes_max {
            return self.end(io, index, CloseReason::SlowConsumer);
        }
        early.extend_from_slice(text);
    }
}
