//! The beginning of an answer, up to the welcome, by the kind of its stream.

use std::rc::Rc;

use halley_wire::http1::body::Framing;
use halley_wire::http1::response::ResponseOptions;
use halley_wire::websocket::encode;
use halley_wire::websocket::handshake::{self, AcceptKey, Agreed};
use halley_wire::{article, ndjson, poll, sse};

use crate::sessions::users::identity::Principal;

/// By the kind of its stream.
pub enum Head {
    /// Server-sent events.
    Sse,
    /// A line of JSON an event.
    Ndjson,
    /// The page of 2008, whose welcome names the path.
    Article {
        /// As the request has it.
        path: String,
        /// Of the body.
        framing: Framing,
    },
    /// The end of a handshake.
    WebSocket {
        /// Answer to the client's key.
        accept: AcceptKey,
        /// What is agreed on.
        agreed: Agreed,
    },
    /// The first message has opened it: the handshake has ended before.
    Message {
        /// It goes on behind a cursor of its own, so no welcome would follow.
        has_cursor: bool,
    },
    /// Nothing: a poll's answer is written when it has one.
    Poll,
}

impl Head {
    /// Has the client got its HTTP answer already?
    pub fn is_answered(&self) -> bool {
        matches!(self, Head::Message { .. })
    }

    /// Writes it.
    pub fn write(&self, out: &mut Vec<u8>, whose: &Principal<'_>, options: &ResponseOptions<'_>) {
        match self {
            Head::Sse => sse::head(out, options),
            Head::Ndjson => ndjson::head(out, options),
            Head::Article { path, framing } => {
                article::head(out, options);
                if !options.head_only {
                    article::welcome(out, *framing, path, &whose.user);
                }
            }
            Head::WebSocket { accept, agreed } => {
                handshake::response_with(out, accept, *agreed, options);
            }
            Head::Message { has_cursor: true } => encode::text(out, "{}"),
            Head::Message { has_cursor: false } => {}
            // Only HEAD is answered by this.
            Head::Poll if options.head_only => {
                let events: &[Rc<[u8]>] = &[];
                let answer =
                    poll::Answer { gap: None, events, cursor: b"", more: false, end: None };
                poll::answer(out, &answer, options);
            }
            Head::Poll => {}
        }
    }
}
