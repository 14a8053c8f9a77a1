//! Halley's API: `POST /v1/events`, one event as JSON or several as NDJSON.

use std::io::Write;

use super::events::{Ack, Drawn, Events};
use super::http::{self, sum_after};
use super::protocol::{Answer, BadAnswer, Protocol, Said};

/// Requests to one host.
#[derive(Debug)]
pub struct Halley {
    head: String,
    body: Vec<u8>,
}

impl Halley {
    /// Requests of `batch` events each.
    #[must_use]
    pub fn new(host: &str, batch: usize) -> Self {
        let kind = if batch > 1 { "application/x-ndjson" } else { "application/json" };
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: "
        );
        Self { head, body: Vec::new() }
    }

    /// The id and the acknowledgement that are asked for.
    fn push_choices(&mut self, events: &Events, event: Drawn) {
        // Writing to a Vec can't fail.
        if let Some(prefix) = &events.form().ids {
            let _ = write!(self.body, ",\"id\":\"{prefix}{}\"", event.ordinal);
        }
        self.body.extend_from_slice(match events.form().ack {
            Some(Ack::Memory) => b",\"ack\":\"memory\"",
            Some(Ack::Disk) => b",\"ack\":\"disk\"",
            None => b"",
        });
    }
}

impl Protocol for Halley {
    fn push_request(
        &mut self,
        events: &mut Events,
        stamp_ns: u64,
        request: &mut Vec<u8>,
        about: &mut Vec<u64>,
    ) {
        self.body.clear();
        for line in 0..events.batch() {
            if line > 0 {
                self.body.push(b'\n');
            }
            let event = events.draw();
            about.push(event.subject);
            self.body.push(b'{');
            events.push_whom(event.subject, &mut self.body);
            self.push_choices(events, event);
            self.body.extend_from_slice(b",\"data\":");
            events.push_data(stamp_ns, event.number, &mut self.body);
            self.body.push(b'}');
        }
        // Writing to a Vec can't fail.
        let _ = write!(request, "{}{}\r\n\r\n", self.head, self.body.len());
        request.extend_from_slice(&self.body);
    }

    /// Every event that was taken has a `"sessions":N` in the body, every one that wasn't has an
    /// error in its place.
    fn read(&self, bytes: &[u8]) -> Result<Option<(Said, usize)>, BadAnswer> {
        let Some(answer) = http::read(bytes)? else { return Ok(None) };
        let taken = answer.status == 200;
        let (accepted, sessions) =
            if taken { sum_after(b"\"sessions\":", &answer.body) } else { (0, 0) };
        let (status, close) = (answer.status, answer.close);
        Ok(Some((Said::Answer(Answer { status, accepted, sessions, close }), answer.bytes)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::events::Form;
    use super::super::events::tests::{events, form};
    use super::*;
    use serde_json::Value;

    fn body_of(events: &mut Events) -> String {
        let (mut request, batch) = (Vec::new(), events.form().batch);
        Halley::new("h", batch).push_request(events, 5, &mut request, &mut Vec::new());
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut parsed = httparse::Request::new(&mut headers);
        let head = parsed.parse(&request).unwrap().unwrap();
        assert_eq!((parsed.method, parsed.path), (Some("POST"), Some("/v1/events")));
        let length = parsed.headers.iter().find(|h| h.name == "Content-Length").unwrap().value;
        assert_eq!(std::str::from_utf8(length).unwrap(), (request.len() - head).to_string());
        String::from_utf8(request[head..].to_vec()).unwrap()
    }

    #[test]
    fn a_batch_is_one_event_a_line() {
        let body = body_of(&mut events("uniform:1-9", form(3, 79)));
        let events: Vec<Value> = body.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(events.len(), 3);
        assert!(events.iter().all(|event| event["data"]["t"] == 5));
    }

    #[test]
    fn events_say_what_was_chosen_for_them() {
        let ids = Some("run-".to_owned());
        let form = Form { ack: Some(Ack::Memory), ids, in_turn: true, ..form(1, 79) };
        let mut events = events("groups:3", form);
        for (subject, id) in [("g0", "run-0"), ("g1", "run-1"), ("g2", "run-2"), ("g0", "run-3")] {
            let event: Value = serde_json::from_str(&body_of(&mut events)).unwrap();
            assert_eq!((&event["subject"], &event["id"]), (&subject.into(), &id.into()));
            assert_eq!(event["ack"], "memory");
        }
    }

    /// The users of a group, in place of its followers.
    #[test]
    fn to_users_alone() {
        for (users, to) in [(3, ["1", "2", "3"].as_slice()), (1, &["1"])] {
            let form = Form { to: Some(users), in_turn: true, ..form(1, 79) };
            let mut events = events("groups:2", form);
            let event: Value = serde_json::from_str(&body_of(&mut events)).unwrap();
            assert_eq!((&event["to"], &event["subject"]), (&to.into(), &Value::Null));
            let event: Value = serde_json::from_str(&body_of(&mut events)).unwrap();
            assert_eq!(event["to"][0], (users + 1).to_string());
        }
    }

    #[test]
    fn answers_are_read_one_by_one() {
        let one = b"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{\"id\":\"x\",\"sessions\":16}\n";
        let two = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 63\r\n\r\n\
            {\"id\":\"a\",\"sessions\":2}\n{\"error\":{}}\n{\"id\":\"b\",\"sessions\": 40}\n";
        let mut bytes = one[..one.len() - 1].to_vec();
        bytes.extend(two.as_bytes());
        let read = |bytes: &[u8]| Halley::new("h", 1).read(bytes);
        let answer = |accepted, sessions, close| {
            Said::Answer(Answer { status: 200, accepted, sessions, close })
        };
        let (first, length) = read(&bytes).unwrap().unwrap();
        assert_eq!(first, answer(1, 16, false));
        let rest = &bytes[length..];
        for cut in 0..rest.len() {
            assert_eq!(read(&rest[..cut]), Ok(None));
        }
        assert_eq!(read(rest), Ok(Some((answer(2, 42, true), rest.len()))));
    }

    #[test]
    fn refusals_accept_nothing() {
        let bytes = b"HTTP/1.1 503 Busy\r\nContent-Length: 14\r\n\r\n{\"sessions\":9}";
        let refused = Answer { status: 503, accepted: 0, sessions: 0, close: false };
        let read = Halley::new("h", 1).read(bytes);
        assert_eq!(read, Ok(Some((Said::Answer(refused), bytes.len()))));
    }
}
