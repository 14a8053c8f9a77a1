//! What a publisher sends and what it gets: requests out, answers in. No I/O, no clock.

use std::io::Write;

use memchr::memmem;

use super::subjects::Subjects;
use crate::rng::Rng;

/// The head of an answer may have this many headers.
const HEADERS_MAX: usize = 64;
/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// `{"t":` before the stamp and `}` at the end.
const DATA_BYTES_MIN: usize = 6;
/// `,"pad":""`.
const PAD_BYTES: usize = 9;

/// Writes the requests of one run.
#[derive(Debug)]
pub struct Writer {
    head: String,
    subjects: Subjects,
    batch: usize,
    data_bytes: usize,
    /// What data is padded with, as much as any needs.
    pad: String,
    rng: Rng,
    body: Vec<u8>,
}

impl Writer {
    /// Requests to `host` with `batch` events each, every event's data `data_bytes` long (or a few
    /// more, where so little has no room for a time stamp).
    #[must_use]
    pub fn new(host: &str, subjects: Subjects, batch: usize, data_bytes: usize, seed: u64) -> Self {
        let kind = if batch > 1 { "application/x-ndjson" } else { "application/json" };
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: "
        );
        let pad = "x".repeat(data_bytes);
        let (rng, body) = (Rng::new(seed), Vec::new());
        Self { head, subjects, batch, data_bytes, pad, rng, body }
    }

    /// Puts the next request into `request`, which is cleared first. Its events carry `stamp_ns`.
    pub fn write(&mut self, stamp_ns: u64, request: &mut Vec<u8>) {
        request.clear();
        self.body.clear();
        for event in 0..self.batch {
            if event > 0 {
                self.body.push(b'\n');
            }
            self.body.extend_from_slice(b"{\"subject\":");
            self.subjects.push(&mut self.rng, &mut self.body);
            self.body.extend_from_slice(b",\"data\":");
            self.push_data(stamp_ns);
            self.body.push(b'}');
        }
        // Writing to a Vec can't fail.
        let _ = write!(request, "{}{}\r\n\r\n", self.head, self.body.len());
        request.extend_from_slice(&self.body);
    }

    /// The stamp, and a pad that makes up for its number of digits.
    fn push_data(&mut self, stamp_ns: u64) {
        let digits = stamp_ns.checked_ilog10().unwrap_or(0) as usize + 1;
        // Writing to a Vec can't fail.
        let _ = write!(self.body, "{{\"t\":{stamp_ns}");
        let room = self.data_bytes.saturating_sub(DATA_BYTES_MIN + digits);
        if room >= PAD_BYTES {
            let _ = write!(self.body, ",\"pad\":\"{}\"", &self.pad[..room - PAD_BYTES]);
        }
        self.body.push(b'}');
    }
}

/// One answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its length with head and body: how much of the input it was.
    pub bytes: usize,
    /// The HTTP status.
    pub status: u16,
    /// Events that the server took.
    pub accepted: u64,
    /// The sum of their `sessions`.
    pub sessions: u64,
    /// Whether the server closes the connection after it.
    pub close: bool,
}

/// Why an answer can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadAnswer(pub &'static str);

/// Reads the first answer in `bytes`; `None` if it isn't whole. Every event that was taken has a
/// `"sessions":N` in the body, every one that wasn't has an error in its place.
///
/// # Errors
/// If it isn't an HTTP/1.1 response with a `Content-Length`.
pub fn read_answer(bytes: &[u8]) -> Result<Option<Answer>, BadAnswer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(BadAnswer("not an HTTP/1.1 response")),
    };
    let header = |name: &str| {
        let found = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        found.and_then(|h| std::str::from_utf8(h.value).ok())
    };
    let length: usize = header("content-length")
        .and_then(|value| value.trim().parse().ok())
        .filter(|&length| length <= ANSWER_BYTES_MAX)
        .ok_or(BadAnswer("an answer without a usable Content-Length"))?;
    let Some(body) = bytes.get(head..head + length) else { return Ok(None) };
    let status = response.code.unwrap_or(0);
    let (accepted, sessions) = if status == 200 { sum_sessions(body) } else { (0, 0) };
    let close = header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok(Some(Answer { bytes: head + length, status, accepted, sessions, close }))
}

