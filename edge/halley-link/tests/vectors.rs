//! `protocol/vectors/`: the same files that the brain's suite reads.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken vector must fail"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use halley_link::{
    CloseReason, ClosedSession, Deframer, Event, Frame, Id, Item, List, Member, MemberName, Metric,
    NumberedSession, Pair, Session, SessionState, Slot, SlowSession, Value, What, Word,
};
use serde_json::Value as Json;

fn vectors(bad: bool) -> Vec<(String, Json)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../protocol/vectors");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".json") && name.starts_with("bad-") == bad {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((name, serde_json::from_str(&text).unwrap()));
        }
    }
    assert!(!found.is_empty());
    found
}

fn unhex(text: &str) -> Vec<u8> {
    assert_eq!(text.len() % 2, 0);
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn read(bytes: &[u8]) -> Result<Vec<u8>, halley_link::Error> {
    let mut deframer = Deframer::new();
    deframer.space()[..bytes.len()].copy_from_slice(bytes);
    deframer.filled(bytes.len());
    let raw = deframer.next()?.expect("a vector holds a whole frame");
    assert_eq!(raw.cost, bytes.len());
    let mut again = Vec::new();
    let frame = Frame::decode(raw.kind, raw.payload)?;
    if let Frame::ToSlot { kind, payload, .. } | Frame::FromWorker { kind, payload, .. } = frame {
        Frame::decode(kind, payload)?;
    }
    frame.encode(&mut again);
    Ok(again)
}

fn num(fields: &Json, name: &str) -> u64 {
    fields[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {fields}"))
}

fn text<'a>(fields: &'a Json, name: &str) -> &'a [u8] {
    fields[name].as_str().unwrap_or_else(|| panic!("no text {name} in {fields}")).as_bytes()
}

fn items<'a, T: Item<'a>>(
    fields: &'a Json,
    name: &str,
    item: impl Fn(&'a Json) -> T,
) -> (u16, Vec<u8>) {
    let list = fields[name].as_array().unwrap();
    let mut out = Vec::new();
    list.iter().for_each(|json| item(json).write(&mut out));
    (list.len() as u16, out)
}

fn list_bytes<'a>(kind: &str, f: &'a Json) -> (u16, Vec<u8>) {
    let pair = |j: &'a Json| Pair { name: text(j, "name"), value: text(j, "value") };
    match kind {
        "hello_brain" => items(f, "settings", pair),
        "response" | "request" => items(f, "headers", pair),
        "operation" => items(f, "members", |j| Member {
            name: MemberName::of(num(j, "name") as u8).unwrap(),
            value: text(j, "value"),
        }),
        "subscriptions" | "ended" => items(f, "subjects", |j| Id(j.as_str().unwrap().as_bytes())),
        "opened" => items(f, "sessions", |j| NumberedSession {
            conn: num(j, "conn"),
            user_number: num(j, "user_number") as u32,
        }),
        "close" => items(f, "sessions", |j| ClosedSession {
            conn: num(j, "conn"),
            user_number: num(j, "user_number") as u32,
            reason: CloseReason::of(num(j, "reason") as u8).unwrap(),
        }),
        "behind" => items(f, "sessions", |j| SlowSession {
            session: NumberedSession {
                conn: num(j, "conn"),
                user_number: num(j, "user_number") as u32,
            },
            transport: num(j, "transport") as u8,
            outbox_bytes: num(j, "outbox_bytes") as u32,
            outbox_pieces: num(j, "outbox_pieces") as u32,
            outbox_ms: num(j, "outbox_ms") as u32,
        }),
        "open" => items(f, "sessions", |j| Session {
            conn: num(j, "conn"),
            transport: num(j, "transport") as u8,
            user: text(j, "user"),
            cursor: text(j, "cursor"),
        }),
        "replay" => items(f, "items", event),
        "deliver" | "close_sessions" | "gap" | "presence" | "group_join" | "group_leave" => {
            items(f, "conns", |j| j.as_u64().unwrap())
        }
        "trunk_deliver" => items(f, "words", |j| {
            let word = j.as_u64().unwrap();
            Word::new((word >> 48) as u16, word & 0xffff_ffff_ffff)
        }),
        "trunk_group_deliver" => items(f, "slots", |j| Slot(j.as_u64().unwrap() as u16)),
        "stats" => items(f, "values", |j| Value(j.as_u64().unwrap())),
        "hello_edge" => items(f, "metrics", |j| Metric {
            name: text(j, "name"),
            kind: num(j, "kind") as u8,
            help: text(j, "help"),
        }),
        _ => (0, Vec::new()),
    }
}

