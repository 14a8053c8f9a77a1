//! The worker and its brain: handshake, sync, frames, the link's end (`protocol/link.md`).

use halley_link::{
    CloseReason, ClosedSession, Frame, GoodbyeCode, List, NumberedSession, Pair, VERSION,
    VERSION_MAX_SETTING, VERSION_MIN, common,
};
use halley_wire::Gap;

use crate::conns::table::{Phase, flag};
use crate::http::request;
use crate::http::respond::Answer;
use crate::link::WINDOW_BYTES;
use crate::link::brain_link::{Due, READ_BYTES_PER_ROUND};
use crate::link::goodbye::LinkEnd;
use crate::log;
use crate::sessions::hold::Replay;
use crate::sessions::stream::StreamError;
use crate::settings::Settings;
use crate::stats::{self, Stat};
use crate::transport::Transport;
use crate::worker::{RUN, Worker};

/// The version that this link has: the highest in common with a brain that speaks `lowest` to what
/// its settings say, or that alone (3.2).
fn version_with(lowest: u16, settings: List<'_, Pair<'_>>) -> Result<u16, LinkEnd> {
    let highest = match settings.iter().find(|pair| pair.name == VERSION_MAX_SETTING) {
        None => lowest,
        Some(pair) => std::str::from_utf8(pair.value)
            .ok()
            .and_then(|value| value.parse().ok())
            .filter(|highest| *highest >= lowest)
            .ok_or(LinkEnd::broken("3.3", "setting link_version_max"))?,
    };
    common((VERSION_MIN, VERSION), (lowest, highest))
        .ok_or_else(|| LinkEnd::version(&format!("versions {lowest} to {highest}")))
}

impl Worker {
    /// Queues a frame for the brain; see [`BrainLink::send`](crate::link::brain_link::BrainLink).
    pub(crate) fn send(&mut self, frame: &Frame<'_>) {
        self.link.send(frame);
    }

    /// May more be queued for the brain (4.6)?
    pub(crate) fn link_has_room(&self) -> bool {
        self.link.has_room(self.settings.link_queue_bytes_max)
    }

    /// Is there anything to read, and room for it?
    pub(crate) fn link_may_be_read(&self) -> bool {
        self.link.is_readable() && !self.link_waits()
    }

    /// Must what the brain sent wait for groups to be served? A handshake adds nothing to that.
    fn link_waits(&self) -> bool {
        self.groups_are_full() && self.link.is_up()
    }

    /// Reads and deals with what the brain sent, up to a bound.
    pub(crate) fn read_link(&mut self) {
        let mut read = 0;
        while self.link_may_be_read() && read < READ_BYTES_PER_ROUND {
            // First those that were left because they had to wait.
            self.frames();
            if self.link_waits() {
                break;
            }
            match self.link.read(self.now_ms) {
                Ok(n) => read += n,
                Err(why) => self.link_lost(&why),
            }
        }
        self.frames();
        self.sync();
    }

