//! The worker takes what the trunk's owner has handed over, in the order of the trunk: the
//! beginning and the end of its place, frames, and events, which come decoded and with their
//! cursors (`protocol/link.md` 13).

use halley_link::trunk::{Brought, HandOver, Handed};
use halley_link::{CloseReason, Frame, Word};
use halley_wire::Gap;

use crate::link::goodbye::LinkEnd;
use crate::sessions::base::answer::Answer;
use crate::sessions::base::errors::StreamError;
use crate::sessions::base::groups;
use crate::sessions::delivery::replays::Replay;
use crate::worker::state::{RUN, Worker};

/// What is taken in one round before anything is written: large enough for writes to gather when
/// there is much to do, small enough that nobody else waits for long.
const BYTES_PER_ROUND: usize = 2_097_152;

impl Worker {
    /// Is there something to take, and room for it?
    pub(crate) fn handed_may_be_taken(&self) -> bool {
        self.io.link.has_handed() && !self.handed_waits()
    }

    /// Must what the brain sent wait for groups to be served? A handshake adds nothing to that.
    fn handed_waits(&self) -> bool {
        self.io.link.is_up() && self.io.fan_out.is_full(&self.io.conns.settings)
    }

    /// May the worker sleep? If so it is woken for what is handed to it then.
    pub(crate) fn may_sleep(&self) -> bool {
        // While groups have to be served it takes nothing, and needs no waking.
        self.handed_waits() || self.io.link.seat().may_sleep()
    }

    /// Takes and deals with what was handed over, up to a bound.
    pub(crate) fn take_handed(&mut self) {
        let mut taken = 0;
        while taken < BYTES_PER_ROUND && !self.handed_waits() {
            let Some(handed) = self.io.link.take_handed() else { return };
            match handed {
                Handed::Begin(begin) => self.place_begins(&begin),
                Handed::Batch(part) => {
                    taken += part.cost();
                    self.part(part);
                }
                Handed::Cursor(cursor) if self.io.link.is_there() => {
                    self.io.link.cursor_moved(&cursor);
                }
                // The worker has left the trunk by itself.
                Handed::Cursor(_) => {}
                Handed::End(end) => self.place_ends(&end),
            }
        }
    }

    fn part(&mut self, mut part: HandOver) {
        while self.io.link.is_there() {
            if self.handed_waits() {
                return self.io.link.put_part(part);
            }
            let Some(brought) = part.next() else { return };
            if let Err(end) = self.brought(brought) {
                return self.link_broken(&end);
            }
        }
    }

    fn brought(&mut self, brought: Brought<'_>) -> Result<(), LinkEnd> {
        let (io, sessions) = (&mut self.io, &mut self.sessions);
        match brought {
            Brought::Deliver { event, words } => {
                sessions.writer(io).deliver(&event, words.iter().map(Word::conn))
            }
            Brought::GroupDeliver { group, event } => groups::deliver(io, group, &event),
            Brought::Frame { kind, payload } => {
                let frame = Frame::decode(kind, payload)?;
                self.frame(&frame)
            }
            Brought::Cursor { cursor } => {
                io.link.cursor_moved(cursor);
                Ok(())
            }
        }
    }

    /// A frame for this worker alone, or for all.
    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), LinkEnd> {
        match *frame {
            // To a slot that doesn't follow the trunk (13.6).
            Frame::Deliver { event, conns } => {
                self.sessions.writer(&mut self.io).deliver(&event, conns.iter())
            }
            Frame::GroupDeliver { group, event } => groups::deliver(&mut self.io, group, &event),
            _ => self.of_sessions(frame),
        }
    }

    /// Frames about sessions, but for events.
    fn of_sessions(&mut self, frame: &Frame<'_>) -> Result<(), LinkEnd> {
        match *frame {
            Frame::Opened { cursor, sessions } => {
                self.io.link.cursor_moved(cursor);
                let mut writer = self.sessions.writer(&mut self.io);
                sessions.iter().for_each(|session| writer.opened(session, cursor));
            }
            Frame::Replay { conn, flags, cursor, heads, items } => {
                let replay = Replay { flags, cursor, heads, items };
                self.sessions.writer(&mut self.io).replay(conn, &replay);
            }
            Frame::Gap { reason, from, to, cursor, conns } => {
                let reason = std::str::from_utf8(reason).unwrap_or_default();
                let gap = Gap { reason, from, to };
                self.sessions.writer(&mut self.io).gap(&gap, cursor, conns);
            }
            Frame::Cursor { cursor } => self.io.link.cursor_moved(cursor),
            Frame::Presence { json, conns } => {
                self.sessions.writer(&mut self.io).presence(json, conns)
            }
            Frame::Ended { conn, reason, subjects } => {
                self.sessions.ended(&mut self.io, conn, reason, subjects);
            }
            Frame::Keys { keys } => self.take_keys(keys)?,
            Frame::Inspect { token, conn } => {
                self.sessions.writer(&mut self.io).inspect(token, conn)
            }
            Frame::GroupJoin { group, conns } => groups::join(&mut self.io, group, conns)?,
            Frame::GroupLeave { group, conns } => groups::leave(&mut self.io, group, conns),
            Frame::GroupEnd { group } => groups::end(&mut self.io, group),
            Frame::Refused { conn, status, retry_after_s, code, message } => {
                let text = |bytes| std::str::from_utf8(bytes).unwrap_or("unreadable");
                let (code, message) = (text(code), text(message));
                let error = StreamError { status, retry_after_s, code, message };
                self.sessions.refused(&mut self.io, conn, &error);
            }
            Frame::CloseSessions { reason, conns } => {
                let reason = String::from_utf8_lossy(reason);
                for conn in conns.iter() {
                    if let Some((index, _)) = self.io.conns.find(conn) {
                        self.close_gently(index, &reason, CloseReason::CloseSessions);
                    }
                }
            }
            _ => return self.of_requests(frame),
        }
        Ok(())
    }

    /// Frames about requests, and of the edge itself.
    fn of_requests(&mut self, frame: &Frame<'_>) -> Result<(), LinkEnd> {
        let (io, sessions) = (&mut self.io, &mut self.sessions);
        match *frame {
            Frame::Response { conn, status, flags, body_bytes, headers, body } => {
                let answer = Answer { status, flags, body_bytes, headers, body };
                self.http.response(io, sessions, conn, answer);
            }
            Frame::ResponseBody { conn, flags, body } => {
                self.http.response_body(io, sessions, conn, flags, body);
            }
            Frame::OperationAnswer { conn, number, flags, json } => {
                sessions.talk(io).answered(conn, number, flags, json);
            }
            Frame::RequestCredit { conn, bytes } => {
                self.http.request_credit(io, sessions, conn, bytes);
            }
            Frame::Shutdown { drain_ms } => {
                let stop = u64::from(drain_ms).min(RUN - 1);
                self.shared.stop.fetch_min(stop, std::sync::atomic::Ordering::Relaxed);
            }
            _ => return Err(LinkEnd::broken("2.5", "a frame of the other direction")),
        }
        Ok(())
    }
}