fn event(j: &Json) -> Event<'_> {
    Event {
        shard: num(j, "shard") as u8,
        seq: num(j, "seq"),
        at: num(j, "at"),
        data_offset: num(j, "data_offset") as u32,
        subject_offset: num(j, "subject_offset") as u16,
        subject_bytes: num(j, "subject_bytes") as u16,
        cursor: text(j, "cursor"),
        json: text(j, "event"),
    }
}

/// The frame that a vector's fields describe, written anew.
fn write(kind: &str, f: &Json) -> Vec<u8> {
    let (count, bytes) = list_bytes(kind, f);
    let body = f["body"].as_str().map(unhex).unwrap_or_default();
    let body = body.as_slice();
    let conn = || num(f, "conn");
    let flags = || num(f, "flags") as u8;
    let frame = match kind {
        "ping" => Frame::Ping { nonce: num(f, "nonce") },
        "pong" => Frame::Pong { nonce: num(f, "nonce") },
        "credit" => Frame::Credit { bytes: num(f, "bytes") as u32 },
        "goodbye" => Frame::Goodbye { code: num(f, "code") as u8, reason: text(f, "reason") },
        "hello_brain" => Frame::HelloBrain {
            version: num(f, "version") as u16,
            window: num(f, "window") as u32,
            node: text(f, "node"),
            settings: List::from_items(count, &bytes),
        },
        "opened" => {
            Frame::Opened { cursor: text(f, "cursor"), sessions: List::from_items(count, &bytes) }
        }
        "refused" => Frame::Refused {
            conn: conn(),
            status: num(f, "status") as u16,
            retry_after_s: num(f, "retry_after_s") as u16,
            code: text(f, "code"),
            message: text(f, "message"),
        },
        "deliver" => Frame::Deliver { event: event(f), conns: List::from_items(count, &bytes) },
        "close_sessions" => Frame::CloseSessions {
            reason: text(f, "reason"),
            conns: List::from_items(count, &bytes),
        },
        "response" => Frame::Response {
            conn: conn(),
            status: num(f, "status") as u16,
            flags: flags(),
            body_bytes: num(f, "body_bytes"),
            headers: List::from_items(count, &bytes),
            body,
        },
        "response_body" => Frame::ResponseBody { conn: conn(), flags: flags(), body },
        "request_credit" => Frame::RequestCredit { conn: conn(), bytes: num(f, "bytes") as u32 },
        "keys" => Frame::Keys { keys: text(f, "keys") },
        "shutdown" => Frame::Shutdown { drain_ms: num(f, "drain_ms") as u32 },
        "replay" | "gap" | "cursor" | "presence" | "inspect" | "ended" => {
            return write_replaying(kind, f, count, &bytes);
        }
        "group_deliver" | "group_join" | "group_leave" | "group_end" => {
            return write_of_group(kind, f, List::from_items(count, &bytes));
        }
        "trunk_deliver"
        | "trunk_group_deliver"
        | "place"
        | "to_slot"
        | "from_worker"
        | "worker_gone" => return write_of_trunk(kind, f, count, &bytes),
        _ => frame_of_edge(kind, f, count, &bytes, body),
    };
    encoded(&frame)
}

fn write_of_group(kind: &str, f: &Json, conns: List<'_, u64>) -> Vec<u8> {
    let group = num(f, "group") as u32;
    encoded(&match kind {
        "group_deliver" => Frame::GroupDeliver { group, event: event(f) },
        "group_join" => Frame::GroupJoin { group, conns },
        "group_leave" => Frame::GroupLeave { group, conns },
        _ => Frame::GroupEnd { group },
    })
}

/// The part of [`write`] for section 13.
fn write_of_trunk(kind: &str, f: &Json, count: u16, bytes: &[u8]) -> Vec<u8> {
    let payload = f["payload"].as_str().map(unhex).unwrap_or_default();
    let payload = payload.as_slice();
    let inner = || num(f, "type") as u8;
    let worker = || num(f, "worker") as u16;
    let slot = || num(f, "slot") as u16;
    encoded(&match kind {
        "trunk_deliver" => {
            Frame::TrunkDeliver { event: event(f), words: List::from_items(count, bytes) }
        }
        "trunk_group_deliver" => Frame::TrunkGroupDeliver {
            group: num(f, "group") as u32,
            event: event(f),
            slots: List::from_items(count, bytes),
        },
        "place" => Frame::Place { worker: worker(), slot: slot() },
        "to_slot" => Frame::ToSlot { slot: slot(), kind: inner(), payload },
        "from_worker" => Frame::FromWorker { worker: worker(), kind: inner(), payload },
        _ => Frame::WorkerGone { worker: worker() },
    })
}

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