    fn frames(&mut self) {
        let Some(mut deframer) = self.link.take_frames() else { return };
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
                    self.link.dealt_with(&raw);
                }
                Ok(None) => break None,
                Err(error) => break Some(error.into()),
            }
        };
        match end {
            None => self.link.put_frames(deframer),
            Some(LinkEnd::Broken(code, why)) => {
                self.stats.count(Stat::LinkErrors);
                self.end_link(code, &why);
            }
            Some(LinkEnd::Goodbye(why)) => self.link_lost(&why),
        }
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), LinkEnd> {
        let up = self.link.is_up();
        match *frame {
            Frame::HelloBrain { window, settings, node, version: lowest } if !up => {
                let version = version_with(lowest, settings)?;
                let settings = Settings::read(settings).map_err(|name| {
                    LinkEnd::Broken(GoodbyeCode::Handshake, format!("setting {name} (3.3)"))
                })?;
                self.meet(version, window, settings, node)
            }
            Frame::Goodbye { reason, .. } => {
                Err(LinkEnd::Goodbye(String::from_utf8_lossy(reason).into_owned()))
            }
            _ if !up => Err(LinkEnd::broken("3.1", "first frame is not HELLO_BRAIN")),
            Frame::Ping { .. } if self.link.is_overloaded() => {
                let why = "pings whose answers nobody reads".into();
                Err(LinkEnd::Broken(GoodbyeCode::Overloaded, why))
            }
            Frame::Ping { nonce } => {
                self.send(&Frame::Pong { nonce });
                Ok(())
            }
            Frame::Pong { .. } => Ok(()),
            Frame::Credit { bytes } => self
                .link
                .credited(bytes)
                .map_err(|e| LinkEnd::Broken(GoodbyeCode::FlowControl, e.to_string())),
            Frame::Deliver { event, conns } => self.deliver(&event, conns),
            Frame::GroupDeliver { group, event } => self.group_deliver(group, &event),
            _ => self.seldom(frame),
        }
    }

    fn seldom(&mut self, frame: &Frame<'_>) -> Result<(), LinkEnd> {
        match *frame {
            Frame::Opened { cursor, sessions } => {
                self.link.cursor_moved(cursor);
                sessions.iter().for_each(|session| self.opened(session, cursor));
            }
            Frame::Replay { conn, flags, cursor, heads, items } => {
                self.replay(conn, &Replay { flags, cursor, heads, items });
            }
            Frame::Gap { reason, from, to, cursor, conns } => {
                let reason = std::str::from_utf8(reason).unwrap_or_default();
                self.gap(&Gap { reason, from, to }, cursor, conns);
            }
            Frame::Cursor { cursor } => self.link.cursor_moved(cursor),
            Frame::Keys { keys } => self.take_keys(keys)?,
            Frame::Inspect { token, conn } => self.inspect(token, conn),
            Frame::GroupJoin { group, conns } => self.group_join(group, conns)?,
            Frame::GroupLeave { group, conns } => self.group_leave(group, conns),
            Frame::GroupEnd { group } => self.group_end(group),
            Frame::Refused { conn, status, retry_after_s, code, message } => {
                let text = |bytes| std::str::from_utf8(bytes).unwrap_or("unreadable");
                let (code, message) = (text(code), text(message));
                self.refused(conn, &StreamError { status, retry_after_s, code, message });
            }
            Frame::CloseSessions { reason, conns } => {
                let reason = String::from_utf8_lossy(reason);
                for conn in conns.iter() {
                    if let Some((index, _)) = self.table.find(conn) {
                        self.close_gently(index, &reason, CloseReason::CloseSessions);
                    }
                }
            }
            Frame::Response { conn, status, flags, body_bytes, headers, body } => {
                self.response(conn, Answer { status, flags, body_bytes, headers, body });
            }
            Frame::ResponseBody { conn, flags, body } => self.response_body(conn, flags, body),
            Frame::RequestCredit { conn, bytes } => self.request_credit(conn, bytes),
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
    fn meet(
        &mut self,
        version: u16,
        window: u32,
        settings: Settings,
        node: &[u8],
    ) -> Result<(), LinkEnd> {
        let last = std::mem::replace(&mut self.settings, settings).auth_mode;
        self.end_groups();
        self.auth_changed(last);
        self.let_clients_in()?;
        let (count, names) = stats::metrics();
        let config = &self.shared.config;
        let [public, api] = [config.public, config.api].map(|address| address.to_string());
        let hello = Frame::HelloEdge {
            version,
            window: WINDOW_BYTES,
            pid: std::process::id(),
            worker: self.index,
            workers: config.workers,
            build: env!("CARGO_PKG_VERSION").as_bytes(),
            public_listen: public.as_bytes(),
            api_listen: api.as_bytes(),
            connections_max: u32::try_from(self.acceptor.connections_max()).unwrap_or(u32::MAX),
            metrics: List::from_items(count, &names),
        };
        self.link.meet(window, &hello);
        self.stats.count(Stat::Meetings);
        let sessions = self.forget_numbers();
        if self.index == 0 {
            log!("met {}: {sessions} sessions in worker 0", String::from_utf8_lossy(node));
        }
        self.link.sync_begin(sessions);
        Ok(())
    }

    fn opened(&mut self, session: NumberedSession, cursor: &[u8]) {
        let Some((index, slot)) = self.table.find(session.conn) else { return };
        slot.user_number = session.user_number;
        // What was read before OPENED is written before it, and counts as OPENED (6.2).
        self.overdue(index);
        let Some(slot) = self.table.get(index) else { return };
        let phase = slot.phase;
        match phase {
            Phase::Opening if slot.transport == Transport::Poll => self.poll_opened(index, cursor),
            Phase::Opening => self.welcome(index, cursor),
            // A poll that another brain opened may have waited for its number.
            Phase::Live => self.poll_due_if_late(index),
            Phase::Left | Phase::Closing => {
                let knew = slot.clear(flag::ANNOUNCED);
                let reason = slot.ended.unwrap_or(CloseReason::Client);
                if phase == Phase::Left {
                    self.table.remove(index);
                }
                if knew {
                    let NumberedSession { conn, user_number } = session;
                    self.link.closed(&ClosedSession { conn, user_number, reason });
                }
            }
            Phase::Free | Phase::Proxy | Phase::Handshake | Phase::Http | Phase::Waiting => {}
        }
    }

    fn refused(&mut self, conn: u64, error: &StreamError<'_>) {
        let Some((index, slot)) = self.table.find(conn) else { return };
        slot.clear(flag::ANNOUNCED);
        match slot.phase {
            Phase::Waiting | Phase::Opening => self.refuse_stream(index, error),
            Phase::Live => {
                self.close_gently(index, error.message, CloseReason::CloseSessions);
            }
            Phase::Left => self.table.remove(index),
            Phase::Free | Phase::Proxy | Phase::Handshake | Phase::Http | Phase::Closing => {}
        }
    }

    /// What time brings about on the link.
    pub(crate) fn link_time(&mut self) {
        let waits = self.link_waits();
        match self.link.on_time(self.now_ms, self.clock.heard_ms, waits) {
            Due::Nothing => {}
            Due::Stats => self.send_stats(),
            Due::NoHello => self.end_link(GoodbyeCode::Handshake, "no hello in time (3.5)"),
            Due::Silence => {
                self.stats.count(Stat::LinkErrors);
                self.end_link(GoodbyeCode::Silence, "silence (4.5)");
            }
        }
    }

    fn send_stats(&mut self) {
        self.stats.set(Stat::LinkQueueBytes, self.link.queued() as u64);
        self.stats.set(Stat::Connections, self.table.used() as u64);
        self.stats.set(Stat::Newcomers, self.table.newcomers() as u64);
        self.gauge_memory();
        self.count_tls();
        self.count_compression();
        let (count, items) = self.stats.items();
        self.send(&Frame::Stats { values: List::from_items(count, &items) });
    }

    /// Writes what waits for the brain.
    pub(crate) fn flush_link(&mut self) {
        if let Err(e) = self.link.flush() {
            self.link_lost(&e.to_string());
        }
    }

    /// Ends the link with a reason that the brain gets to know, if a last write succeeds.
    pub(crate) fn end_link(&mut self, code: GoodbyeCode, why: &str) {
        self.link.say_goodbye(code, why);
        self.link_lost(why);
    }

    /// The brain is away: connections stay, requests are told (8.7), sessions wait for the next
    /// meeting (9.2).
    fn link_lost(&mut self, why: &str) {
        if !self.link.lost() {
            return;
        }
        log!("worker {}: link ended: {why}", self.index);
        self.owe_nothing();
        self.operations_lost();
        for index in 0..self.table.slots() {
            let Some(slot) = self.table.get(index) else { continue };
            let phase = slot.phase;
            match phase {
                Phase::Left => self.table.remove(index),
                Phase::Http if self.exchange(index).is_some_and(|e| e.in_flight) => {
                    self.refuse(index, &request::NO_BRAIN);
                }
                Phase::Live => self.poll_due_if_late(index),
                _ => {}
            }
        }
    }
}
