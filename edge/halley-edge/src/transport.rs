//! A stream on the wire: one event, encoded once per kind of stream.

use halley_wire::http1::body::Framing;
use halley_wire::http1::head::Version;
use halley_wire::websocket::extension::Agreement;
use halley_wire::websocket::{close_code, encode};
use halley_wire::{Gap, article, ndjson, sse};

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
    /// A long-poll: its events are parts of one answer (`poll.rs`).
    Poll,
    /// WebSocket with permessage-deflate: what is said to all of them is compressed.
    Deflate,
    /// The same for a client with a small window: shorter messages only ([`Agreement::Narrow`]),
    /// which are those of [`Transport::Deflate`]; it has no encoding of its own.
    DeflateNarrow,
}

/// Why a session ends whose token has expired (http.md 14.6).
pub const EXPIRED: &str = "token_expired";
/// A WebSocket's close code then, of those that are left to applications (RFC 6455 7.4.2).
const TOKEN_CODE: u16 = 4_401;

/// Number of encodings.
pub const TRANSPORTS: usize = 9;
const _: () = assert!(Transport::Deflate as usize == TRANSPORTS - 1);

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

    /// WebSocket, with what was agreed on about compression.
    pub fn websocket(agreement: Option<Agreement>) -> Transport {
        match agreement {
            None => Transport::WebSocket,
            Some(Agreement::Usual | Agreement::Bounded) => Transport::Deflate,
            Some(Agreement::Narrow) => Transport::DeflateNarrow,
        }
    }

    /// Is it a WebSocket, compressed or not?
    pub fn is_websocket(self) -> bool {
        matches!(self, Transport::WebSocket | Transport::Deflate | Transport::DeflateNarrow)
    }

    /// Was permessage-deflate agreed on?
    pub fn is_deflate(self) -> bool {
        matches!(self, Transport::Deflate | Transport::DeflateNarrow)
    }

    /// The transport's number on the link (2.6).
    pub fn on_link(self) -> u8 {
        match self {
            Transport::SseChunked | Transport::SsePlain => 1,
            Transport::NdjsonChunked | Transport::NdjsonPlain => 2,
            Transport::WebSocket | Transport::Deflate | Transport::DeflateNarrow => 3,
            Transport::ArticleChunked | Transport::ArticlePlain => 4,
            Transport::Poll => 5,
        }
    }

    /// How its bytes are framed.
    pub fn framing(self) -> Framing {
        match self {
            Transport::SseChunked | Transport::NdjsonChunked | Transport::ArticleChunked => {
                Framing::Chunked
            }
            _ => Framing::Plain,
        }
    }

    /// Appends what a new session reads first, behind the head of the answer (http.md 7.3, 7.4,
    /// 9.6). `cursor` is what it goes on behind, empty if the client knows it.
    pub fn welcome(self, out: &mut Vec<u8>, retry_ms: u32, cursor: &[u8]) {
        let framing = self.framing();
        match self {
            Transport::SseChunked | Transport::SsePlain => {
                sse::welcome(out, framing, retry_ms, cursor);
            }
            Transport::NdjsonChunked | Transport::NdjsonPlain => {
                ndjson::heartbeat(out, framing, cursor);
            }
            Transport::WebSocket | Transport::Deflate | Transport::DeflateNarrow => {
                cursor_message(out, cursor);
            }
            Transport::ArticleChunked | Transport::ArticlePlain | Transport::Poll => {}
        }
    }

    /// Appends one event, not compressed; the arguments are those of an item of the link (7.1,
    /// 7.2).
    pub fn event(self, out: &mut Vec<u8>, cursor: &[u8], event: &[u8], data_offset: u32) {
        let framing = self.framing();
        match self {
            Transport::SseChunked | Transport::SsePlain => {
                sse::encode_event(out, framing, cursor, event);
            }
            Transport::NdjsonChunked | Transport::NdjsonPlain => {
                ndjson::encode_event(out, framing, cursor, event);
            }
            Transport::WebSocket | Transport::Deflate | Transport::DeflateNarrow => {
                encode::event(out, cursor, event);
            }
            Transport::ArticleChunked | Transport::ArticlePlain => {
                let data = article::data_of(event, data_offset as usize).unwrap_or_default();
                article::encode_event(out, framing, data);
            }
            Transport::Poll => out.extend_from_slice(event),
        }
    }

    /// Appends a gap event (http.md 10.3).
    pub fn gap(self, out: &mut Vec<u8>, cursor: &[u8], gap: &Gap<'_>) {
        let framing = self.framing();
        match self {
            Transport::SseChunked | Transport::SsePlain => {
                sse::encode_gap(out, framing, cursor, &gap.object());
            }
            Transport::NdjsonChunked | Transport::NdjsonPlain => {
                ndjson::encode_event(out, framing, cursor, &gap.object());
            }
            Transport::WebSocket | Transport::Deflate | Transport::DeflateNarrow => {
                encode::event(out, cursor, &gap.object());
            }
            Transport::ArticleChunked | Transport::ArticlePlain | Transport::Poll => {}
        }
    }

    /// Appends what is told of presence (http.md 22.7).
    pub fn presence(self, out: &mut Vec<u8>, json: &[u8]) {
        let framing = self.framing();
        match self {
            Transport::SseChunked | Transport::SsePlain => {
                sse::encode_presence(out, framing, json);
            }
            Transport::NdjsonChunked | Transport::NdjsonPlain => {
                ndjson::encode_event(out, framing, b"", json);
            }
            Transport::WebSocket | Transport::Deflate | Transport::DeflateNarrow => {
                encode::event(out, b"", json);
            }
            Transport::ArticleChunked | Transport::ArticlePlain | Transport::Poll => {}
        }
    }

    /// Appends what keeps a silent stream open, with the cursor where one is known.
    pub fn heartbeat(self, out: &mut Vec<u8>, cursor: &[u8]) {
        let framing = self.framing();
        match self {
            Transport::SseChunked | Transport::SsePlain => sse::heartbeat(out, framing, cursor),
            Transport::NdjsonChunked | Transport::NdjsonPlain => {
                ndjson::heartbeat(out, framing, cursor);
            }
            Transport::WebSocket | Transport::Deflate | Transport::DeflateNarrow => {
                cursor_message(out, cursor);
                encode::ping(out, b"");
            }
            Transport::ArticleChunked | Transport::ArticlePlain => article::heartbeat(out, framing),
            Transport::Poll => {}
        }
    }

    /// Appends what a client shall know before the edge stops (http.md 13.4).
    pub fn last_words(self, out: &mut Vec<u8>, cursor: &[u8], retry_ms: u64) {
        let framing = self.framing();
        match self {
            Transport::SseChunked | Transport::SsePlain => {
                sse::last_words(out, framing, retry_ms, cursor);
            }
            Transport::NdjsonChunked | Transport::NdjsonPlain if !cursor.is_empty() => {
                ndjson::heartbeat(out, framing, cursor);
            }
            _ if self.is_websocket() => cursor_message(out, cursor),
            _ => {}
        }
    }

    /// Appends which subscriptions have ended (http.md 21.9).
    pub fn ended(self, out: &mut Vec<u8>, json: &[u8]) {
        match self {
            Transport::SseChunked | Transport::SsePlain => {
                sse::encode_ended(out, self.framing(), json);
            }
            _ => self.presence(out, json),
        }
    }

    /// Appends that the session's token is good no longer and why, and the stream's end.
    pub fn token_ended(self, out: &mut Vec<u8>, cursor: &[u8], reason: &str) {
        let framing = self.framing();
        let json = format!("{{\"end\":{{\"reason\":\"{reason}\"}}}}");
        let json = json.as_bytes();
        match self {
            Transport::SseChunked | Transport::SsePlain => {
                sse::encode_end(out, framing, cursor, json);
            }
            Transport::NdjsonChunked | Transport::NdjsonPlain => {
                ndjson::encode_event(out, framing, cursor, json);
            }
            Transport::WebSocket | Transport::Deflate | Transport::DeflateNarrow => {
                encode::event(out, cursor, json);
                return encode::close(out, Some(TOKEN_CODE), reason);
            }
            Transport::ArticleChunked | Transport::ArticlePlain | Transport::Poll => {}
        }
        self.end(out, reason);
    }

    /// Appends the stream's end, `reason` where the transport has a place for it.
    pub fn end(self, out: &mut Vec<u8>, reason: &str) {
        let framing = self.framing();
        match self {
            Transport::SseChunked | Transport::SsePlain => sse::end(out, framing),
            Transport::NdjsonChunked | Transport::NdjsonPlain => ndjson::end(out, framing),
            Transport::WebSocket | Transport::Deflate | Transport::DeflateNarrow => {
                encode::close(out, Some(close_code::GOING_AWAY), reason);
            }
            Transport::ArticleChunked | Transport::ArticlePlain => article::end(out, framing),
            Transport::Poll => {}
        }
    }
}

/// A WebSocket's message that has only a cursor.
fn cursor_message(out: &mut Vec<u8>, cursor: &[u8]) {
    if !cursor.is_empty() {
        encode::event(out, cursor, b"{}");
    }
}
