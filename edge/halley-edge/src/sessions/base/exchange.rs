//! One HTTP request and its answer, while it lasts.

use halley_wire::http1::chunked::ChunkedDecoder;
use halley_wire::http1::cors::{Cors, Origins};
use halley_wire::http1::date::HttpDate;
use halley_wire::http1::head::{Request, Version};
use halley_wire::http1::response::ResponseOptions;

use crate::limits::places::Place;
use crate::sessions::base::first_message::FirstMessage;
use crate::sessions::base::form::Form;

/// How far a request was read.
#[derive(Default)]
pub enum Stage {
    /// A head is expected, or has begun.
    #[default]
    Head,
    /// A body of which so many bytes are still to come.
    Length(u64),
    /// A chunked body.
    Chunked(ChunkedDecoder),
    /// A body that the edge reads itself.
    Form(Box<Form>),
    /// Likewise, the first message of a WebSocket that is opened by it.
    Message(Box<FirstMessage>),
    /// The request is whole; the brain has it.
    Answer,
}

/// What an answer must know of its request.
pub struct Reply {
    version: Version,
    /// May the connection serve another request?
    pub keep_alive: bool,
    /// HEAD: the body is left out.
    pub head_only: bool,
    origin: Option<Box<[u8]>>,
    /// Pages of this origin may not read the answer.
    refuses_origin: bool,
    /// It is a WebSocket by now: frames are answered.
    is_websocket: bool,
}

impl Default for Reply {
    /// For a request that couldn't be read.
    fn default() -> Self {
        Reply {
            version: Version::Http11,
            keep_alive: false,
            head_only: false,
            origin: None,
            refuses_origin: false,
            is_websocket: false,
        }
    }
}

impl Reply {
    /// To this request, which comes from a page that isn't let in, or doesn't.
    pub fn to(request: &Request<'_>, is_foreign: bool) -> Reply {
        Reply {
            version: request.version,
            keep_alive: request.keep_alive,
            head_only: request.method == "HEAD",
            origin: request.header("origin").map(Into::into),
            refuses_origin: is_foreign,
            is_websocket: false,
        }
    }

    /// The same, once the upgrade was answered.
    pub fn of_websocket(self) -> Reply {
        Reply { is_websocket: true, ..self }
    }

    /// Is it a WebSocket, which gets no HTTP answer any more?
    pub fn is_websocket(&self) -> bool {
        self.is_websocket
    }

    /// The same, for the connection's last answer.
    pub fn last(self) -> Reply {
        Reply { keep_alive: false, ..self }
    }

    /// As the wire crate wants it.
    pub fn options(&self, origins: &Origins, date: HttpDate) -> ResponseOptions<'_> {
        ResponseOptions {
            version: self.version,
            keep_alive: self.keep_alive,
            head_only: self.head_only,
            cors: Cors {
                refused: self.origin.as_deref().filter(|_| self.refuses_origin),
                ..origins.grant(self.origin.as_deref())
            },
            date: Some(date),
            ..ResponseOptions::default()
        }
    }
}

/// A request in the middle. Bounds: `unparsed` holds at most one read and a head that is not whole.
#[derive(Default)]
pub struct Exchange {
    /// Bytes that were read and not used: a head's beginning, or what was sent ahead of the answer.
    pub unparsed: Vec<u8>,
    /// How far it was read.
    pub stage: Stage,
    /// Of the request that was read last.
    pub reply: Reply,
    /// Bytes of body that may still be sent to the brain (8.3).
    pub window: usize,
    /// When the client's body is later than its pace allows, on the worker's clock in microseconds;
    /// 0 while the client isn't waited for.
    pub late_us: u64,
    /// The second from which on nothing more of the body is passed on: its sender's token has
    /// expired. [`FOREVER`](crate::sessions::users::identity::FOREVER) without a token.
    pub until_s: u32,
    /// The client waits for `100 Continue`.
    pub expects: bool,
    /// The request's place while the brain has it and has not answered it to the end.
    pub in_flight: Option<Place>,
    /// Less than half of what was read last of the body was data.
    pub small_chunks: bool,
    /// It stands among the bodies in small chunks that wait for a read.
    pub queued: bool,
    /// Bytes of the answer that the brain has yet to send; `None` before its head.
    pub answer_left: Option<u64>,
}

impl Exchange {
    /// Has the brain yet to answer it to the end?
    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Is it the brain that is waited for: for its answer, or until it takes more of the body?
    pub fn brain_is_next(&self) -> bool {
        matches!(self.stage, Stage::Answer) || self.is_in_flight() && self.window == 0
    }

    /// Is it the client's body that is waited for?
    pub fn body_is_next(&self) -> bool {
        let awaited = matches!(
            self.stage,
            Stage::Length(_) | Stage::Chunked(_) | Stage::Form(_) | Stage::Message(_)
        );
        awaited && !self.brain_is_next()
    }

    /// So many bytes of the body came; `now_us` is the time, `grace_us` how far it may ever be
    /// behind `per_s` bytes a second (http.md 16.6).
    pub fn came(&mut self, bytes: usize, now_us: u64, grace_us: u64, per_s: u64) {
        let earned = (bytes as u64).saturating_mul(1_000_000) / per_s.max(1);
        let late_us = if self.late_us == 0 { now_us + grace_us } else { self.late_us + earned };
        self.late_us = late_us.min(now_us + grace_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    /// http.md 16.6: "never further behind `pace_bytes_per_s_min` than `pace_grace_ms`".
    #[test]
    fn a_body_keeps_its_pace() {
        // How many seconds one lasts that brings so many bytes every so often, of 60.
        let lasts = |bytes: usize, every_us: u64| {
            let mut exchange = Exchange::default();
            exchange.came(0, S, 10 * S, 1_000);
            let mut now = S;
            while now < 61 * S {
                now += every_us;
                if now >= exchange.late_us {
                    return (exchange.late_us - S) / S;
                }
                exchange.came(bytes, now, 10 * S, 1_000);
            }
            60
        };
        assert_eq!(lasts(1, 9 * S), 10, "a byte now and then");
        assert_eq!(lasts(1, S / 100), 11, "a tenth of the pace");
        assert_eq!(lasts(1_000, S), 60, "the pace");
        assert_eq!(lasts(9_000, 9 * S), 60, "the pace, in pieces");
        assert_eq!(lasts(65_536, 11 * S), 10, "no more than the grace is saved up");
        assert_eq!(lasts(1, 400), 60, "pieces of less than a millisecond count");
    }
}
