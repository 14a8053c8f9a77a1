//! The worker and its brain: handshake, sync, frames, the link's end (`protocol/link.md`).

use halley_link::{CloseReason, Frame, GoodbyeCode, List, VERSION_MIN};
use halley_token::Keys;
use halley_wire::Gap;

use crate::conns::table::Phase;
use crate::link::brain_link::{Due, READ_BYTES_PER_ROUND};
use crate::link::goodbye::LinkEnd;
use crate::link::{WINDOW_BYTES, hello};
use crate::log;
use crate::sessions::base::answer::Answer;
use crate::sessions::base::detail::exchange_of;
use crate::sessions::base::errors::{NO_BRAIN, StreamError};
use crate::sessions::base::groups;
use crate::sessions::replays::Replay;
use crate::sessions::sync;
use crate::settings::{AuthMode, Settings};
use crate::stats::Stat;
use crate::worker::state::{RUN, Worker};

impl Worker {
    /// Is there anything to read, and room for it?
    pub(crate) fn link_may_be_read(&self) -> bool {
        (self.io.link.is_readable() || self.io.link.has_handed()) && !self.link_waits()
    }

    /// Must what the brain sent wait for groups to be served? A handshake adds nothing to that.
    pub(crate) fn link_waits(&self) -> bool {
        self.io.link.is_up() && self.io.fan_out.is_full(&self.io.conns.settings)
    }

    /// Reads and deals with what the brain sent, up to a bound.
    pub(crate) fn read_link(&mut self) {
        self.take_handed();
        let mut read = 0;
        while self.io.link.is_readable() && !self.link_waits() && read < READ_BYTES_PER_ROUND {
            // First those that were left because they had to wait.
            self.frames();
            if self.link_waits() {
                break;
            }
            match self.io.link.read(self.io.conns.clock.now_ms) {
                Ok(n) => read += n,
                Err(why) => self.link_lost(&why),
            }
        }
        self.frames();
        self.sessions.sync(&mut self.io);
    }

    fn frames(&mut self) {
        let Some(mut deframer) = self.io.link.take_frames() else { return };
        let end = loop {
            if self.link_waits() {
                break None;
            }
            match deframer.next() {
                Ok(Some(raw)) => {
                    let frame = Frame::decode(raw.kind, raw.payload);
                    let frame = frame.map_err(|error| LinkEnd::unread(error, &raw));
                    if let Err(end) = frame.and_then(|frame| self.frame(&frame)) {
                        break Some(end);
                    }
                    self.io.link.dealt_with(&raw);
                }
                Ok(None) => break None,
                Err(error) => break Some(error.into()),
            }
        };
        match end {
            None => self.io.link.put_frames(deframer),
            Some(end) => self.link_broken(&end),
        }
    }

    /// The link ends for what the brain sent.
    pub(crate) fn link_broken(&mut self, end: &LinkEnd) {
        match end {
            LinkEnd::Broken(code, why) => {
                self.io.conns.stats.count(Stat::LinkErrors);
                self.end_link(*code, why);
            }
            LinkEnd::Goodbye(why) => self.link_lost(why),
        }
    }

