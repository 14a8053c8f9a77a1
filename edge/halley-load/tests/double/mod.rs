//! A server just good enough to prove that the load tools count right.
//!
//! It speaks both listeners on one port: streams of every transport, and `POST /v1/events`, whose
//! events go to every open stream. It keeps all events: a cursor is how many there were, and a
//! stream with one gets the later ones first. A thread per connection; faults by [`Faults`].

// Each test program uses a part of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What the double does wrong.
#[derive(Debug, Default)]
pub struct Faults {
    /// At this request (counted from 1) everything stands still for so long.
    pub stall: Option<(u64, Duration)>,
    /// Every so manieth request is answered 503.
    pub refuse_every: Option<u64>,
    /// Every so manieth request ends its connection without an answer.
    pub drop_every: Option<u64>,
    /// Events about this subject are refused in their place.
    pub bad_subject: Option<&'static str>,
    /// Streams are refused with this status.
    pub stream_status: Option<u16>,
    /// So many streams are told to come back after 50 ms.
    pub busy: AtomicU64,
    /// The event with this number (counted from 1) reaches no stream.
    pub lose: Option<usize>,
    /// So many events before the cursor come once more.
    pub repeat: usize,
    /// Cursors are answered by a gap, and nothing that was missed.
    pub forgetful: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sse,
    Ndjson,
    Ws,
    Test,
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    requests: AtomicU64,
    /// Events as they were published.
    log: Mutex<Vec<String>>,
    /// Held through a stall: one request is dealt with at a time.
    streams: Mutex<Vec<(Kind, TcpStream)>>,
    users: Mutex<Vec<String>>,
    over: AtomicBool,
}

/// A running double.
#[derive(Debug)]
pub struct Double {
    pub url: String,
    state: Arc<State>,
}

