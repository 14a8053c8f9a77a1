//! A chunked answer without end, one message a line: what the servers of the 2008 article send, and
//! any server that is as plain.
//!
//! The first line is the server's welcome: who gets it gets what is published from then on. A
//! message is a JSON object and so begins with `{`; other lines are no messages.

use super::event::Event;
use super::protocol::{Framing, Protocol, Sink, Who, push_get};
use super::stream::{Item, Stream, StreamError};
use crate::path::Path;

/// Streams from one path.
#[derive(Debug)]
pub struct Chunked {
    path: Path,
}

impl Chunked {
    /// Streams from this path.
    #[must_use]
    pub fn new(path: Path) -> Self {
        Self { path }
    }
}

impl Protocol for Chunked {
    fn framing(&self) -> Framing {
        Framing::Body
    }

    fn push_request(&self, host: &str, who: &Who<'_>, out: &mut Vec<u8>) {
        push_get(&self.path, host, who, &[], out);
    }

    fn begin(&self, _stream: &mut Stream, _sink: Sink<'_>) {}

    fn read(&self, stream: &mut Stream, payload: &[u8], sink: Sink<'_>) -> Result<(), StreamError> {
        stream.lines(payload, |stream, json| {
            stream.welcome(sink);
            if json.starts_with(b"{") {
                sink(Item::Event(Event { json }));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::stream_tests::{Got, chunked, ends_as, reads_as};

    fn protocol() -> Chunked {
        Chunked { path: "/test/{user}".parse().unwrap_or_else(|_| unreachable!()) }
    }

    #[test]
    fn the_request_is_for_the_user() {
        let (who, mut out) =
            (Who { user: "17", token: None, channel: "g1", cursor: None }, Vec::new());
        protocol().push_request("h:1", &who, &mut out);
        assert_eq!(out, b"GET /test/17 HTTP/1.1\r\nHost: h:1\r\n\r\n");
    }

    #[test]
    fn lines_are_events_wherever_chunks_end() {
        let bytes = chunked(&["welc", "ome\n\n", "{\"t\":1}\n{\"t\"", ":2}\r\n\n", "{\"x\":0}\n"]);
        let events = [Some(1), Some(2), None].map(Got::Event);
        reads_as(&protocol(), &bytes, &[&[Got::Welcome], &events[..]].concat());
    }

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(ends_as(&protocol(), &chunked(&["{}\n", ""])), StreamError::Ended);
        let bad = [&chunked(&["{}\n"])[..], b"-5\r\n"].concat();
        assert!(matches!(ends_as(&protocol(), &bad), StreamError::Malformed(_)));
        let lines: Vec<String> = vec!["y".repeat(1000); 300];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert!(matches!(ends_as(&protocol(), &chunked(&lines)), StreamError::Malformed(_)));
    }
}
