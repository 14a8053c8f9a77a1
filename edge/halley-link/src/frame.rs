//! Every frame of the link: reading and writing (2.5).

use crate::list::Value;
use crate::wire::{Reader, put_str8, put_str16};
use crate::{
    DELIVER_CONNS_MAX, Error, FLAG_CLOSE, FLAG_END, FLAG_EXPECT, List, MAGIC, METRICS_MAX, Metric,
    NumberedSession, Pair, Session, VERSION, WINDOW_BYTES_MIN,
};

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
        cursor: &'a [u8],
        data_offset: u32,
        event: &'a [u8],
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
    },
    SyncEnd,
    Open {
        sessions: List<'a, Session<'a>>,
    },
    Close {
        sessions: List<'a, NumberedSession>,
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
}

fn magic(from: &mut Reader<'_>) -> Result<(), Error> {
    if from.bytes(4)? == MAGIC {
        Ok(())
    } else {
        Err(Error::new("3.1", "hello does not start with HLY1"))
    }
}

fn version(from: &mut Reader<'_>) -> Result<u16, Error> {
    match from.u16()? {
        VERSION => Ok(VERSION),
        _ => Err(Error::new("3.2", "peer speaks another version than 1")),
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
    let cursor = from.str8()?;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if !cursor.iter().all(plain) {
        return Err(Error::new("7.2", "cursor has other bytes than A-Z a-z 0-9 - _"));
    }
    let data_offset = from.u32()?;
    let bytes = from.u32()? as usize;
    let event = from.bytes(bytes)?;
    if event.len() < 2 || data_offset as usize > event.len() - 1 {
        return Err(Error::new("7.1", "data offset is outside of the event"));
    }
    if event.iter().any(|b| *b < 0x20) {
        return Err(Error::new("7.1", "event has control characters"));
    }
    let conns: List<'a, u64> = List::read(from)?;
    if conns.len() > DELIVER_CONNS_MAX {
        return Err(Error::new("7.3", "too many connections in one deliver"));
    }
    Ok(Frame::Deliver { cursor, data_offset, event, conns })
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
        version: version(from)?,
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

impl<'a> Frame<'a> {
    /// Reads the payload of a frame of type `kind`.
    ///
    /// # Errors
    /// The clause that the bytes break.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Result<Frame<'a>, Error> {
        let mut reader = Reader::new(payload);
        let r = &mut reader;
        let frame = match kind {
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
            0x10 => {
                magic(r)?;
                Frame::HelloBrain {
                    version: version(r)?,
                    window: window(r)?,
                    node: r.str8()?,
                    settings: List::read(r)?,
                }
            }
            0x11 => Frame::Opened { sessions: List::read(r)? },
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
            0x16 => {
                Frame::ResponseBody { conn: r.conn()?, flags: flags(r, FLAG_END)?, body: r.rest() }
            }
            0x17 => Frame::RequestCredit { conn: r.conn()?, bytes: r.u32()? },
            0x18 => Frame::Shutdown { drain_ms: r.u32()? },
            0x40 => hello_edge(r)?,
            0x41 => Frame::SyncBegin { sessions: r.u32()? },
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
            0x46 => {
                Frame::RequestBody { conn: r.conn()?, flags: flags(r, FLAG_END)?, body: r.rest() }
            }
            0x47 => Frame::RequestGone { conn: r.conn()? },
            0x48 => Frame::Stats { values: List::read(r)? },
            _ => return Err(Error::new("2.3", "unknown frame type")),
        };
        reader.end()?;
        Ok(frame)
    }

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
            Frame::HelloEdge { .. } => 0x40,
            Frame::SyncBegin { .. } => 0x41,
            Frame::SyncEnd => 0x42,
            Frame::Open { .. } => 0x43,
            Frame::Close { .. } => 0x44,
            Frame::Request { .. } => 0x45,
            Frame::RequestBody { .. } => 0x46,
            Frame::RequestGone { .. } => 0x47,
            Frame::Stats { .. } => 0x48,
        }
    }

    /// Does a frame of this type cost credit (4.1)?
    #[must_use]
    pub fn costs(kind: u8) -> bool {
        !matches!(kind, 0x01..=0x04 | 0x10 | 0x40)
    }

    /// Appends the whole frame with its length prefix.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(self.kind());
        self.payload(out);
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn payload(&self, out: &mut Vec<u8>) {
        match *self {
            Frame::Ping { nonce } | Frame::Pong { nonce } => put_u64(out, nonce),
            Frame::Credit { bytes } => put_u32(out, bytes),
            Frame::Goodbye { code, reason } => {
                out.push(code);
                put_str16(out, reason);
            }
            Frame::HelloBrain { version, window, node, settings } => {
                out.extend_from_slice(&MAGIC);
                put_u16(out, version);
                put_u32(out, window);
                put_str8(out, node);
                settings.write(out);
            }
            Frame::Opened { sessions } | Frame::Close { sessions } => sessions.write(out),
            Frame::Refused { conn, status, retry_after_s, code, message } => {
                put_u64(out, conn);
                put_u16(out, status);
                put_u16(out, retry_after_s);
                put_str8(out, code);
                put_str16(out, message);
            }
            Frame::Deliver { cursor, data_offset, event, conns } => {
                put_str8(out, cursor);
                put_u32(out, data_offset);
                put_u32(out, event.len() as u32);
                out.extend_from_slice(event);
                conns.write(out);
            }
            Frame::CloseSessions { reason, conns } => {
                put_str8(out, reason);
                conns.write(out);
            }
            Frame::Response { conn, status, flags, body_bytes, headers, body } => {
                put_u64(out, conn);
                put_u16(out, status);
                out.push(flags);
                put_u64(out, body_bytes);
                headers.write(out);
                out.extend_from_slice(body);
            }
            Frame::ResponseBody { conn, flags, body }
            | Frame::RequestBody { conn, flags, body } => {
                put_u64(out, conn);
                out.push(flags);
                out.extend_from_slice(body);
            }
            Frame::RequestCredit { conn, bytes } => {
                put_u64(out, conn);
                put_u32(out, bytes);
            }
            Frame::Shutdown { drain_ms } => put_u32(out, drain_ms),
            Frame::SyncBegin { sessions } => put_u32(out, sessions),
            Frame::SyncEnd => {}
            Frame::Open { sessions } => sessions.write(out),
            Frame::RequestGone { conn } => put_u64(out, conn),
            Frame::Stats { values } => values.write(out),
            Frame::HelloEdge { .. } | Frame::Request { .. } => self.payload_of_edge(out),
        }
    }

    fn payload_of_edge(&self, out: &mut Vec<u8>) {
        match *self {
            Frame::HelloEdge {
                version,
                window,
                pid,
                worker,
                workers,
                build,
                public_listen,
                api_listen,
                connections_max,
                metrics,
            } => {
                out.extend_from_slice(&MAGIC);
                put_u16(out, version);
                put_u32(out, window);
                put_u32(out, pid);
                put_u16(out, worker);
                put_u16(out, workers);
                put_str8(out, build);
                put_str8(out, public_listen);
                put_str8(out, api_listen);
                put_u32(out, connections_max);
                metrics.write(out);
            }
            Frame::Request { conn, listener, flags, method, target, headers, body } => {
                put_u64(out, conn);
                out.push(listener);
                out.push(flags);
                put_str8(out, method);
                put_str16(out, target);
                headers.write(out);
                out.extend_from_slice(body);
            }
            _ => {}
        }
    }
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}
