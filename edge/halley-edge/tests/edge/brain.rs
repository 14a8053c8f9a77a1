//! The test double of the brain.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use halley_link::{
    CloseReason, Deframer, Event, FLAG_END, Frame, Id, Item, List, NumberedSession, Pair,
    SessionState, SlowSession, VERSION,
};

pub use crate::edge::{Edge, command};
use crate::operation_frames;
use crate::trunk_way::TrunkWay;

/// Bound of every wait: long, as it is waited for on machines that have much else to do.
pub const WAIT: Duration = Duration::from_secs(30);
/// What the brain grants the edge unless a test says otherwise.
pub const WINDOW: u32 = 1_048_576;
const STATS: u8 = 0x48;
/// What a test doesn't say. What is drawn around 1 is 1 (http.md 13.3): the welcome that most tests
/// expect. Most clients answer no pings and read nothing for a while, which on a machine that has
/// much else to do is longer than a heartbeat. Operations come as OPERATION (link.md 20).
const DEFAULTS: [(&str, &str); 3] =
    [("stream_retry_ms", "1"), ("stream_heartbeat_ms", "600000"), ("operation_frames", "on")];

/// A frame of the edge, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    HelloEdge {
        public: String,
        api: String,
    },
    SyncBegin(u32),
    SyncEnd,
    /// Connection, transport, user; the cursors are [`Brain::cursors`].
    Open(Vec<(u64, u8, String)>),
    /// Connection, user number; the reasons are [`Brain::reasons`].
    Close(Vec<(u64, u32)>),
    Request(Request),
    /// Connection, flags, bytes.
    Body(u64, u8, Vec<u8>),
    Gone(u64),
    Pong(u64),
    Replayed(u64),
    /// Connection, rights, subjects.
    Subscriptions(u64, String, Vec<String>),
    /// Token, connection, state, transport, pieces in the outbox, held events.
    Inspected(u32, u64, SessionState, u8, u32, u32),
    /// Token, sessions.
    Behind(u32, Vec<SlowSession>),
    /// Of a trunk: which worker says it.
    Of(u16, Box<Seen>),
    WorkerGone(u16),
    /// Code and reason.
    Goodbye(u8, String),
    /// The edge closed the link.
    End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub conn: u64,
    pub listener: u8,
    pub flags: u8,
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Of an OPERATION, which is seen as the request that does the same.
    pub number: Option<u32>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn seen(frame: &Frame<'_>) -> Seen {
    match *frame {
        Frame::HelloEdge { public_listen, api_listen, .. } => {
            Seen::HelloEdge { public: text(public_listen), api: text(api_listen) }
        }
        Frame::SyncBegin { sessions, .. } => Seen::SyncBegin(sessions),
        Frame::SyncEnd => Seen::SyncEnd,
        Frame::Open { sessions } => {
            Seen::Open(sessions.iter().map(|s| (s.conn, s.transport, text(s.user))).collect())
        }
        Frame::Close { sessions } => {
            Seen::Close(sessions.iter().map(|s| (s.conn, s.user_number)).collect())
        }
        Frame::Request { conn, listener, flags, method, target, headers, body } => {
            let value = |value| String::from_utf8_lossy(value).into_owned();
            let headers = headers.iter().map(|h| (text(h.name), value(h.value))).collect();
            let (method, target, body) = (text(method), text(target), body.to_vec());
            let number = None;
            Seen::Request(Request { conn, listener, flags, method, target, headers, body, number })
        }
        Frame::Operation { .. } => Seen::Request(operation_frames::request(frame)),
        Frame::RequestBody { conn, flags, body } => Seen::Body(conn, flags, body.to_vec()),
        Frame::RequestGone { conn } => Seen::Gone(conn),
        Frame::Pong { nonce } => Seen::Pong(nonce),
        Frame::Replayed { conn } => Seen::Replayed(conn),
        Frame::Subscriptions { conn, rights, subjects } => {
            let lossy = |subject: Id<'_>| String::from_utf8_lossy(subject.0).into();
            let subjects = subjects.iter().map(lossy).collect();
            Seen::Subscriptions(conn, text(rights), subjects)
        }
        Frame::Inspected { token, conn, state, transport, outbox_pieces, held, .. } => {
            Seen::Inspected(token, conn, state, transport, outbox_pieces, held)
        }
        Frame::Behind { token, sessions } => Seen::Behind(token, sessions.iter().collect()),
        Frame::Goodbye { code, reason } => Seen::Goodbye(code, text(reason)),
        Frame::FromWorker { worker, kind, payload } => {
            Seen::Of(worker, Box::new(seen(&Frame::decode(kind, payload).unwrap())))
        }
        Frame::WorkerGone { worker } => Seen::WorkerGone(worker),
        ref other => panic!("not for a brain: {other:?}"),
    }
}

