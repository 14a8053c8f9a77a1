//! Reading frames: every field is checked, and what is wrong is named by its clause.

use crate::version::HELLO_SINCE;
use crate::wire::Reader;
use crate::{
    BEHIND_MAX, DELIVER_CONNS_MAX, Error, Event, FLAG_CLOSE, FLAG_END, FLAG_ERROR, FLAG_EXPECT,
    FLAG_LAST, Frame, Item, KEYS_BYTES_MAX, List, MAGIC, METRICS_MAX, Member, Pair, SHARDS_MAX,
    SessionState, SlowSession, VERSION, VERSION_MIN, Value, WINDOW_BYTES_MIN, What, Word,
};

impl<'a> Frame<'a> {
    /// Reads the payload of a frame of type `kind`.
    ///
    /// # Errors
    /// The clause that the bytes break.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Result<Frame<'a>, Error> {
        let mut reader = Reader::new(payload);
        let frame = match kind {
            0x40..0x80 => of_edge(kind, &mut reader)?,
            0x10..0x40 => of_brain(kind, &mut reader)?,
            _ => of_both(kind, &mut reader)?,
        };
        reader.end()?;
        Ok(frame)
    }
}

const UNKNOWN: Error = Error::new("2.3", "unknown frame type");

fn of_both<'a>(kind: u8, r: &mut Reader<'a>) -> Result<Frame<'a>, Error> {
    Ok(match kind {
        0x01 => Frame::Ping { nonce: r.u64()? },
        0x02 => Frame::Pong { nonce: r.u64()? },
        0x03 => Frame::Credit { bytes: r.u32()? },
        0x04 => Frame::Goodbye {
            code: match r.u8()? {
                code @ 1..=8 => code,
                _ => return Err(Error::new("2.7", "unknown goodbye code")),
            },
            reason: r.str16()?,
        },
        _ => return Err(UNKNOWN),
    })
}

fn of_brain<'a>(kind: u8, r: &mut Reader<'a>) -> Result<Frame<'a>, Error> {
    Ok(match kind {
        0x10 => {
            magic(r)?;
            Frame::HelloBrain {
                // The lowest that the brain speaks.
                version: version(r, HELLO_SINCE)?,
                window: window(r)?,
                node: r.str8()?,
                settings: List::read(r)?,
            }
        }
        0x11 => Frame::Opened { cursor: r.cursor()?, sessions: List::read(r)? },
        0x12 => Frame::Refused {
            conn: r.conn()?,
            status: r.u16()?,
            retry_after_s: r.u16()?,
            code: r.str8()?,
            message: r.str16()?,
        },
        0x13 => deliver(r)?,
        0x14 => Frame::CloseSessions { reason: r.str8()?, conns: List::read(r)? },
        0x15 => response(r)?,
        0x16 => Frame::ResponseBody { conn: r.conn()?, flags: flags(r, FLAG_END)?, body: r.rest() },
        0x17 => Frame::RequestCredit { conn: r.conn()?, bytes: r.u32()? },
        0x18 => Frame::Shutdown { drain_ms: r.u32()? },
        0x19 => Frame::Replay {
            conn: r.conn()?,
            flags: flags(r, FLAG_LAST)?,
            cursor: r.cursor()?,
            heads: heads(r)?,
            items: List::read(r)?,
        },
        0x1a => Frame::Gap {
            reason: gap_reason(r)?,
            from: r.u64()?,
            to: r.u64()?,
            cursor: r.cursor()?,
            conns: List::read(r)?,
        },
        0x1b => Frame::Cursor { cursor: r.cursor()? },
        0x1c => Frame::Inspect { token: r.u32()?, conn: r.conn()? },
        0x1d => Frame::Keys { keys: keys(r)? },
        0x1e => presence(r)?,
        0x1f => Frame::Ended { conn: r.conn()?, reason: r.str8()?, subjects: List::read(r)? },
        0x20 => Frame::GroupDeliver { group: r.u32()?, event: Event::read(r)? },
        0x21 => Frame::GroupJoin { group: r.u32()?, conns: List::read(r)? },
        0x22 => Frame::GroupLeave { group: r.u32()?, conns: List::read(r)? },
        0x23 => Frame::GroupEnd { group: r.u32()? },
        0x28 => Frame::OperationAnswer {
            conn: r.conn()?,
            number: r.u32()?,
            flags: flags(r, FLAG_END | FLAG_ERROR)?,
            json: r.rest(),
        },
        _ => return trunk_of_brain(kind, r),
    })
}

