//! What a stream looks like on the wire: one event, encoded once per kind of stream.

use halley_wire::http1::body::Framing;
use halley_wire::http1::head::Version;
use halley_wire::websocket::{close_code, encode};
use halley_wire::{article, ndjson, sse};

/// A transport and its framing. The numbers index the encodings of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// Server-sent events in chunks (HTTP/1.1).
    SseChunked,
    /// Server-sent events until the close (HTTP/1.0).
    SsePlain,
    /// JSON lines in chunks.
    NdjsonChunked,
    /// JSON lines until the close.
    NdjsonPlain,
    /// WebSocket.
    WebSocket,
    /// The article's endpoint in chunks.
    ArticleChunked,
    /// The article's endpoint until the close.
    ArticlePlain,
}

/// Number of kinds.
pub const TRANSPORTS: usize = 7;

impl Transport {
    /// Server-sent events for a client of this version.
    pub fn sse(version: Version) -> Transport {
        match version {
            Version::Http11 => Transport::SseChunked,
            Version::Http10 => Transport::SsePlain,
        }
    }

    /// JSON lines for a client of this version.
    pub fn ndjson(version: Version) -> Transport {
        match version {
            Version::Http11 => Transport::NdjsonChunked,
            Version::Http10 => Transport::NdjsonPlain,
        }
    }

    /// The article's endpoint for a client of this version.
    pub fn article(version: Version) -> Transport {
        match version {
            Version::Http11 => Transport::ArticleChunked,
            Version::Http10 => Transport::ArticlePlain,
        }
    }

    /// The transport's number on the link (2.6).
    pub fn on_link(self) -> u8 {
        match self {
            Transport::SseChunked | Transport::SsePlain => 1,
            Transport::NdjsonChunked | Transport::NdjsonPlain => 2,
            Transport::WebSocket => 3,
            Transport::ArticleChunked | Transport::ArticlePlain => 4,
        }
    }

    fn framing(self) -> Framing {
        match self {
            Transport::SseChunked | Transport::NdjsonChunked | Transport::ArticleChunked => {
                Framing::Chunked
            }
            _ => Framing::Plain,
        }
    }

    /// Appends one event; the arguments are those of DELIVER (7.1, 7.2).
    pub fn event(self, out: &mut Vec<u8>, cursor: &[u8], event: &[u8], data_offset: u32) {
        let framing = self.framing();
        match self {
            Transport::SseChunked | Transport::SsePlain => {
                sse::encode_event(out, framing, cursor, event);
            }
            Transport::NdjsonChunked | Transport::NdjsonPlain => {
                ndjson::encode_event(out, framing, cursor, event);
            }
            Transport::WebSocket => encode::event(out, cursor, event),
            Transport::ArticleChunked | Transport::ArticlePlain => {
                let data = article::data_of(event, data_offset as usize).unwrap_or_default();
                article::encode_event(out, framing, data);
            }
        }
    }

    /// Appends what keeps a silent stream open.
    pub fn heartbeat(self, out: &mut Vec<u8>) {
        let framing = self.framing();
        match self {
            Transport::SseChunked | Transport::SsePlain => sse::heartbeat(out, framing),
            Transport::NdjsonChunked | Transport::NdjsonPlain => ndjson::heartbeat(out, framing),
            Transport::WebSocket => encode::ping(out, b""),
            Transport::ArticleChunked | Transport::ArticlePlain => article::heartbeat(out, framing),
        }
    }

    /// Appends the stream's end, `reason` where the transport has a place for it.
    pub fn end(self, out: &mut Vec<u8>, reason: &str) {
        let framing = self.framing();
        match self {
            Transport::SseChunked | Transport::SsePlain => sse::end(out, framing),
            Transport::NdjsonChunked | Transport::NdjsonPlain => ndjson::end(out, framing),
            Transport::WebSocket => encode::close(out, Some(close_code::GOING_AWAY), reason),
            Transport::ArticleChunked | Transport::ArticlePlain => article::end(out, framing),
        }
    }
}