/// The end of a link that is written to: by the test, and by [`pulse`].
type Writer = Mutex<UnixStream>;

fn lock(writer: &Writer) -> MutexGuard<'_, UnixStream> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says something now and then as long as there is a link: a test that has to do with its clients
/// doesn't read it, and answers no PING, but its brain is no silent one (4.5).
fn pulse(writer: &Weak<Writer>) {
    let mut pong = Vec::new();
    Frame::Pong { nonce: 0 }.encode(&mut pong);
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let Some(writer) = writer.upgrade() else { return };
        if lock(&writer).write_all(&pong).is_err() {
            return;
        }
    }
}

/// One link.
pub struct Brain {
    socket: UnixStream,
    writer: Arc<Writer>,
    frames: Deframer,
    metrics: Vec<String>,
    stats: Vec<u64>,
    /// Of the last SYNC_BEGIN.
    pub sync_cursor: String,
    /// Give credit back for what was read (4.3)?
    pub generous: bool,
    pub version: u16,
    /// Speaks to the first worker; without it frames are those of the trunk, as they are.
    pub trunk: Option<TrunkWay>,
    /// Costly bytes that were read.
    pub costly: usize,
    /// By connection: why its session ended (2.8).
    pub reasons: HashMap<u64, CloseReason>,
    /// By connection: what its client goes on behind (6.2).
    pub cursors: HashMap<u64, String>,
    /// By connection: what it lost, as the last INSPECTED had it.
    pub lost: HashMap<u64, (u32, u32)>,
    /// By connection: the number of the operation that was read last.
    pub numbers: HashMap<u64, u32>,
}

impl Drop for Brain {
    fn drop(&mut self) {
        // Also for a pulse that is just being written.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Brain {
    pub fn new(socket: UnixStream) -> Brain {
        socket.set_read_timeout(Some(WAIT)).unwrap();
        socket.set_write_timeout(Some(WAIT)).unwrap();
        let writer = Arc::new(Mutex::new(socket.try_clone().unwrap()));
        Brain {
            socket,
            writer,
            frames: Deframer::new(),
            metrics: Vec::new(),
            stats: Vec::new(),
            sync_cursor: String::new(),
            generous: true,
            version: 0,
            trunk: None,
            costly: 0,
            reasons: HashMap::new(),
            cursors: HashMap::new(),
            lost: HashMap::new(),
            numbers: HashMap::new(),
        }
    }

    pub fn send(&mut self, frame: &Frame<'_>) {
        self.send_together(&[*frame]);
    }

    fn encode(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        match &mut self.trunk {
            Some(trunk) => trunk.encode(frame, out),
            None => frame.encode(out),
        }
    }

    /// Sends bytes that need be no frame.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        lock(&self.writer).write_all(bytes)
    }

