//! Writing frames.

use crate::wire::{put_str8, put_str16};
use crate::{Frame, Item, MAGIC};

impl Frame<'_> {
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
            _ => self.payload_of_brain(out),
        }
    }

    fn payload_of_brain(&self, out: &mut Vec<u8>) {
        match *self {
            Frame::Opened { cursor, sessions } => {
                put_str8(out, cursor);
                sessions.write(out);
            }
            Frame::Refused { conn, status, retry_after_s, code, message } => {
                put_u64(out, conn);
                put_u16(out, status);
                put_u16(out, retry_after_s);
                put_str8(out, code);
                put_str16(out, message);
            }
            Frame::Deliver { event, conns } => {
                event.write(out);
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
            Frame::ResponseBody { conn, flags, body } => {
                put_u64(out, conn);
                out.push(flags);
                out.extend_from_slice(body);
            }
            Frame::RequestCredit { conn, bytes } => {
                put_u64(out, conn);
                put_u32(out, bytes);
            }
            Frame::Shutdown { drain_ms } => put_u32(out, drain_ms),
            _ => self.payload_of_replays(out),
        }
    }

    /// The brain's part of sections 10 to 12.
    fn payload_of_replays(&self, out: &mut Vec<u8>) {
        match *self {
            Frame::Replay { conn, flags, cursor, heads, items } => {
                put_u64(out, conn);
                out.push(flags);
                put_str8(out, cursor);
                heads.write8(out);
                items.write(out);
            }
            Frame::Gap { reason, from, to, cursor, conns } => {
                put_str8(out, reason);
                put_u64(out, from);
                put_u64(out, to);
                put_str8(out, cursor);
                conns.write(out);
            }
            Frame::Cursor { cursor } => put_str8(out, cursor),
            Frame::Keys { keys } => out.extend_from_slice(keys),
            Frame::Presence { json, conns } => {
                put_u32(out, json.len() as u32);
                out.extend_from_slice(json);
                conns.write(out);
            }
            Frame::Ended { conn, reason, subjects } => {
                put_u64(out, conn);
                put_str8(out, reason);
                subjects.write(out);
            }
            Frame::Inspect { token, conn } => {
                put_u32(out, token);
                put_u64(out, conn);
            }
            Frame::GroupDeliver { group, event } => {
                put_u32(out, group);
                event.write(out);
            }
            Frame::GroupJoin { group, conns } | Frame::GroupLeave { group, conns } => {
                put_u32(out, group);
                conns.write(out);
            }
            Frame::GroupEnd { group } => put_u32(out, group),
            _ => self.payload_of_trunk(out),
        }
    }

    /// Section 13.
    fn payload_of_trunk(&self, out: &mut Vec<u8>) {
        match *self {
            Frame::ToSlot { slot: whose, kind, payload }
            | Frame::FromWorker { worker: whose, kind, payload } => {
                put_u16(out, whose);
                out.push(kind);
                out.extend_from_slice(payload);
            }
            Frame::TrunkDeliver { event, words } => {
                event.write(out);
                words.write(out);
            }
            Frame::TrunkGroupDeliver { group, event, slots } => {
                put_u32(out, group);
                event.write(out);
                slots.write(out);
            }
            Frame::Place { worker, slot } => {
                put_u16(out, worker);
                put_u16(out, slot);
            }
            Frame::WorkerGone { worker } => put_u16(out, worker),
            _ => self.payload_of_edge(out),
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
            Frame::RequestBody { conn, flags, body } => {
                put_u64(out, conn);
                out.push(flags);
                out.extend_from_slice(body);
            }
            Frame::SyncBegin { sessions, cursor } => {
                put_u32(out, sessions);
                put_str8(out, cursor);
            }
            Frame::Open { sessions } => sessions.write(out),
            Frame::Close { sessions } => sessions.write(out),
            Frame::RequestGone { conn } | Frame::Replayed { conn } => put_u64(out, conn),
            Frame::Stats { values } => values.write(out),
            Frame::Behind { token, sessions } => {
                put_u32(out, token);
                sessions.write(out);
            }
            _ => self.payload_of_session(out),
        }
    }

    fn payload_of_session(&self, out: &mut Vec<u8>) {
        match *self {
            Frame::Subscriptions { conn, rights, subjects } => {
                put_u64(out, conn);
                put_str16(out, rights);
                subjects.write(out);
            }
            Frame::Rights { conn, rights } => {
                put_u64(out, conn);
                put_str16(out, rights);
            }
            Frame::Operation { conn, number, what, user, rights, subject, last, members } => {
                put_u64(out, conn);
                put_u32(out, number);
                out.push(what as u8);
                put_str8(out, user);
                put_str16(out, rights);
                put_str8(out, subject);
                put_u32(out, last);
                members.write(out);
            }
            Frame::OperationAnswer { conn, number, flags, json } => {
                put_u64(out, conn);
                put_u32(out, number);
                out.push(flags);
                out.extend_from_slice(json);
            }
            _ => self.payload_of_inspection(out),
        }
    }

    fn payload_of_inspection(&self, out: &mut Vec<u8>) {
        if let Frame::Inspected {
            token,
            conn,
            state,
            transport,
            outbox_bytes,
            outbox_pieces,
            outbox_ms,
            held,
            dropped,
            conflated,
        } = *self
        {
            put_u32(out, token);
            put_u64(out, conn);
            out.push(state as u8);
            out.push(transport);
            for number in [outbox_bytes, outbox_pieces, outbox_ms, held, dropped, conflated] {
                put_u32(out, number);
            }
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