/// Section 13, as far as the brain sends it.
fn trunk_of_brain<'a>(kind: u8, r: &mut Reader<'a>) -> Result<Frame<'a>, Error> {
    Ok(match kind {
        0x24 => Frame::ToSlot {
            slot: r.u16()?,
            kind: inner(r, |kind| matches!(kind, 0x11..=0x17 | 0x19..=0x1c | 0x1e..=0x23 | 0x28))?,
            payload: r.rest(),
        },
        0x25 => Frame::TrunkDeliver { event: Event::read(r)?, words: words(r)? },
        0x26 => Frame::TrunkGroupDeliver {
            group: r.u32()?,
            event: Event::read(r)?,
            slots: List::read(r)?,
        },
        0x27 => Frame::Place {
            worker: r.u16()?,
            slot: match r.u16()? {
                0 => return Err(Error::new("13.4", "slot 0")),
                slot => slot,
            },
        },
        _ => return Err(UNKNOWN),
    })
}

fn of_edge<'a>(kind: u8, r: &mut Reader<'a>) -> Result<Frame<'a>, Error> {
    Ok(match kind {
        0x40 => hello_edge(r)?,
        0x41 => Frame::SyncBegin { sessions: r.u32()?, cursor: r.cursor()? },
        0x42 => Frame::SyncEnd,
        0x43 => Frame::Open { sessions: List::read(r)? },
        0x44 => Frame::Close { sessions: List::read(r)? },
        0x45 => Frame::Request {
            conn: r.conn()?,
            listener: match r.u8()? {
                listener @ 1..=2 => listener,
                _ => return Err(Error::new("2.6", "unknown listener")),
            },
            flags: flags(r, FLAG_END | FLAG_EXPECT)?,
            method: r.str8()?,
            target: r.str16()?,
            headers: headers(r)?,
            body: r.rest(),
        },
        0x46 => Frame::RequestBody { conn: r.conn()?, flags: flags(r, FLAG_END)?, body: r.rest() },
        0x47 => Frame::RequestGone { conn: r.conn()? },
        0x48 => Frame::Stats { values: List::read(r)? },
        0x49 => Frame::Replayed { conn: r.conn()? },
        0x4a => inspected(r)?,
        0x4b => Frame::FromWorker {
            worker: r.u16()?,
            kind: inner(r, |kind| matches!(kind, 0x41..=0x4a | 0x4d..=0x50))?,
            payload: r.rest(),
        },
        0x4c => Frame::WorkerGone { worker: r.u16()? },
        0x4d => {
            Frame::Subscriptions { conn: r.conn()?, rights: r.str16()?, subjects: List::read(r)? }
        }
        0x4e => behind(r)?,
        0x4f => Frame::Rights { conn: r.conn()?, rights: r.str16()? },
        0x50 => operation(r)?,
        _ => return Err(UNKNOWN),
    })
}

fn operation<'a>(from: &mut Reader<'a>) -> Result<Frame<'a>, Error> {
    Ok(Frame::Operation {
        conn: from.conn()?,
        number: from.u32()?,
        what: What::read(from)?,
        user: from.str8()?,
        rights: from.str16()?,
        subject: from.str8()?,
        last: from.u32()?,
        members: members(from)?,
    })
}

/// Each at most once, as they are in order: so there are few of them, however long the frame is.
fn members<'a>(from: &mut Reader<'a>) -> Result<List<'a, Member<'a>>, Error> {
    let members = List::<Member<'_>>::read(from)?;
    if members.iter().map(|member| member.name as u8).is_sorted_by(|one, next| one < next) {
        Ok(members)
    } else {
        Err(Error::new("20.3", "members out of order"))
    }
}

fn magic(from: &mut Reader<'_>) -> Result<(), Error> {
    if from.bytes(4)? == MAGIC {
        Ok(())
    } else {
        Err(Error::new("3.1", "hello does not start with HLY1"))
    }
}

fn version(from: &mut Reader<'_>, lowest: u16) -> Result<u16, Error> {
    match from.u16()? {
        version if (lowest..=VERSION).contains(&version) => Ok(version),
        _ => Err(Error::new("3.2", "peer speaks no version that this side speaks")),
    }
}

fn window(from: &mut Reader<'_>) -> Result<u32, Error> {
    match from.u32()? {
        window if window >= WINDOW_BYTES_MIN => Ok(window),
        _ => Err(Error::new("4.1", "window is below 524288")),
    }
}

fn headers<'a>(from: &mut Reader<'a>) -> Result<List<'a, Pair<'a>>, Error> {
    let headers: List<'a, Pair<'a>> = List::read(from)?;
    if headers.iter().any(|h| h.name.iter().any(u8::is_ascii_uppercase)) {
        return Err(Error::new("8.2", "header name is not lower case"));
    }
    Ok(headers)
}

fn flags(from: &mut Reader<'_>, allowed: u8) -> Result<u8, Error> {
    match from.u8()? {
        flags if flags & !allowed == 0 => Ok(flags),
        _ => Err(Error::new("2.6", "unknown flag")),
    }
}

fn deliver<'a>(from: &mut Reader<'a>) -> Result<Frame<'a>, Error> {
    let event = Event::read(from)?;
    let conns: List<'a, u64> = List::read(from)?;
    if conns.len() > DELIVER_CONNS_MAX {
        return Err(Error::new("7.3", "too many connections in one deliver"));
    }
    Ok(Frame::Deliver { event, conns })
}