/// How many `"sessions":N` there are, and the sum of N.
fn sum_sessions(body: &[u8]) -> (u64, u64) {
    const NAME: &[u8] = b"\"sessions\":";
    memmem::find_iter(body, NAME).fold((0, 0), |(count, sum), at| {
        let digits = body[at + NAME.len()..].iter().skip_while(|byte| **byte == b' ');
        let number = digits.take_while(|byte| byte.is_ascii_digit()).take(18);
        (count + 1, sum + number.fold(0, |n, digit| n * 10 + u64::from(digit - b'0')))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use serde_json::Value;

    fn body_of(writer: &mut Writer, stamp_ns: u64) -> String {
        let mut request = b"left over".to_vec();
        writer.write(stamp_ns, &mut request);
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut parsed = httparse::Request::new(&mut headers);
        let head = parsed.parse(&request).unwrap().unwrap();
        assert_eq!((parsed.method, parsed.path), (Some("POST"), Some("/v1/events")));
        let length = parsed.headers.iter().find(|h| h.name == "Content-Length").unwrap().value;
        assert_eq!(std::str::from_utf8(length).unwrap(), (request.len() - head).to_string());
        String::from_utf8(request[head..].to_vec()).unwrap()
    }

    fn writer(batch: usize, data_bytes: usize) -> Writer {
        Writer::new("h", Subjects::parse("uniform:1-9").unwrap(), batch, data_bytes, 1)
    }

    #[test]
    fn the_data_has_the_size_that_was_asked_for_and_the_stamp() {
        for bytes in [79, 30, 500] {
            for stamp in [7, 123_456_789_012_345] {
                let body = body_of(&mut writer(1, bytes), stamp);
                let data = body.split_once("\"data\":").unwrap().1;
                assert_eq!(data.len() - 1, bytes, "{body}");
                let event: Value = serde_json::from_str(&body).unwrap();
                assert_eq!(event["data"]["t"], stamp);
            }
        }
        assert!(serde_json::from_str::<Value>(&body_of(&mut writer(1, 0), 5)).is_ok());
    }

    #[test]
    fn a_batch_is_one_event_a_line() {
        let body = body_of(&mut writer(3, 79), 5);
        let events: Vec<Value> = body.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn answers_are_read_one_by_one() {
        let one = b"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{\"id\":\"x\",\"sessions\":16}\n";
        let two = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 63\r\n\r\n\
            {\"id\":\"a\",\"sessions\":2}\n{\"error\":{}}\n{\"id\":\"b\",\"sessions\": 40}\n";
        let mut bytes = one[..one.len() - 1].to_vec();
        bytes.extend(two.as_bytes());
        let first = read_answer(&bytes).unwrap().unwrap();
        assert_eq!((first.status, first.accepted, first.sessions), (200, 1, 16));
        assert!(!first.close);
        let rest = &bytes[first.bytes..];
        for cut in 0..rest.len() {
            assert_eq!(read_answer(&rest[..cut]), Ok(None));
        }
        let second = read_answer(rest).unwrap().unwrap();
        assert_eq!((second.accepted, second.sessions, second.close), (2, 42, true));
        assert_eq!(second.bytes, rest.len());
    }

    #[test]
    fn refusals_accept_nothing() {
        let bytes = b"HTTP/1.1 503 Busy\r\nContent-Length: 14\r\n\r\n{\"sessions\":9}";
        let answer = read_answer(bytes).unwrap().unwrap();
        assert_eq!((answer.status, answer.accepted, answer.sessions), (503, 0, 0));
        assert!(read_answer(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(read_answer(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n").is_err());
        assert!(read_answer(b"nonsense\r\n\r\n").is_err());
    }
}
