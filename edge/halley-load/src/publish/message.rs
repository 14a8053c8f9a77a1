//! What a publisher sends and what it gets: requests out, answers in. No I/O, no clock.

use std::io::Write;

use memchr::memmem;

use super::numbers::Numbers;
use super::subjects::Subjects;
use crate::rng::Rng;

/// The head of an answer may have this many headers.
const HEADERS_MAX: usize = 64;
/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// `}`.
const END_BYTES: usize = 1;
/// `,"pad":""`.
const PAD_BYTES: usize = 9;

/// What the server shall have done before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Ack {
    /// Sent the event on its way to the sessions
    Memory,
    /// Written it to disk as well
    Disk,
}

/// What the requests of one run are like.
#[derive(Debug, Clone)]
pub struct Form {
    /// Events per request.
    pub batch: usize,
    /// Size of each event's data as JSON, or a few bytes more where so little has no room for what
    /// must be in it.
    pub data_bytes: usize,
    /// What to ask for; `None` leaves it to the server.
    pub ack: Option<Ack>,
    /// The ids of events are this and a number; `None` leaves them to the server.
    pub ids: Option<String>,
    /// Whether subjects come in turn instead of being drawn.
    pub in_turn: bool,
    /// What draws subjects.
    pub seed: u64,
}

/// Writes the requests of one run.
#[derive(Debug)]
pub struct Writer {
    head: String,
    subjects: Subjects,
    form: Form,
    numbers: Option<Numbers>,
    /// What data is padded with, as much as any needs.
    pad: String,
    rng: Rng,
    body: Vec<u8>,
    events: u64,
}

