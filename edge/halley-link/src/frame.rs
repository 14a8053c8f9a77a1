//! Every frame of the link (2.5). `decode.rs` reads them, `encode.rs` writes them.

use crate::SessionState;
use crate::list::{
    ClosedSession, Event, Id, List, Metric, NumberedSession, Pair, Session, SlowSession, Value,
};
use crate::operation::{Member, What};
use crate::word::{Slot, Word};

/// A frame that borrows from the bytes it was read from. Fields are those of the table in
/// `protocol/link.md` §2.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields are named and explained in protocol/link.md")]
pub enum Frame<'a> {
    Ping {
        nonce: u64,
    },
    Pong {
        nonce: u64,
    },
    Credit {
        bytes: u32,
    },
    Goodbye {
        code: u8,
        reason: &'a [u8],
    },
    HelloBrain {
        version: u16,
        window: u32,
        node: &'a [u8],
        settings: List<'a, Pair<'a>>,
    },
    Opened {
        cursor: &'a [u8],
        sessions: List<'a, NumberedSession>,
    },
    Refused {
        conn: u64,
        status: u16,
        retry_after_s: u16,
        code: &'a [u8],
        message: &'a [u8],
    },
    Deliver {
        event: Event<'a>,
        conns: List<'a, u64>,
    },
    CloseSessions {
        reason: &'a [u8],
        conns: List<'a, u64>,
    },
    Response {
        conn: u64,
        status: u16,
        flags: u8,
        body_bytes: u64,
        headers: List<'a, Pair<'a>>,
        body: &'a [u8],
    },
    ResponseBody {
        conn: u64,
        flags: u8,
        body: &'a [u8],
    },
    RequestCredit {
        conn: u64,
        bytes: u32,
    },
    Shutdown {
        drain_ms: u32,
    },
    Replay {
        conn: u64,
        flags: u8,
        cursor: &'a [u8],
        heads: List<'a, Value>,
        items: List<'a, Event<'a>>,
    },
    Gap {
        reason: &'a [u8],
        from: u64,
        to: u64,
        cursor: &'a [u8],
        conns: List<'a, u64>,
    },
    Cursor {
        cursor: &'a [u8],
    },
    Inspect {
        token: u32,
        conn: u64,
    },
    Keys {
        keys: &'a [u8],
    },
    Presence {
        json: &'a [u8],
        conns: List<'a, u64>,
    },
    Ended {
        conn: u64,
        reason: &'a [u8],
        subjects: List<'a, Id<'a>>,
    },
    GroupDeliver {
        group: u32,
        event: Event<'a>,
    },
    GroupJoin {
        group: u32,
        conns: List<'a, u64>,
    },
    GroupLeave {
        group: u32,
        conns: List<'a, u64>,
    },
    GroupEnd {
        group: u32,
    },
    ToSlot {
        slot: u16,
        kind: u8,
        payload: &'a [u8],
    },
    TrunkDeliver {
        event: Event<'a>,
        words: List<'a, Word>,
    },
    TrunkGroupDeliver {
        group: u32,
        event: Event<'a>,
        slots: List<'a, Slot>,
    },
    Place {
        worker: u16,
        slot: u16,
    },
    OperationAnswer {
        conn: u64,
        number: u32,
        flags: u8,
        json: &'a [u8],
    },
    HelloEdge {
        version: u16,
        window: u32,
        pid: u32,
        worker: u16,
        workers: u16,
        build: &'a [u8],
        public_listen: &'a [u8],
        api_listen: &'a [u8],
        connections_max: u32,
        metrics: List<'a, Metric<'a>>,
    },
    SyncBegin {
        sessions: u32,
        cursor: &'a [u8],
    },
    SyncEnd,
    Open {
        sessions: List<'a, Session<'a>>,
    },
    Close {
        sessions: List<'a, ClosedSession>,
    },
    Request {
        conn: u64,
        listener: u8,
        flags: u8,
        method: &'a [u8],
        target: &'a [u8],
        headers: List<'a, Pair<'a>>,
        body: &'a [u8],
    },
    RequestBody {
        conn: u64,
        flags: u8,
        body: &'a [u8],
    },
    RequestGone {
        conn: u64,
    },
    Stats {
        values: List<'a, Value>,
    },
    Replayed {
        conn: u64,
    },
    Subscriptions {
        conn: u64,
        rights: &'a [u8],
        subjects: List<'a, Id<'a>>,
    },
    Inspected {
        token: u32,
        conn: u64,
        state: SessionState,
        transport: u8,
        outbox_bytes: u32,
        outbox_pieces: u32,
        outbox_ms: u32,
        held: u32,
        dropped: u32,
        conflated: u32,
    },
    Behind {
        token: u32,
        sessions: List<'a, SlowSession>,
    },
    Rights {
        conn: u64,
        rights: &'a [u8],
    },
    Operation {
        conn: u64,
        number: u32,
        what: What,
        user: &'a [u8],
        rights: &'a [u8],
        subject: &'a [u8],
        last: u32,
        members: List<'a, Member<'a>>,
    },
    FromWorker {
        worker: u16,
        kind: u8,
        payload: &'a [u8],
    },
    WorkerGone {
        worker: u16,
    },
}

