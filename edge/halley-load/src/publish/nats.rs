//! NATS over TCP ([`crate::nats`]): `PUB` per event, one after the other without an answer, as its
//! clients publish. A PING is the fence: its PONG says that the server has taken all before it.

use std::fmt::Write as _;
use std::io::Write as _;

use super::events::Events;
use super::protocol::{Answer, BadAnswer, Protocol, Said};
use crate::nats::{self, Operation};
use crate::target::push_encoded;

/// The status of what a PONG has confirmed: NATS itself has none.
const TAKEN: u16 = 200;

/// Words for one server.
#[derive(Debug)]
pub struct Nats {
    name: String,
    data: Vec<u8>,
}

impl Nats {
    /// Has said nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { name: String::new(), data: Vec::new() }
    }
}

impl Protocol for Nats {
    fn greeting(&self) -> &'static [u8] {
        nats::CONNECT
    }

    fn fence(&self) -> Option<&'static [u8]> {
        Some(nats::PING)
    }

    fn push_request(
        &mut self,
        events: &mut Events,
        stamp_ns: u64,
        request: &mut Vec<u8>,
        about: &mut Vec<u64>,
    ) {
        // Writing to a String or a Vec can't fail.
        for _ in 0..events.batch() {
            let event = events.draw();
            about.push(event.subject);
            self.name.clear();
            let _ = write!(self.name, "{}", events.name(event.subject));
            self.data.clear();
            events.push_data(stamp_ns, event.number, &mut self.data);
            request.extend_from_slice(b"PUB ");
            push_encoded(&self.name, request);
            let _ = write!(request, " {}\r\n", self.data.len());
            request.extend_from_slice(&self.data);
            request.extend_from_slice(b"\r\n");
        }
    }

    fn read(&self, bytes: &[u8]) -> Result<Option<(Said, usize)>, BadAnswer> {
        let Some((operation, length)) = nats::read(bytes)? else { return Ok(None) };
        let said = match operation {
            Operation::Pong => Said::Answer(Answer {
                status: TAKEN,
                accepted: u64::MAX,
                sessions: 0,
                close: false,
            }),
            Operation::Ping => Said::Prompt(nats::PONG),
            Operation::Error(what) => {
                return Err(BadAnswer(format!("-ERR {}", String::from_utf8_lossy(what))));
            }
            Operation::Info | Operation::Okay | Operation::Message(_) => Said::Nothing,
        };
        Ok(Some((said, length)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::events::tests::{events, form};
    use super::*;

    #[test]
    fn events_follow_each_other() {
        let (mut request, mut about) = (Vec::new(), Vec::new());
        let mut events = events("groups:1", form(2, 30));
        Nats::new().push_request(&mut events, 5, &mut request, &mut about);
        let one = "PUB g0 30\r\n{\"t\":5,\"pad\":\"xxxxxxxxxxxxxx\"}\r\n";
        assert_eq!(String::from_utf8(request).unwrap(), one.repeat(2));
        assert_eq!(about, [0, 0]);
    }

    #[test]
    fn what_the_server_says_is_told_apart() {
        let nats = Nats::new();
        let said = |bytes: &[u8]| nats.read(bytes).map(|said| said.map(|(said, _)| said));
        assert_eq!(said(b"INFO {\"server_id\":\"x\"}\r\nPING"), Ok(Some(Said::Nothing)));
        assert_eq!(said(b"PING\r\n"), Ok(Some(Said::Prompt(b"PONG\r\n"))));
        assert_eq!(said(b"PONG\r"), Ok(None));
        assert!(matches!(said(b"PONG\r\n"), Ok(Some(Said::Answer(Answer { status: 200, .. })))));
        let BadAnswer(what) = said(b"-ERR 'Maximum Payload Violation'\r\n").unwrap_err();
        assert_eq!(what, "-ERR 'Maximum Payload Violation'");
        assert!(said(b"HTTP/1.1 400 Bad\r\n").is_err());
    }
}