impl Writer {
    /// Requests to `host`, with `numbers` in the data if there are any.
    #[must_use]
    pub fn new(host: &str, subjects: Subjects, form: Form, numbers: Option<Numbers>) -> Self {
        let kind = if form.batch > 1 { "application/x-ndjson" } else { "application/json" };
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: "
        );
        let pad = "x".repeat(form.data_bytes);
        let (rng, body) = (Rng::new(form.seed), Vec::new());
        Self { head, subjects, form, numbers, pad, rng, body, events: 0 }
    }

    /// Events per request.
    #[must_use]
    pub fn batch(&self) -> u64 {
        self.form.batch as u64
    }

    /// Whether events have numbers, and so must not be lost on the way to the server.
    #[must_use]
    pub fn is_numbered(&self) -> bool {
        self.numbers.is_some()
    }

    /// Whether the next request can be written: numbered events whose subjects come in turn wait
    /// for the one before about the same subject, so that each gets as many.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let Some(numbers) = self.numbers.as_ref().filter(|_| self.form.in_turn) else {
            return true;
        };
        let count = self.subjects.count();
        (0..self.batch()).all(|event| numbers.is_free((self.events + event) % count))
    }

    /// Puts the next request into `request`, which is cleared first, and the numbers of the
    /// subjects into `about`. Its events carry `stamp_ns`.
    pub fn write(&mut self, stamp_ns: u64, request: &mut Vec<u8>, about: &mut Vec<u64>) {
        request.clear();
        about.clear();
        self.body.clear();
        for event in 0..self.form.batch {
            if event > 0 {
                self.body.push(b'\n');
            }
            let (subject, number) = self.next_subject();
            about.push(subject);
            self.body.extend_from_slice(b"{\"subject\":");
            self.subjects.push(subject, &mut self.body);
            self.push_choices();
            self.body.extend_from_slice(b",\"data\":");
            self.push_data(stamp_ns, number);
            self.body.push(b'}');
            self.events += 1;
        }
        // Writing to a Vec can't fail.
        let _ = write!(request, "{}{}\r\n\r\n", self.head, self.body.len());
        request.extend_from_slice(&self.body);
    }

    /// The events about these subjects were taken: others about them may follow.
    pub fn taken(&mut self, about: &[u64]) {
        if let Some(numbers) = &mut self.numbers {
            numbers.free(about);
        }
    }

    /// Gives back what the subjects' numbers have come to.
    #[must_use]
    pub fn into_numbers(self) -> Option<(Numbers, Subjects)> {
        self.numbers.map(|numbers| (numbers, self.subjects))
    }

    /// A subject, and its next number if events have one. Where an earlier event about the subject
    /// is still on its way, another subject: two on their way could overtake each other.
    fn next_subject(&mut self) -> (u64, Option<u32>) {
        let count = self.subjects.count();
        let mut subject =
            if self.form.in_turn { self.events % count } else { self.subjects.draw(&mut self.rng) };
        let Some(numbers) = &mut self.numbers else { return (subject, None) };
        for _ in 0..count {
            if let Some(number) = numbers.take(subject) {
                return (subject, Some(number));
            }
            subject = (subject + 1) % count;
        }
        // Not to be met: there are more subjects than events on their way (`Numbers::read`).
        (subject, None)
    }

    /// The id and the acknowledgement that are asked for.
    fn push_choices(&mut self) {
        // Writing to a Vec can't fail.
        if let Some(prefix) = &self.form.ids {
            let _ = write!(self.body, ",\"id\":\"{prefix}{}\"", self.events);
        }
        self.body.extend_from_slice(match self.form.ack {
            Some(Ack::Memory) => b",\"ack\":\"memory\"",
            Some(Ack::Disk) => b",\"ack\":\"disk\"",
            None => b"",
        });
    }

    /// The stamp, the number if there is one, and a pad that makes up for the digits of both.
    fn push_data(&mut self, stamp_ns: u64, number: Option<u32>) {
        let start = self.body.len();
        // Writing to a Vec can't fail.
        let _ = write!(self.body, "{{\"t\":{stamp_ns}");
        if let Some(number) = number {
            let _ = write!(self.body, ",\"n\":{number}");
        }
        let size = self.body.len() - start + END_BYTES;
        let room = self.form.data_bytes.saturating_sub(size);
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
    use std::collections::BTreeMap;

    fn body_of(writer: &mut Writer, stamp_ns: u64) -> String {
        let mut request = b"left over".to_vec();
        writer.write(stamp_ns, &mut request, &mut Vec::new());
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut parsed = httparse::Request::new(&mut headers);
        let head = parsed.parse(&request).unwrap().unwrap();
        assert_eq!((parsed.method, parsed.path), (Some("POST"), Some("/v1/events")));
        let length = parsed.headers.iter().find(|h| h.name == "Content-Length").unwrap().value;
        assert_eq!(std::str::from_utf8(length).unwrap(), (request.len() - head).to_string());
        String::from_utf8(request[head..].to_vec()).unwrap()
    }

    fn form(batch: usize, data_bytes: usize) -> Form {
        Form { batch, data_bytes, ack: None, ids: None, in_turn: false, seed: 1 }
    }

    fn writer(batch: usize, data_bytes: usize) -> Writer {
        let subjects = Subjects::parse("uniform:1-9").unwrap();
        Writer::new("h", subjects, form(batch, data_bytes), None)
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
    fn events_say_what_was_chosen_for_them() {
        let subjects = Subjects::parse("groups:3").unwrap();
        let ids = Some("run-".to_owned());
        let form = Form { ack: Some(Ack::Memory), ids, in_turn: true, ..form(1, 79) };
        let mut writer = Writer::new("h", subjects, form, None);
        for (subject, id) in [("g0", "run-0"), ("g1", "run-1"), ("g2", "run-2"), ("g0", "run-3")] {
            let event: Value = serde_json::from_str(&body_of(&mut writer, 5)).unwrap();
            assert_eq!((&event["subject"], &event["id"]), (&subject.into(), &id.into()));
            assert_eq!(event["ack"], "memory");
        }
    }

    #[test]
    fn of_a_subject_one_numbered_event_is_on_its_way() {
        let subjects = Subjects::parse("groups:3").unwrap();
        let numbers = Numbers::new(&subjects, 3).unwrap();
        let mut writer = Writer::new("h", subjects, form(1, 50), Some(numbers));
        let mut about = BTreeMap::new();
        let mut request = Vec::new();
        for _ in 0..3 {
            let mut subjects = Vec::new();
            writer.write(5, &mut request, &mut subjects);
            let body = String::from_utf8_lossy(&request);
            let data = body.split_once("\"data\":").unwrap().1;
            assert!(data.starts_with("{\"t\":5,\"n\":1,\"pad\"") && data.len() == 51, "{data}");
            about.insert(subjects[0], data.len());
        }
        assert_eq!(about.len(), 3, "each subject once");
        writer.taken(&[1]);
        let mut subjects = Vec::new();
        writer.write(5, &mut request, &mut subjects);
        assert_eq!(subjects, [1]);
        assert!(String::from_utf8_lossy(&request).contains("\"n\":2"));
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