/// The part of [`write`] for section 10 and the brain's direction.
fn write_replaying(kind: &str, f: &Json, count: u16, bytes: &[u8]) -> Vec<u8> {
    let cursor = || text(f, "cursor");
    let conn = || num(f, "conn");
    match kind {
        "replay" => {
            let (n, heads) = items(f, "heads", |j| Value(j.as_u64().unwrap()));
            encoded(&Frame::Replay {
                conn: conn(),
                flags: num(f, "flags") as u8,
                cursor: cursor(),
                heads: List::from_items(n, &heads),
                items: List::from_items(count, bytes),
            })
        }
        "gap" => encoded(&Frame::Gap {
            reason: text(f, "reason"),
            from: num(f, "from"),
            to: num(f, "to"),
            cursor: cursor(),
            conns: List::from_items(count, bytes),
        }),
        "cursor" => encoded(&Frame::Cursor { cursor: cursor() }),
        "presence" => {
            let conns = List::from_items(count, bytes);
            encoded(&Frame::Presence { json: text(f, "json"), conns })
        }
        "ended" => {
            let subjects = List::from_items(count, bytes);
            encoded(&Frame::Ended { conn: conn(), reason: text(f, "reason"), subjects })
        }
        _ => encoded(&Frame::Inspect { token: num(f, "token") as u32, conn: conn() }),
    }
}

/// Section 20.
fn operation<'a>(kind: &str, f: &'a Json, members: List<'a, Member<'a>>) -> Frame<'a> {
    let (conn, number) = (num(f, "conn"), num(f, "number") as u32);
    if kind == "operation_answer" {
        let (flags, json) = (num(f, "flags") as u8, text(f, "json"));
        return Frame::OperationAnswer { conn, number, flags, json };
    }
    Frame::Operation {
        conn,
        number,
        what: [
            What::Publish,
            What::Follow,
            What::Unfollow,
            What::Subscribe,
            What::Unsubscribe,
            What::State,
        ][num(f, "what") as usize - 1],
        user: text(f, "user"),
        rights: text(f, "rights"),
        subject: text(f, "subject"),
        last: num(f, "last") as u32,
        members,
    }
}

/// The part of [`write`] for the edge's direction, and section 20.
fn frame_of_edge<'a>(
    kind: &str,
    f: &'a Json,
    count: u16,
    bytes: &'a [u8],
    body: &'a [u8],
) -> Frame<'a> {
    let conn = || num(f, "conn");
    let flags = || num(f, "flags") as u8;
    match kind {
        "sync_begin" => {
            Frame::SyncBegin { sessions: num(f, "sessions") as u32, cursor: text(f, "cursor") }
        }
        "sync_end" => Frame::SyncEnd,
        "open" => Frame::Open { sessions: List::from_items(count, bytes) },
        "close" => Frame::Close { sessions: List::from_items(count, bytes) },
        "request" => Frame::Request {
            conn: conn(),
            listener: num(f, "listener") as u8,
            flags: flags(),
            method: text(f, "method"),
            target: text(f, "target"),
            headers: List::from_items(count, bytes),
            body,
        },
        "request_body" => Frame::RequestBody { conn: conn(), flags: flags(), body },
        "request_gone" => Frame::RequestGone { conn: conn() },
        "stats" => Frame::Stats { values: List::from_items(count, bytes) },
        "replayed" => Frame::Replayed { conn: conn() },
        "subscriptions" => subscriptions(f, List::from_items(count, bytes)),
        "rights" => Frame::Rights { conn: conn(), rights: text(f, "rights") },
        "operation" | "operation_answer" => operation(kind, f, List::from_items(count, bytes)),
        "behind" => behind(f, List::from_items(count, bytes)),
        "inspected" => Frame::Inspected {
            token: num(f, "token") as u32,
            conn: conn(),
            state: state(num(f, "state")),
            transport: num(f, "transport") as u8,
            outbox_bytes: num(f, "outbox_bytes") as u32,
            outbox_pieces: num(f, "outbox_pieces") as u32,
            outbox_ms: num(f, "outbox_ms") as u32,
            held: num(f, "held") as u32,
            dropped: num(f, "dropped") as u32,
            conflated: num(f, "conflated") as u32,
        },
        "hello_edge" => Frame::HelloEdge {
            version: num(f, "version") as u16,
            window: num(f, "window") as u32,
            pid: num(f, "pid") as u32,
            worker: num(f, "worker") as u16,
            workers: num(f, "workers") as u16,
            build: text(f, "build"),
            public_listen: text(f, "public_listen"),
            api_listen: text(f, "api_listen"),
            connections_max: num(f, "connections_max") as u32,
            metrics: List::from_items(count, bytes),
        },
        other => panic!("no frame {other}"),
    }
}