fn words<'a>(from: &mut Reader<'a>) -> Result<List<'a, Word>, Error> {
    match List::read(from)? {
        words if words.len() <= DELIVER_CONNS_MAX => Ok(words),
        _ => Err(Error::new("13.5", "too many connections in one deliver")),
    }
}

/// The type of the frame that this one carries.
fn inner(from: &mut Reader<'_>, may: fn(u8) -> bool) -> Result<u8, Error> {
    match from.u8()? {
        kind if may(kind) => Ok(kind),
        _ => Err(Error::new("13.3", "no frame of a worker's link in this direction")),
    }
}

fn heads<'a>(from: &mut Reader<'a>) -> Result<List<'a, Value>, Error> {
    let heads: List<'a, Value> = List::read8(from)?;
    if heads.len() > usize::from(SHARDS_MAX) {
        return Err(Error::new("2.6", "heads of more than 64 shards"));
    }
    Ok(heads)
}

fn keys<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], Error> {
    match from.rest() {
        keys if keys.len() <= KEYS_BYTES_MAX => Ok(keys),
        _ => Err(Error::new("12.2", "keys have more than 229376 bytes")),
    }
}

fn presence<'a>(from: &mut Reader<'a>) -> Result<Frame<'a>, Error> {
    let bytes = from.u32()?;
    let json = from.bytes(bytes as usize)?;
    if json.iter().any(|b| *b < 0x20) {
        return Err(Error::new("7.1", "presence has control characters"));
    }
    let conns: List<'a, u64> = List::read(from)?;
    if conns.len() > DELIVER_CONNS_MAX {
        return Err(Error::new("15.1", "too many connections in one presence"));
    }
    Ok(Frame::Presence { json, conns })
}

fn gap_reason<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], Error> {
    match from.str8()? {
        reason @ (b"too_old" | b"malformed" | b"other_store" | b"damaged") => Ok(reason),
        _ => Err(Error::new("10.4", "unknown reason of a gap")),
    }
}

fn inspected<'a>(from: &mut Reader<'a>) -> Result<Frame<'a>, Error> {
    Ok(Frame::Inspected {
        token: from.u32()?,
        conn: from.conn()?,
        state: match from.u8()? {
            0 => SessionState::Unknown,
            1 => SessionState::Opening,
            2 => SessionState::Held,
            3 => SessionState::Live,
            4 => SessionState::Closing,
            _ => return Err(Error::new("2.8", "unknown state of a session")),
        },
        transport: from.transport()?,
        outbox_bytes: from.u32()?,
        outbox_pieces: from.u32()?,
        outbox_ms: from.u32()?,
        held: from.u32()?,
        dropped: from.u32()?,
        conflated: from.u32()?,
    })
}

fn behind<'a>(from: &mut Reader<'a>) -> Result<Frame<'a>, Error> {
    let token = from.u32()?;
    let sessions: List<'a, SlowSession> = List::read(from)?;
    if sessions.len() > BEHIND_MAX {
        return Err(Error::new("10.8", "too many sessions that are behind"));
    }
    Ok(Frame::Behind { token, sessions })
}

fn response<'a>(from: &mut Reader<'a>) -> Result<Frame<'a>, Error> {
    let conn = from.conn()?;
    let status = from.u16()?;
    let flags = flags(from, FLAG_END | FLAG_CLOSE)?;
    let body_bytes = from.u64()?;
    let headers = headers(from)?;
    let body = from.rest();
    let whole = flags & FLAG_END != 0;
    if whole && body_bytes != body.len() as u64 || body_bytes < body.len() as u64 {
        return Err(Error::new("8.4", "body is not as long as it says"));
    }
    Ok(Frame::Response { conn, status, flags, body_bytes, headers, body })
}

fn metric_name(name: &[u8]) -> bool {
    name.starts_with(b"halley_edge_")
        && name.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_')
}

fn hello_edge<'a>(from: &mut Reader<'a>) -> Result<Frame<'a>, Error> {
    magic(from)?;
    let frame = Frame::HelloEdge {
        version: version(from, VERSION_MIN)?,
        window: window(from)?,
        pid: from.u32()?,
        worker: from.u16()?,
        workers: from.u16()?,
        build: from.str8()?,
        public_listen: from.str8()?,
        api_listen: from.str8()?,
        connections_max: from.u32()?,
        metrics: List::read(from)?,
    };
    match frame {
        Frame::HelloEdge { metrics, .. } if metrics.len() > METRICS_MAX => {
            Err(Error::new("3.4", "more than 256 metrics"))
        }
        Frame::HelloEdge { metrics, .. } if !metrics.iter().all(|m| metric_name(m.name)) => {
            Err(Error::new("3.4", "metric name is not halley_edge_[a-z0-9_]*"))
        }
        frame => Ok(frame),
    }
}
