//! NATS over WebSocket: the client protocol ([`crate::nats`]) as a stream of bytes in frames.
//!
//! The client answers INFO by CONNECT, SUB to its channel and PING; the PONG is its welcome, since
//! the subscription stands by then.

use super::event::Event;
use super::framing::{BINARY, push_frame};
use super::protocol::{Framing, Prompt, Protocol, Sink, Who, push_get};
use super::stream::{Item, Stream, StreamError};
use crate::nats::{self, Operation};
use crate::path::Path;
use crate::target::push_encoded;

/// Streams of one subject.
#[derive(Debug)]
pub struct Nats {
    path: Path,
}

impl Nats {
    /// Streams from a server whose WebSocket is at this path.
    #[must_use]
    pub fn new(path: Path) -> Self {
        Self { path }
    }
}

/// Reads all whole operations; returns their length.
fn read_all(stream: &mut Stream, bytes: &[u8], sink: Sink<'_>) -> Result<usize, StreamError> {
    let mut used = 0;
    while let Some((operation, length)) =
        nats::read(&bytes[used..]).map_err(StreamError::Malformed)?
    {
        used += length;
        match operation {
            Operation::Message(json) => sink(Item::Event(Event { json })),
            Operation::Ping => sink(Item::Prompt(Prompt::Heartbeat)),
            Operation::Pong => stream.welcome(sink),
            // Later ones are news about the cluster.
            Operation::Info if stream.greeted() => sink(Item::Prompt(Prompt::Greeting)),
            Operation::Info | Operation::Okay => {}
            Operation::Error(what) => return Err(StreamError::said(what)),
        }
    }
    Ok(used)
}

impl Protocol for Nats {
    fn framing(&self) -> Framing {
        Framing::Bytes
    }

    fn push_request(&self, host: &str, who: &Who<'_>, out: &mut Vec<u8>) {
        push_get(&self.path, host, who, &super::framing::UPGRADE, out);
    }

    fn begin(&self, _stream: &mut Stream, _sink: Sink<'_>) {}

    fn read(&self, stream: &mut Stream, payload: &[u8], sink: Sink<'_>) -> Result<(), StreamError> {
        if !stream.has_part() {
            let used = read_all(stream, payload, sink)?;
            return stream.add_part(&payload[used..]);
        }
        stream.add_part(payload)?;
        let part = stream.take_part();
        let used = read_all(stream, &part, sink)?;
        stream.add_part(&part[used..])
    }

    fn push_reply(&self, prompt: Prompt, who: &Who<'_>, out: &mut Vec<u8>) {
        match prompt {
            Prompt::Greeting => {
                let mut words = nats::CONNECT.to_vec();
                words.extend_from_slice(b"SUB ");
                push_encoded(who.channel, &mut words);
                words.extend_from_slice(b" 1\r\n");
                words.extend_from_slice(nats::PING);
                push_frame(BINARY, &words, out);
            }
            Prompt::Heartbeat => push_frame(BINARY, nats::PONG, out),
            Prompt::Admitted => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::stream_tests::{Got, binary, ends_as, reads_as, upgraded};

    fn protocol() -> Nats {
        Nats { path: "/".parse().unwrap_or_else(|_| unreachable!()) }
    }

    const WORDS: &[u8] = b"INFO {\"headers\":true}\r\nINFO {\"more\":1}\r\nPONG\r\nPING\r\n\
        MSG g1 1 8\r\n{\"t\":12}\r\nMSG g1 1 reply 7\r\n{\"x\":1}\r\nPONG\r\n+OK\r\n";
    const EXPECTED: [Got; 5] = [
        Got::Prompt(Prompt::Greeting),
        Got::Welcome,
        Got::Prompt(Prompt::Heartbeat),
        Got::Event(Some(12)),
        Got::Event(None),
    ];

    #[test]
    fn frames_may_cut_the_words_anywhere() {
        reads_as(&protocol(), &upgraded(&[&binary(WORDS)]), &EXPECTED);
        let letters: Vec<Vec<u8>> = WORDS.chunks(1).map(binary).collect();
        let letters: Vec<&[u8]> = letters.iter().map(Vec::as_slice).collect();
        reads_as(&protocol(), &upgraded(&letters), &EXPECTED);
        let fragments = [&b"\x02\x02PO"[..], b"\x89\x00\x80\x04NG\r\n"];
        let expected = [Got::Ping(Vec::new()), Got::Welcome];
        reads_as(&protocol(), &upgraded(&fragments), &expected);
    }

    #[test]
    fn the_client_says_who_it_is_and_what_it_wants() {
        let (who, mut out) =
            (Who { user: "17", token: None, channel: "g 1", cursor: None }, Vec::new());
        protocol().push_reply(Prompt::Greeting, &who, &mut out);
        let said = String::from_utf8_lossy(&out[6..]);
        assert_eq!(usize::from(out[1] & 0x7f), said.len(), "one masked frame");
        assert!(said.starts_with("CONNECT {\"verbose\":false"), "{said}");
        assert!(said.ends_with("}\r\nSUB g%201 1\r\nPING\r\n"), "{said}");
        out.clear();
        protocol().push_reply(Prompt::Heartbeat, &who, &mut out);
        assert_eq!(out, b"\x82\x86\0\0\0\0PONG\r\n");
    }

    #[test]
    fn errors_and_nonsense_end_the_stream() {
        let end = |words: &[u8]| ends_as(&protocol(), &upgraded(&[&binary(words)]));
        let said = StreamError::Said("'Authorization Violation'".to_owned());
        assert_eq!(end(b"INFO {}\r\n-ERR 'Authorization Violation'\r\n"), said);
        for words in [&b"HELLO\r\n"[..], b"MSG g1 1 x\r\n", b"MSG g1 1 2\r\n{}{}"] {
            assert!(matches!(end(words), StreamError::Malformed(_)));
        }
        let endless: Vec<Vec<u8>> = vec![binary(&[b'x'; 60_000]); 2];
        let endless: Vec<&[u8]> = endless.iter().map(Vec::as_slice).collect();
        let end = ends_as(&protocol(), &upgraded(&endless));
        assert!(matches!(end, StreamError::Malformed(_)), "{end:?}");
    }
}