impl Frame<'_> {
    /// The frame's type byte.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            Frame::Ping { .. } => 0x01,
            Frame::Pong { .. } => 0x02,
            Frame::Credit { .. } => 0x03,
            Frame::Goodbye { .. } => 0x04,
            Frame::HelloBrain { .. } => 0x10,
            Frame::Opened { .. } => 0x11,
            Frame::Refused { .. } => 0x12,
            Frame::Deliver { .. } => 0x13,
            Frame::CloseSessions { .. } => 0x14,
            Frame::Response { .. } => 0x15,
            Frame::ResponseBody { .. } => 0x16,
            Frame::RequestCredit { .. } => 0x17,
            Frame::Shutdown { .. } => 0x18,
            Frame::Replay { .. } => 0x19,
            Frame::Gap { .. } => 0x1a,
            Frame::Cursor { .. } => 0x1b,
            Frame::Inspect { .. } => 0x1c,
            Frame::Keys { .. } => 0x1d,
            Frame::Presence { .. } => 0x1e,
            Frame::Ended { .. } => 0x1f,
            Frame::GroupDeliver { .. } => 0x20,
            Frame::GroupJoin { .. } => 0x21,
            Frame::GroupLeave { .. } => 0x22,
            Frame::GroupEnd { .. } => 0x23,
            Frame::ToSlot { .. } => 0x24,
            Frame::TrunkDeliver { .. } => 0x25,
            Frame::TrunkGroupDeliver { .. } => 0x26,
            Frame::Place { .. } => 0x27,
            Frame::OperationAnswer { .. } => 0x28,
            Frame::HelloEdge { .. } => 0x40,
            Frame::SyncBegin { .. } => 0x41,
            Frame::SyncEnd => 0x42,
            Frame::Open { .. } => 0x43,
            Frame::Close { .. } => 0x44,
            Frame::Request { .. } => 0x45,
            Frame::RequestBody { .. } => 0x46,
            Frame::RequestGone { .. } => 0x47,
            Frame::Stats { .. } => 0x48,
            Frame::Replayed { .. } => 0x49,
            Frame::Inspected { .. } => 0x4a,
            Frame::FromWorker { .. } => 0x4b,
            Frame::WorkerGone { .. } => 0x4c,
            Frame::Subscriptions { .. } => 0x4d,
            Frame::Behind { .. } => 0x4e,
            Frame::Rights { .. } => 0x4f,
            Frame::Operation { .. } => 0x50,
        }
    }

    /// Does a frame of this type cost credit (4.1)?
    #[must_use]
    pub fn costs(kind: u8) -> bool {
        !matches!(kind, 0x01..=0x04 | 0x10 | 0x1d | 0x40)
    }
}
