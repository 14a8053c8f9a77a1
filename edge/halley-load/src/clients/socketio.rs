//! Socket.IO over WebSocket alone (Engine.IO protocol 4, Socket.IO protocol 5): each message is one
//! packet, its types the first digits.
//!
//! | from the server | to the server |
//! | --- | --- |
//! | `0{…}` open | `40` connect to the default namespace |
//! | `40{…}` connected | `42["join",CHANNEL]`, which the application answers by nothing |
//! | `42["m",DATA]` an event | |
//! | `2` ping | `3` pong |
//! | `44{…}` refused, `41` and `1` over | |
//!
//! The welcome is the connection to the namespace: the protocol has no word for what a join did.

use super::event::Event;
use super::framing::{TEXT, push_frame};
use super::protocol::{Framing, Prompt, Protocol, Sink, Who, push_get};
use super::stream::{Item, Stream, StreamError};
use crate::path::Path;

/// Streams of one channel.
#[derive(Debug)]
pub struct SocketIo {
    path: Path,
}

impl SocketIo {
    /// Streams from a server whose Engine.IO is at this path.
    #[must_use]
    pub fn new(path: Path) -> Self {
        Self { path }
    }
}

impl Protocol for SocketIo {
    fn framing(&self) -> Framing {
        Framing::Messages
    }

    fn push_request(&self, host: &str, who: &Who<'_>, out: &mut Vec<u8>) {
        push_get(&self.path, host, who, &super::framing::UPGRADE, out);
    }

    fn begin(&self, _stream: &mut Stream, _sink: Sink<'_>) {}

    fn read(&self, stream: &mut Stream, payload: &[u8], sink: Sink<'_>) -> Result<(), StreamError> {
        match payload {
            [b'4', b'2', b'[', b'"', b'm', b'"', b',', json @ ..] => {
                sink(Item::Event(Event { json }));
            }
            // Other events, and answers to ones.
            [b'4', b'2' | b'3', ..] | b"3" | b"6" => {}
            b"2" => sink(Item::Prompt(Prompt::Heartbeat)),
            [b'0', b'{', ..] => sink(Item::Prompt(Prompt::Greeting)),
            [b'4', b'0', ..] => {
                sink(Item::Prompt(Prompt::Admitted));
                stream.welcome(sink);
            }
            [b'4', b'4', what @ ..] => return Err(StreamError::said(what)),
            b"1" | [b'4', b'1', ..] => return Err(StreamError::Ended),
            _ => return Err(StreamError::Malformed("what no Socket.IO server says")),
        }
        Ok(())
    }

    fn push_reply(&self, prompt: Prompt, who: &Who<'_>, out: &mut Vec<u8>) {
        match prompt {
            Prompt::Greeting => push_frame(TEXT, b"40", out),
            Prompt::Admitted => {
                let join = format!("42[\"join\",{}]", serde_json::Value::from(who.channel));
                push_frame(TEXT, join.as_bytes(), out);
            }
            Prompt::Heartbeat => push_frame(TEXT, b"3", out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::stream_tests::{Got, ends_as, reads_as, text, upgraded};

    fn protocol() -> SocketIo {
        SocketIo { path: "/socket.io/?EIO=4".parse().unwrap_or_else(|_| unreachable!()) }
    }

    fn packets(packets: &[&str]) -> Vec<u8> {
        let frames: Vec<Vec<u8>> = packets.iter().map(|packet| text(packet)).collect();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        upgraded(&frames)
    }

    #[test]
    fn a_connection_from_its_greeting_to_its_events() {
        let bytes = packets(&[
            "0{\"sid\":\"a\",\"upgrades\":[],\"pingInterval\":25000}",
            "40{\"sid\":\"b\"}",
            "42[\"m\",{\"t\":77,\"pad\":\"x\"}]",
            "2",
            "42[\"news\",{\"t\":1}]",
            "42[\"m\",\"{\\\"t\\\":78}\"]",
            "430[]",
            "42[\"m\",0]",
        ]);
        let expected = [
            Got::Prompt(Prompt::Greeting),
            Got::Prompt(Prompt::Admitted),
            Got::Welcome,
            Got::Event(Some(77)),
            Got::Prompt(Prompt::Heartbeat),
            Got::Event(Some(78)),
            Got::Event(None),
        ];
        reads_as(&protocol(), &bytes, &expected);
    }

    #[test]
    fn the_client_connects_and_joins() {
        let (who, mut out) =
            (Who { user: "17", token: None, channel: "g\"1", cursor: None }, Vec::new());
        for prompt in [Prompt::Greeting, Prompt::Admitted, Prompt::Heartbeat] {
            protocol().push_reply(prompt, &who, &mut out);
        }
        let join = b"42[\"join\",\"g\\\"1\"]";
        let expected = [b"\x81\x82\0\0\0\x0040\x81\x91\0\0\0\0", &join[..], b"\x81\x81\0\0\0\x003"];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn refusals_and_nonsense_end_the_stream() {
        let end = |packet| ends_as(&protocol(), &packets(&["0{}", packet]));
        let refused = StreamError::Said("{\"message\":\"Not authorized\"}".to_owned());
        assert_eq!(end("44{\"message\":\"Not authorized\"}"), refused);
        assert_eq!(end("41"), StreamError::Ended);
        assert_eq!(end("1"), StreamError::Ended);
        for packet in ["", "4", "0", "22", "451-[\"m\",{}]", "7", "{}"] {
            let end = end(packet);
            assert!(matches!(end, StreamError::Malformed(_)), "{packet}: {end:?}");
        }
    }
}
