//! One connection through the crate's parts, as a worker of the edge reads it: heads, bodies, then
//! perhaps WebSocket frames, in reads of any size. The tables of `protocol/` and the fuzz target
//! `connection` are walked through it.
//!
//! Every answer is thought to be written at once, so the next request is read right after the one
//! before. Bounds: only the beginning of one head is kept of the input.

use std::borrow::Cow;

use halley_wire::HttpError;
use halley_wire::http1::chunked::ChunkedDecoder;
use halley_wire::http1::head::{BodyFraming, HeadLimits, Request, parse_request};
use halley_wire::websocket::extension::Offers;
use halley_wire::websocket::{Decoder, Event, Inflater, Rules, handshake};

/// The path on which a WebSocket is opened; an upgrade anywhere else is a request like others.
pub const WEBSOCKET_PATH: &str = "/v1/ws";

/// A request that was accepted, and as much of its body as came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Method and target.
    pub line: String,
    /// The fields that travel on.
    pub fields: Vec<(String, Vec<u8>)>,
    /// What came of the body.
    pub body: Vec<u8>,
    /// Did the body come to its end?
    pub whole: bool,
}

/// What the bytes of a connection meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A request that is the brain's to answer.
    Request(Seen),
    /// A request, or what should be one, that is answered by an error.
    Refused(HttpError),
    /// From here on there are frames.
    Upgraded,
    /// One frame's or message's event.
    Event(Event<'static>),
    /// The frames broke a rule: the code of the close.
    Failed(u16),
}

enum Stage {
    Head,
    Length(u64),
    Chunked(ChunkedDecoder),
    Frames(Decoder),
    Closed,
}

/// What is known of one connection.
pub struct Connection {
    limits: HeadLimits,
    rules: Rules,
    kept: Vec<u8>,
    stage: Stage,
    /// Where permessage-deflate was agreed on.
    inflater: Option<Inflater>,
    keep_alive: bool,
    /// All that was said so far.
    pub said: Vec<Said>,
    /// So many bytes were read and understood, while nothing is wrong.
    pub used: usize,
}

impl Connection {
    /// A connection at its beginning.
    pub fn new(limits: HeadLimits, rules: Rules) -> Connection {
        let (kept, said, stage) = (Vec::new(), Vec::new(), Stage::Head);
        Connection { limits, rules, kept, stage, inflater: None, keep_alive: true, said, used: 0 }
    }

    /// Is nothing incomplete, so that the next byte begins a request or a frame?
    pub fn is_open(&self) -> bool {
        match &self.stage {
            Stage::Head => self.kept.is_empty(),
            Stage::Frames(decoder) => decoder.is_idle(),
            Stage::Length(_) | Stage::Chunked(_) | Stage::Closed => false,
        }
    }

    /// Is nothing more read?
    pub fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closed)
    }

    /// What comes next, in the words of the tables.
    pub fn then(&self) -> &'static str {
        match () {
            () if self.is_closed() => "closed",
            () if self.is_open() => "open",
            () => "waits",
        }
    }

    /// How many bytes wait for the rest of their head.
    pub fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// Reads on.
    pub fn read(&mut self, bytes: &[u8]) {
        let mut input = std::mem::take(&mut self.kept);
        input.extend_from_slice(bytes);
        let mut at = 0;
        while at < input.len() && !self.is_closed() {
            let used = self.step(&mut input[at..]);
            self.used += used;
            at += used;
            if used == 0 && matches!(self.stage, Stage::Head) {
                self.kept = input.split_off(at);
                return;
            }
        }
    }

    /// One head, a part of a body, or a frame: how many bytes it took, 0 if more are needed or
    /// none are wanted.
    fn step(&mut self, input: &mut [u8]) -> usize {
        match &mut self.stage {
            Stage::Closed => 0,
            Stage::Head => self.head(input),
            Stage::Length(left) => {
                let n = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                *left -= n as u64;
                let done = *left == 0;
                self.body(&input[..n], done);
                n
            }
            Stage::Chunked(decoder) => match decoder.decode(input) {
                Ok(chunk) => {
                    self.body(&input[chunk.data], chunk.done);
                    chunk.consumed
                }
                Err(error) => self.refuse(error),
            },
            Stage::Frames(decoder) => {
                match decoder.decode_with(input, &self.rules, self.inflater.as_mut()) {
                    Ok(decoded) => {
                        let closes = matches!(decoded.event, Some(Event::Close(_)));
                        self.said.extend(decoded.event.map(|event| Said::Event(into_owned(event))));
                        if closes {
                            self.stage = Stage::Closed;
                        }
                        decoded.consumed
                    }
                    Err(failure) => {
                        self.said.push(Said::Failed(failure.code));
                        self.stage = Stage::Closed;
                        0
                    }
                }
            }
        }
    }

    fn head(&mut self, input: &[u8]) -> usize {
        let request = match parse_request(input, &self.limits) {
            Ok(Some(request)) => request,
            Ok(None) => return 0,
            Err(error) => return self.refuse(error),
        };
        self.keep_alive = request.keep_alive;
        let head_bytes = request.head_bytes;
        if request.target.split('?').next() == Some(WEBSOCKET_PATH) {
            match handshake::accept(&request) {
                Ok(_) => {
                    self.said.push(Said::Upgraded);
                    let agreed = matches!(Offers::of(&request), Offers::Accepted(_));
                    self.inflater = agreed.then(Inflater::new);
                    self.stage = Stage::Frames(Decoder::new());
                }
                Err(error) => {
                    self.said.push(Said::Refused(error));
                    if !request.keep_alive || request.body != BodyFraming::None {
                        self.stage = Stage::Closed;
                    }
                }
            }
            return head_bytes;
        }
        self.said.push(Said::Request(seen(&request)));
        match request.body {
            BodyFraming::None => self.body(&[], true),
            BodyFraming::Length(length) => self.stage = Stage::Length(length),
            BodyFraming::Chunked => self.stage = Stage::Chunked(ChunkedDecoder::new()),
        }
        head_bytes
    }

    fn body(&mut self, bytes: &[u8], done: bool) {
        if let Some(Said::Request(seen)) = self.said.last_mut() {
            seen.body.extend_from_slice(bytes);
            seen.whole = done;
        }
        if done {
            self.stage = if self.keep_alive { Stage::Head } else { Stage::Closed };
        }
    }

    fn refuse(&mut self, error: HttpError) -> usize {
        self.said.push(Said::Refused(error));
        self.stage = Stage::Closed;
        0
    }
}

fn seen(request: &Request<'_>) -> Seen {
    let fields = request.headers.end_to_end();
    Seen {
        line: format!("{} {}", request.method, halley_wire::target::with_path(request.target)),
        fields: fields.map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
        body: Vec::new(),
        whole: false,
    }
}

/// The same event, without the input.
pub fn into_owned(event: Event<'_>) -> Event<'static> {
    let owned = |bytes: Cow<'_, [u8]>| Cow::Owned(bytes.into_owned());
    match event {
        Event::Text(text) => Event::Text(Cow::Owned(text.into_owned())),
        Event::Binary(bytes) => Event::Binary(owned(bytes)),
        Event::Ping(bytes) => Event::Ping(owned(bytes)),
        Event::Pong(bytes) => Event::Pong(owned(bytes)),
        Event::Close(code) => Event::Close(code),
    }
}