fn behind<'a>(f: &'a Json, sessions: List<'a, SlowSession>) -> Frame<'a> {
    Frame::Behind { token: num(f, "token") as u32, sessions }
}

fn subscriptions<'a>(f: &'a Json, subjects: List<'a, Id<'a>>) -> Frame<'a> {
    Frame::Subscriptions { conn: num(f, "conn"), rights: text(f, "rights"), subjects }
}

fn state(number: u64) -> SessionState {
    match number {
        0 => SessionState::Unknown,
        1 => SessionState::Opening,
        2 => SessionState::Held,
        3 => SessionState::Live,
        4 => SessionState::Closing,
        other => panic!("no state {other}"),
    }
}

#[test]
fn every_vector_reads_and_writes_the_same_bytes() {
    for (name, vector) in vectors(false) {
        let hex = unhex(vector["hex"].as_str().unwrap());
        let kind = vector["frame"].as_str().unwrap();
        assert_eq!(write(kind, &vector["fields"]), hex, "{name}: encoding the fields");
        assert_eq!(read(&hex).as_ref(), Ok(&hex), "{name}: decoding and encoding again");
    }
}

#[test]
fn every_bad_vector_is_refused_by_its_clause() {
    for (name, vector) in vectors(true) {
        let hex = unhex(vector["hex"].as_str().unwrap());
        let clause = vector["clause"].as_str().unwrap();
        assert_eq!(read(&hex).map_err(|e| e.clause), Err(clause), "{name}");
    }
}

/// Style rule 3: a frame without a vector fails both suites.
#[test]
fn every_frame_type_has_a_vector() {
    let seen: BTreeSet<u64> = vectors(false).iter().map(|(_, v)| num(v, "type")).collect();
    let payload = [0u8; 64];
    for kind in 0..=255u8 {
        let unknown = Frame::decode(kind, &payload).is_err_and(|e| e.what == "unknown frame type");
        assert_eq!(!unknown, seen.contains(&u64::from(kind)), "type {kind:#04x}");
    }
}

/// What the fuzzer begins with has every frame, in inputs that it reads whole.
#[test]
fn every_vector_is_a_seed_of_the_fuzzer() {
    const INPUT_BYTES_MAX: usize = 4_096;
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/link");
    let seeds: Vec<_> = ["seed-of-brain", "seed-of-edge"]
        .into_iter()
        .map(|name| std::fs::read(corpus.join(name)).unwrap())
        .inspect(|seed| assert!(seed.len() <= INPUT_BYTES_MAX))
        .collect();
    for (name, vector) in vectors(false) {
        let hex = unhex(vector["hex"].as_str().unwrap());
        let is_in = |seed: &Vec<u8>| seed.windows(hex.len()).any(|bytes| bytes == hex);
        assert!(seeds.iter().any(is_in), "{name}: put its bytes at the end of the seed");
    }
}

/// 12.2: "of at most 229,376 bytes". A vector would be as long.
#[test]
fn keys_have_a_bound() {
    let keys = vec![b' '; 229_377];
    assert!(Frame::decode(0x1d, &keys[1..]).is_ok());
    assert_eq!(Frame::decode(0x1d, &keys).map_err(|e| e.clause), Err("12.2"));
}

/// 4.1: "PING, PONG, CREDIT, GOODBYE, KEYS and the hellos are free".
#[test]
fn these_frames_are_free() {
    let free: Vec<u8> = (0..=255).filter(|kind| !Frame::costs(*kind)).collect();
    assert_eq!(free, [0x01, 0x02, 0x03, 0x04, 0x10, 0x1d, 0x40]);
}

/// 3.2: "a link has the highest that both speak".
#[test]
fn versions_in_common() {
    let text = include_str!("../../../protocol/link-versions.json");
    let cases: Vec<Json> = serde_json::from_str(text).unwrap();
    for case in &cases {
        let range = |side: &str| {
            let end = |i: usize| case[side][i].as_u64().unwrap() as u16;
            (end(0), end(1))
        };
        let found = halley_link::common(range("edge"), range("brain"));
        assert_eq!(found.map(u64::from), case["version"].as_u64(), "{case}");
    }
}
