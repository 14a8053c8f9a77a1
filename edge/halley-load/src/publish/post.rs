//! A server that takes one message per request: `POST` to the channel's path, the event's data as
//! the body. So do Nchan, the article's servers and what stands before Socket.IO.
//!
//! Any 2xx means that it was taken. How many sessions it went to is known where the body says
//! `"sessions":N`, or `active subscribers: N` as Nchan does.

use std::fmt::Write as _;
use std::io::Write as _;

use super::events::Events;
use super::http::{self, sum_after};
use super::protocol::{Answer, BadAnswer, Protocol, Said};
use crate::path::Path;

/// Requests to one host.
#[derive(Debug)]
pub struct Post {
    host: String,
    path: Path,
    channel: String,
    data: Vec<u8>,
}

impl Post {
    /// Requests to the path.
    #[must_use]
    pub fn new(host: &str, path: Path) -> Self {
        Self { host: host.to_owned(), path, channel: String::new(), data: Vec::new() }
    }
}

impl Protocol for Post {
    fn push_request(
        &mut self,
        events: &mut Events,
        stamp_ns: u64,
        request: &mut Vec<u8>,
        about: &mut Vec<u64>,
    ) {
        // Writing to a String or a Vec can't fail.
        let event = events.draw();
        about.push(event.subject);
        self.channel.clear();
        let _ = write!(self.channel, "{}", events.name(event.subject));
        self.data.clear();
        events.push_data(stamp_ns, event.number, &mut self.data);
        request.extend_from_slice(b"POST ");
        self.path.push("", &self.channel, request);
        let _ = write!(
            request,
            " HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.host,
            self.data.len()
        );
        request.extend_from_slice(&self.data);
    }

    fn read(&self, bytes: &[u8]) -> Result<Option<(Said, usize)>, BadAnswer> {
        let Some(answer) = http::read(bytes)? else { return Ok(None) };
        let taken = (200..300).contains(&answer.status);
        let names = [&b"\"sessions\":"[..], b"active subscribers:"];
        let sessions = names.iter().map(|name| sum_after(name, &answer.body).1).max().unwrap_or(0);
        let said = Said::Answer(Answer {
            status: answer.status,
            accepted: u64::from(taken),
            sessions: if taken { sessions } else { 0 },
            close: answer.close,
        });
        Ok(Some((said, answer.bytes)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::events::tests::{events, form};
    use super::*;

    fn post() -> Post {
        Post::new("h:1", "/pub/{channel}?x=1".parse().unwrap())
    }

    #[test]
    fn the_body_is_the_data_alone() {
        let (mut request, mut about) = (Vec::new(), Vec::new());
        post().push_request(&mut events("groups:1", form(1, 79)), 5, &mut request, &mut about);
        let request = String::from_utf8(request).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /pub/g0?x=1 HTTP/1.1\r\nHost: h:1\r\n"), "{head}");
        assert!(head.ends_with("Content-Length: 79"), "{head}");
        assert!(body.len() == 79 && body.starts_with("{\"t\":5,\"pad\":\"x"), "{body}");
        assert_eq!(about, [0]);
    }

    #[test]
    fn answers_say_what_was_taken_and_by_how_many() {
        let nchan =
            "queued messages: 5\r\nlast requested: 0 sec. ago\r\nactive subscribers: 16\r\n";
        for (status, body, accepted, sessions) in [
            (202, nchan, 1, 16),
            (201, "", 1, 0),
            (200, "{\"sessions\":3}", 1, 3),
            (200, "ok", 1, 0),
            (500, "{\"sessions\":3}", 0, 0),
        ] {
            let length = body.len();
            let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}");
            let expected = Said::Answer(Answer { status, accepted, sessions, close: false });
            assert_eq!(post().read(answer.as_bytes()), Ok(Some((expected, answer.len()))));
        }
    }
}
