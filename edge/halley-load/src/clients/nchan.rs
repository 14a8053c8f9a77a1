//! Nchan's server-sent events (nchan.io, "EventSource"): each message is the data of one event.

use super::event::Event;
use super::protocol::{Framing, Protocol, Sink, Who, push_get};
use super::stream::{Item, Stream, StreamError};
use crate::path::Path;

/// Streams from one subscriber location.
#[derive(Debug)]
pub struct Nchan {
    path: Path,
}

impl Nchan {
    /// Streams from this location.
    #[must_use]
    pub fn new(path: Path) -> Self {
        Self { path }
    }
}

impl Protocol for Nchan {
    fn framing(&self) -> Framing {
        Framing::Body
    }

    fn push_request(&self, host: &str, who: &Who<'_>, out: &mut Vec<u8>) {
        push_get(&self.path, host, who, &["Accept: text/event-stream\r\n"], out);
    }

    /// Nchan answers once the subscription stands.
    fn begin(&self, stream: &mut Stream, sink: Sink<'_>) {
        stream.welcome(sink);
    }

    fn read(&self, stream: &mut Stream, payload: &[u8], sink: Sink<'_>) -> Result<(), StreamError> {
        stream.lines(payload, |_, line| {
            if let Some(json) = line.strip_prefix(b"data:") {
                sink(Item::Event(Event { json }));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::stream_tests::{Got, chunked, ends_as, reads_as};

    fn nchan() -> Nchan {
        Nchan { path: "/sub/{channel}".parse().unwrap_or_else(|_| unreachable!()) }
    }

    #[test]
    fn the_request_is_for_the_channel() {
        let (who, mut out) =
            (Who { user: "17", token: None, channel: "g1", cursor: None }, Vec::new());
        nchan().push_request("h:1", &who, &mut out);
        let expected = "GET /sub/g1 HTTP/1.1\r\nHost: h:1\r\nAccept: text/event-stream\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn each_data_line_is_an_event() {
        let body = ": hi\n\nid: 1700000000:0\ndata: {\"t\":5}\n\nid: 1:1\ndata:{\"x\":1}\n\n";
        let expected = [Got::Welcome, Got::Event(Some(5)), Got::Event(None)];
        reads_as(&nchan(), &chunked(&[body]), &expected);
        let plain = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{body}");
        reads_as(&nchan(), plain.as_bytes(), &expected);
    }

    #[test]
    fn refusals_and_nonsense_end_the_stream() {
        let refused = ends_as(&nchan(), b"HTTP/1.1 403 Forbidden\r\n\r\n");
        assert_eq!(refused, StreamError::Refused(403));
        let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(300_000));
        assert!(matches!(ends_as(&nchan(), endless.as_bytes()), StreamError::Malformed(_)));
    }
}