impl Double {
    pub fn start(faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State { faults, ..State::default() });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let shared = Arc::clone(&shared);
                if shared.over.load(Ordering::Relaxed) {
                    return;
                }
                thread::spawn(move || serve(socket.unwrap(), &shared));
            }
        });
        Self { url, state }
    }

    /// Cuts every open stream.
    pub fn cut_streams(&self) {
        for (_, socket) in self.state.streams.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Sends `bytes` as they are to every open stream, in two pieces.
    pub fn send_raw(&self, bytes: &[u8]) {
        let (before, after) = bytes.split_at(bytes.len() / 2);
        for (_, socket) in self.state.streams.lock().unwrap().iter_mut() {
            socket.set_nodelay(true).unwrap();
            socket.write_all(before).unwrap();
            thread::sleep(Duration::from_millis(5));
            socket.write_all(after).unwrap();
        }
    }

    /// All events as they were published.
    pub fn events(&self) -> Vec<serde_json::Value> {
        let log = self.state.log.lock().unwrap();
        log.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The users of all streams that were opened, sorted.
    pub fn users(&self) -> Vec<String> {
        let mut users = self.state.users.lock().unwrap().clone();
        users.sort();
        users
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

/// Serves requests until one of them is a stream or the client leaves.
fn serve(socket: TcpStream, state: &State) {
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    loop {
        let (mut target, mut accept, mut length) = (String::new(), String::new(), 0);
        let (mut cursor, mut user) = (None, None);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|size| size > 2) {
            let lower = line.to_ascii_lowercase();
            if target.is_empty() {
                target = line.split(' ').nth(1).unwrap().to_owned();
            } else if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            } else if let Some(value) = lower.strip_prefix("accept:") {
                value.trim().clone_into(&mut accept);
            } else if let Some(token) = line.strip_prefix("Authorization: Bearer ") {
                user = Some(format!("token of {}", subject(token.trim())));
            } else if let Some(value) = lower.strip_prefix("last-event-id:") {
                cursor = Some(value.trim().parse().unwrap());
            }
            line.clear();
        }
        if target.is_empty() {
            return;
        }
        if !target.starts_with("/v1/events") {
            let at = target.find("&cursor=").unwrap_or(target.len());
            let parameter = target.split_off(at);
            cursor = cursor.or(parameter.strip_prefix("&cursor=").map(|c| c.parse().unwrap()));
            let user = user.unwrap_or_else(|| target.rsplit(['=', '/']).next().unwrap().to_owned());
            open(&target, &accept, user, cursor, socket, state);
            return;
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() || !publish(&body, &socket, state) {
            let _ = socket.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// The `sub` of a token, whose signature isn't looked at.
fn subject(token: &str) -> String {
    use base64::Engine as _;
    let claims = token.split('.').nth(1).unwrap();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    claims["sub"].as_str().unwrap().to_owned()
}

/// Begins a stream and leaves it among the open ones.
fn open(
    target: &str,
    accept: &str,
    user: String,
    cursor: Option<usize>,
    mut socket: TcpStream,
    state: &State,
) {
    if let Some(status) = state.faults.stream_status {
        let _ = write!(socket, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    let one_less = |n: u64| n.checked_sub(1);
    if state.faults.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
        let body = ": busy\nretry: 1500\n\n";
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = socket.write_all((head + body).as_bytes());
        // Kept open, as a server may: the client is to leave by itself.
        let _ = socket.read(&mut [0]);
        return;
    }
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    // Registered first: whoever has the welcome is known, and gets every event from then on.
    state.users.lock().unwrap().push(user);
    let mut streams = state.streams.lock().unwrap();
    let log = state.log.lock().unwrap();
    let (kind, welcome) = if target.starts_with("/test/") {
        (Kind::Test, format!("{head}7\r\nwelcome\r\n"))
    } else if target.starts_with("/v1/ws") {
        let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        (Kind::Ws, format!("HTTP/1.1 101 Switching Protocols\r\n{accept}\r\n\r\n"))
    } else if accept == "application/x-ndjson" {
        (Kind::Ndjson, format!("{head}1\r\n\n\r\n"))
    } else {
        (Kind::Sse, format!("{head}b\r\n: welcome\n\n\r\n"))
    };
    socket.write_all(welcome.as_bytes()).unwrap();
    match cursor {
        None => socket.write_all(&message(kind, log.len(), "")).unwrap(),
        Some(_) if state.faults.forgetful => {
            let gap = "\"gap\":{\"from\":null,\"to\":null,\"reason\":\"too_old\"}";
            socket.write_all(&message(kind, log.len(), gap)).unwrap();
        }
        Some(cursor) => {
            let from = cursor.saturating_sub(state.faults.repeat);
            for (at, line) in log.iter().enumerate().skip(from) {
                socket.write_all(&frame(kind, at + 1, line)).unwrap();
            }
        }
    }
    streams.push((kind, socket));
}

/// Delivers the events of one request and answers it; false ends the connection.
fn publish(body: &[u8], mut socket: &TcpStream, state: &State) -> bool {
    let request = state.requests.fetch_add(1, Ordering::Relaxed) + 1;
    let is_turn = |every: Option<u64>| every.is_some_and(|every| request % every == 0);
    if is_turn(state.faults.drop_every) {
        return false;
    }
    if is_turn(state.faults.refuse_every) {
        let answer = "HTTP/1.1 503 Busy\r\nContent-Length: 12\r\n\r\n{\"error\":{}}";
        return socket.write_all(answer.as_bytes()).is_ok();
    }
    let mut streams = state.streams.lock().unwrap();
    if let Some((at, length)) = state.faults.stall {
        if at == request {
            thread::sleep(length);
        }
    }
    let mut answer = String::new();
    for line in std::str::from_utf8(body).unwrap().lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        if event["subject"].as_str() == state.faults.bad_subject {
            answer.push_str("{\"error\":{\"code\":\"bad\"}}\n");
            continue;
        }
        let mut log = state.log.lock().unwrap();
        log.push(line.to_owned());
        let heard = state.faults.lose != Some(log.len());
        for (kind, stream) in streams.iter_mut().filter(|_| heard) {
            let _ = stream.write_all(&frame(*kind, log.len(), line));
        }
        answer.push_str(&format!("{{\"id\":\"{request}\",\"sessions\":{}}}\n", streams.len()));
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
    socket.write_all((head + &answer).as_bytes()).is_ok()
}

/// An event; the cursor behind it is its number.
fn frame(kind: Kind, number: usize, line: &str) -> Vec<u8> {
    message(kind, number, &line[1..line.len() - 1])
}

/// A message whose JSON object has these members; without any, the cursor alone.
fn message(kind: Kind, cursor: usize, members: &str) -> Vec<u8> {
    let chunk = |text: String| format!("{:x}\r\n{text}\r\n", text.len()).into_bytes();
    let comma = if members.is_empty() { "" } else { "," };
    let json = format!("{{\"cursor\":\"{cursor}\"{comma}{members}}}");
    match kind {
        Kind::Sse if members.is_empty() => chunk(format!("id: {cursor}\n\n")),
        Kind::Sse => chunk(format!("id: {cursor}\ndata: {{{members}}}\n\n")),
        Kind::Ndjson => chunk(format!("{json}\n")),
        Kind::Test if members.is_empty() => chunk("\n".to_owned()),
        Kind::Test => {
            let event: serde_json::Value = serde_json::from_str(&json).unwrap();
            chunk(event["data"].to_string())
        }
        Kind::Ws => {
            let length = u16::try_from(json.len()).unwrap();
            let mut frame = if length < 126 {
                vec![0x81, length as u8]
            } else {
                [&[0x81, 126][..], &length.to_be_bytes()].concat()
            };
            frame.extend(json.as_bytes());
            frame
        }
    }
}