    /// Sends frames in one write, so that they are read together.
    pub fn send_together(&mut self, frames: &[Frame<'_>]) {
        let mut out = Vec::new();
        frames.iter().for_each(|frame| self.encode(frame, &mut out));
        self.send_bytes(&out).unwrap();
    }

    /// Sends what nobody may be there for any more.
    fn reply(&mut self, frame: &Frame<'_>) {
        let mut out = Vec::new();
        frame.encode(&mut out);
        let _ = self.send_bytes(&out);
    }

    pub fn hello(&mut self, settings: &[(&str, &str)], window: u32) {
        self.hello_of(VERSION, settings, window);
    }

    /// That of a brain whose lowest version this is.
    pub fn hello_of(&mut self, version: u16, settings: &[(&str, &str)], window: u32) {
        let mut items = Vec::new();
        let open = DEFAULTS.iter().filter(|(name, _)| settings.iter().all(|(n, _)| n != name));
        let mut count = 0;
        for (name, value) in settings.iter().chain(open) {
            Pair { name: name.as_bytes(), value: value.as_bytes() }.write(&mut items);
            count += 1;
        }
        self.send(&Frame::HelloBrain {
            version,
            window,
            node: b"test@127.0.0.1",
            settings: List::from_items(count, &items),
        });
        let writer = Arc::downgrade(&self.writer);
        std::thread::spawn(move || pulse(&writer));
    }

    /// The next frame; PING is answered, STATS is kept, CREDIT is taken note of.
    pub fn next(&mut self) -> Seen {
        let end = Instant::now() + WAIT;
        loop {
            assert!(Instant::now() < end, "nothing but pings");
            if let Some(seen) = self.buffered() {
                return seen;
            }
            match self.read() {
                Ok(0) => return Seen::End,
                Ok(n) => self.frames.filled(n),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Seen::End,
                Err(e) => panic!("the edge is silent: {e}"),
            }
        }
    }

    /// Reads once. A test that was stopped reads again.
    fn read(&mut self) -> std::io::Result<usize> {
        loop {
            match self.socket.read(self.frames.space()) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn buffered(&mut self) -> Option<Seen> {
        while let Some(raw) = self.frames.next().unwrap() {
            let cost = if Frame::costs(raw.kind) { raw.cost } else { 0 };
            let (mut answer, mut out) = (None, None);
            let frame = Frame::decode(raw.kind, raw.payload).unwrap();
            let (frame, place) = match &mut self.trunk {
                Some(trunk) => trunk.unwrap(frame),
                None => (frame, None),
            };
            match frame {
                Frame::Ping { nonce } => answer = Some(Frame::Pong { nonce }),
                Frame::Credit { .. } | Frame::FromWorker { kind: STATS, .. } => {}
                Frame::Stats { values } => self.stats = values.iter().map(|v| v.0).collect(),
                frame => {
                    match frame {
                        Frame::HelloEdge { metrics, version, .. } => {
                            self.version = version;
                            self.metrics = metrics.iter().map(|metric| text(metric.name)).collect();
                        }
                        Frame::Close { sessions } => {
                            self.reasons.extend(sessions.iter().map(|s| (s.conn, s.reason)));
                        }
                        Frame::Open { sessions } => {
                            self.cursors.extend(sessions.iter().map(|s| (s.conn, text(s.cursor))));
                        }
                        Frame::Inspected { conn, dropped, conflated, .. } => {
                            self.lost.insert(conn, (dropped, conflated));
                        }
                        Frame::Operation { conn, number, .. } => {
                            self.numbers.insert(conn, number);
                        }
                        Frame::SyncBegin { cursor, .. } => self.sync_cursor = text(cursor),
                        Frame::FromWorker { kind, payload, .. } => {
                            if let Ok(Frame::SyncBegin { cursor, .. }) =
                                Frame::decode(kind, payload)
                            {
                                self.sync_cursor = text(cursor);
                            }
                        }
                        _ => {}
                    }
                    out = Some(seen(&frame));
                }
            }
            self.costly += cost;
            if self.generous && cost > 0 {
                self.reply(&Frame::Credit { bytes: cost as u32 });
            }
            answer.iter().chain(&place).for_each(|frame| self.reply(frame));
            if out.is_some() {
                return out;
            }
        }
        None
    }

    /// Reads until the metric has the value; other frames must not come meanwhile.
    pub fn stat_becomes(&mut self, name: &str, value: u64) {
        let at = self.metrics.iter().position(|n| *n == format!("halley_edge_{name}")).unwrap();
        let end = Instant::now() + WAIT;
        while self.stats.get(at) != Some(&value) {
            assert!(Instant::now() < end, "{name} is {:?}, not {value}", self.stats.get(at));
            assert_eq!(self.buffered(), None);
            if self.stats.get(at) != Some(&value) {
                let n = self.read().unwrap();
                self.frames.filled(n);
            }
        }
    }

    /// The metric as the last STATS had it; other frames must not come meanwhile.
    pub fn stat(&mut self, name: &str) -> u64 {
        let at = self.metrics.iter().position(|n| *n == format!("halley_edge_{name}")).unwrap();
        assert_eq!(self.next_within(1), None);
        self.stats.get(at).copied().unwrap_or_default()
    }

    /// The next frame, if one comes within so long.
    pub fn next_within(&mut self, ms: u64) -> Option<Seen> {
        let end = Instant::now() + Duration::from_millis(ms);
        loop {
            let seen = self.buffered();
            let left = end.saturating_duration_since(Instant::now());
            if seen.is_some() || left.is_zero() {
                self.socket.set_read_timeout(Some(WAIT)).unwrap();
                return seen;
            }
            self.socket.set_read_timeout(Some(left)).unwrap();
            if let Ok(n) = self.read() {
                assert_ne!(n, 0, "the edge closed the link");
                self.frames.filled(n);
            }
        }
    }

    /// Nothing comes for so long (but PING, CREDIT, STATS).
    pub fn expect_silence(&mut self, ms: u64) {
        assert_eq!(self.next_within(ms), None);
    }

    /// The connection, transport and user of the one session that opens next.
    pub fn open(&mut self) -> (u64, u8, String) {
        match self.next() {
            Seen::Open(mut sessions) if sessions.len() == 1 => sessions.remove(0),
            other => panic!("not OPEN of one: {other:?}"),
        }
    }

    pub fn request(&mut self) -> Request {
        match self.next() {
            Seen::Request(request) => request,
            other => panic!("not REQUEST: {other:?}"),
        }
    }

    pub fn opened(&mut self, conn: u64, user_number: u32) {
        let mut items = Vec::new();
        NumberedSession { conn, user_number }.write(&mut items);
        self.send(&Frame::Opened { cursor: b"", sessions: List::from_items(1, &items) });
    }

    pub fn refused(&mut self, conn: u64, status: u16) {
        let (code, message) = (b"no".as_slice(), b"not now".as_slice());
        self.send(&Frame::Refused { conn, status, retry_after_s: 7, code, message });
    }

    /// DELIVER of an event whose data is this JSON text; gives the event.
    pub fn deliver(&mut self, cursor: &str, data: &str, conns: &[u64]) -> String {
        let head = r#"{"id":"1","subject":"s","at":1,"data":"#;
        let event = format!("{head}{data}}}");
        let items = conn_items(conns);
        self.send(&Frame::Deliver {
            event: Event {
                shard: 1,
                seq: 1,
                at: 1,
                data_offset: head.len() as u32,
                subject_offset: 21,
                subject_bytes: 1,
                cursor: cursor.as_bytes(),
                json: event.as_bytes(),
            },
            conns: List::from_items(conns.len() as u16, &items),
        });
        event
    }

    pub fn close_sessions(&mut self, reason: &str, conns: &[u64]) {
        let items = conn_items(conns);
        let conns = List::from_items(conns.len() as u16, &items);
        self.send(&Frame::CloseSessions { reason: reason.as_bytes(), conns });
    }

    /// A whole answer.
    pub fn respond(&mut self, conn: u64, status: u16, body: &str) {
        self.response(conn, status, FLAG_END, body.len() as u64, &[], body.as_bytes());
    }

    /// An answer, or its beginning: to an operation as OPERATION_ANSWER.
    pub fn response(
        &mut self,
        conn: u64,
        status: u16,
        flags: u8,
        body_bytes: u64,
        headers: &[(&str, &str)],
        body: &[u8],
    ) {
        if let Some(number) = self.numbers.get(&conn).copied() {
            let (what, json) = operation_frames::answer(status, headers, body);
            let flags = flags | what;
            return self.send(&Frame::OperationAnswer { conn, number, flags, json: &json });
        }
        let mut items = Vec::new();
        for (name, value) in headers {
            Pair { name: name.as_bytes(), value: value.as_bytes() }.write(&mut items);
        }
        let headers = List::from_items(headers.len() as u16, &items);
        self.send(&Frame::Response { conn, status, flags, body_bytes, headers, body });
    }
}

pub fn conn_items(conns: &[u64]) -> Vec<u8> {
    let mut items = Vec::new();
    conns.iter().for_each(|conn| conn.write(&mut items));
    items
}