    pub(crate) fn frame(&mut self, frame: &Frame<'_>) -> Result<(), LinkEnd> {
        let up = self.io.link.is_up();
        match *frame {
            Frame::HelloBrain { window, settings, node, version: lowest } if !up => {
                let version = hello::version_with(lowest, settings, VERSION_MIN)?;
                self.handshake(version, window, hello::settings(settings)?, node)
            }
            Frame::Goodbye { reason, .. } => {
                Err(LinkEnd::Goodbye(String::from_utf8_lossy(reason).into_owned()))
            }
            _ if !up => Err(LinkEnd::broken("3.1", "first frame is not HELLO_BRAIN")),
            Frame::Ping { .. } if self.io.link.is_overloaded() => {
                let why = "pings whose answers nobody reads".into();
                Err(LinkEnd::Broken(GoodbyeCode::Overloaded, why))
            }
            Frame::Ping { nonce } => {
                self.io.link.send(&Frame::Pong { nonce });
                Ok(())
            }
            Frame::Pong { .. } => Ok(()),
            Frame::Credit { bytes } => self
                .io
                .link
                .credited(bytes)
                .map_err(|e| LinkEnd::Broken(GoodbyeCode::FlowControl, e.to_string())),
            Frame::Deliver { event, conns } => {
                self.sessions.deliver(&mut self.io, &event, conns.iter())
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
                for session in sessions.iter() {
                    self.sessions.opened(&mut self.io, session, cursor);
                }
            }
            Frame::Replay { conn, flags, cursor, heads, items } => {
                self.sessions.replay(&mut self.io, conn, &Replay { flags, cursor, heads, items });
            }
            Frame::Gap { reason, from, to, cursor, conns } => {
                let reason = std::str::from_utf8(reason).unwrap_or_default();
                self.sessions.gap(&mut self.io, &Gap { reason, from, to }, cursor, conns);
            }
            Frame::Cursor { cursor } => self.io.link.cursor_moved(cursor),
            Frame::Presence { json, conns } => self.sessions.presence(&mut self.io, json, conns),
            Frame::Ended { conn, reason, subjects } => {
                self.sessions.ended(&mut self.io, conn, reason, subjects);
            }
            Frame::Keys { keys } => self.take_keys(keys)?,
            Frame::Inspect { token, conn } => self.sessions.inspect(&mut self.io, token, conn),
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
                sessions.operation_answered(io, conn, number, flags, json);
            }
            Frame::RequestCredit { conn, bytes } => {
                self.http.request_credit(io, sessions, conn, bytes);
            }
            Frame::Shutdown { drain_ms } => {
                let stop = u64::from(drain_ms).min(RUN - 1);
                self.shared.stop.fetch_min(stop, std::sync::atomic::Ordering::Relaxed);
            }
            Frame::HelloBrain { .. } => return Err(LinkEnd::broken("3.1", "a second hello")),
            _ => return Err(LinkEnd::broken("2.5", "a frame of the other direction")),
        }
        Ok(())
    }

    /// The handshake: answers, takes the settings, begins the sync.
    pub(crate) fn handshake(
        &mut self,
        version: u16,
        window: u32,
        mut settings: Settings,
        node: &[u8],
    ) -> Result<(), LinkEnd> {
        self.reap();
        settings.share_opens(self.shared.config.workers);
        let last = std::mem::replace(&mut self.io.conns.settings, settings);
        groups::end_all(&mut self.io);
        self.sessions.auth_changed(&mut self.io, last.auth_mode);
        self.sessions.anonymous_changed(&mut self.io, &last.anonymous);
        self.let_clients_in()?;
        let connections_max = self.acceptor.connections_max();
        let (worker, grants) = (self.index, WINDOW_BYTES);
        let answer = hello::Answer { version, worker, window: grants, connections_max };
        self.io.link.handshake(window, &answer, &self.shared.config);
        self.io.conns.stats.count(Stat::LinkHandshakes);
        // Doomed sessions aren't part of the sync.
        self.reap();
        let sessions = sync::forget_numbers(&mut self.io);
        if self.index == 0 {
            log!(
                "handshake with {}: {sessions} sessions in worker 0",
                String::from_utf8_lossy(node)
            );
        }
        self.io.link.sync_begin(sessions);
        Ok(())
    }

    /// KEYS: these count, and no others (link.md 12.3).
    ///
    /// # Errors
    /// When clients can't be let in.
    pub(crate) fn take_keys(&mut self, set: &[u8]) -> Result<(), LinkEnd> {
        if self.io.conns.settings.auth_mode == AuthMode::None {
            return Ok(());
        }
        let (keys, unusable) = Keys::parse(set);
        if self.index == 0 {
            for unusable in &unusable {
                log!("keys of tokens: key {}: {}", unusable.place, unusable.why);
            }
        }
        self.sessions.take_keys(&mut self.io, keys);
        self.let_clients_in()
    }

    /// Says goodbye as a connection's phase has it, then closes.
    pub(crate) fn close_gently(&mut self, index: u32, text: &str, reason: CloseReason) {
        let (io, sessions) = (&mut self.io, &mut self.sessions);
        match io.conns.phase(index) {
            Phase::Http if exchange_of(&mut io.conns, index).is_some_and(|e| e.is_in_flight()) => {
                self.http.refuse(io, sessions, index, &NO_BRAIN);
            }
            Phase::Http | Phase::Handshake | Phase::Proxy => sessions.end(io, index, reason),
            _ => sessions.close_gently(io, index, text, reason),
        }
    }

    /// What time brings about on the link.
    pub(crate) fn link_time(&mut self) {
        let waits = self.link_waits();
        match self.io.link.on_time(self.io.conns.clock.now_ms, self.io.conns.clock.heard_ms, waits)
        {
            Due::Nothing => {}
            Due::NoHello => self.end_link(GoodbyeCode::Handshake, "no hello in time (3.5)"),
            Due::Silence => {
                self.io.conns.stats.count(Stat::LinkErrors);
                self.end_link(GoodbyeCode::Silence, "silence (4.5)");
            }
        }
    }

    /// Tells the brain what there is, once a second. Before a round's work: a worker that has
    /// nothing else to do is woken by requests, and would always count the one that woke it.
    pub(crate) fn send_stats(&mut self) {
        if !self.io.link.stats_are_due(self.io.conns.clock.now_ms) {
            return;
        }
        self.io.conns.stats.set(Stat::LinkQueueBytes, self.io.link.queued() as u64);
        self.io.conns.stats.set(Stat::Connections, self.io.conns.table.used() as u64);
        self.io.conns.stats.set(Stat::PendingConnections, self.io.conns.table.pending() as u64);
        self.io.conns.gauge_memory(self.index);
        self.io.conns.stats.set(Stat::FormBytes, self.http.forms.bytes() as u64);
        self.io.conns.count_tls(self.index);
        self.sessions.count_compressed(&mut self.io.conns.stats);
        self.count_trunk();
        let (count, items) = self.io.conns.stats.items();
        self.io.link.send(&Frame::Stats { values: List::from_items(count, &items) });
    }

    /// Writes what waits for the brain.
    pub(crate) fn flush_link(&mut self) {
        if let Err(e) = self.io.link.flush() {
            self.link_lost(&e.to_string());
        }
    }

    /// Ends the link with a reason that the brain gets to know, if a last write succeeds.
    pub(crate) fn end_link(&mut self, code: GoodbyeCode, why: &str) {
        self.io.link.say_goodbye(code, why);
        self.link_lost(why);
    }

    /// The brain is away: connections stay, requests are told (8.7), sessions wait for the next
    /// handshake (9.2).
    pub(crate) fn link_lost(&mut self, why: &str) {
        if !self.io.link.lost() {
            return;
        }
        self.reap();
        log!("worker {}: link ended: {why}", self.index);
        // No OPENED is going to come: whoever leaves before the next handshake waits for none.
        sync::forget_numbers(&mut self.io);
        self.sessions.owe_nothing();
        self.sessions.operations_lost(&mut self.io);
        for index in 0..self.io.conns.table.slots() {
            match self.io.conns.phase(index) {
                Phase::Http
                    if exchange_of(&mut self.io.conns, index).is_some_and(|e| e.is_in_flight()) =>
                {
                    self.http.refuse(&mut self.io, &mut self.sessions, index, &NO_BRAIN);
                }
                Phase::Opening => self.sessions.waits_for_brain(&mut self.io, index),
                Phase::Live => self.sessions.poll_due_if_late(&mut self.io, index),
                _ => {}
            }
        }
    }
}
