//! The worker's place on the trunk: its beginning, which is the worker's handshake with a brain,
//! its end, and the STATS of each second (`protocol/link.md` 3, 6, 9, 13).

use halley_link::trunk::{Begin, End};
use halley_link::{Frame, GoodbyeCode, List};
use halley_token::Keys;

use crate::conns::table::Phase;
use crate::link::goodbye::LinkEnd;
use crate::link::hello;
use crate::log;
use crate::sessions::base::detail::exchange_of;
use crate::sessions::base::errors::NO_BRAIN;
use crate::sessions::base::groups;
use crate::sessions::brain;
use crate::settings::{AuthMode, Settings};
use crate::stats::Stat;
use crate::worker::state::Worker;

const HELLO_BRAIN: u8 = 0x10;

impl Worker {
    /// A brain has dialled.
    pub(crate) fn place_begins(&mut self, begin: &Begin) {
        self.end_link(GoodbyeCode::Replaced, "a trunk was dialled");
        self.io.link.placed(begin.place);
        let result = match Frame::decode(HELLO_BRAIN, &begin.hello) {
            Ok(Frame::HelloBrain { settings, node, .. }) => {
                hello::settings(settings).and_then(|settings| self.handshake(settings, node))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        };
        let keys = begin.keys.as_deref().map_or(Ok(()), |keys| self.take_keys(keys));
        if let Err(end) = result.and(keys) {
            self.link_broken(&end);
        }
    }

    /// The trunk has ended, or this place on it.
    pub(crate) fn place_ends(&mut self, end: &End) {
        if !self.io.link.is_there() {
            return;
        }
        if end.left_behind {
            self.io.conns.stats.count(Stat::LeftBehind);
        }
        if let Some(cursor) = &end.cursor {
            self.io.link.cursor_moved(cursor);
        }
        self.link_lost(&end.why);
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

    /// The handshake: takes the settings, begins the sync. The trunk's owner has answered.
    fn handshake(&mut self, mut settings: Settings, node: &[u8]) -> Result<(), LinkEnd> {
        self.reap();
        settings.share_opens(self.shared.config.workers);
        let last = std::mem::replace(&mut self.io.conns.settings, settings);
        groups::end_all(&mut self.io);
        self.sessions.settings_changed(&mut self.io, &last);
        self.let_clients_in()?;
        self.io.link.handshake();
        self.io.conns.stats.count(Stat::LinkHandshakes);
        // Doomed sessions aren't part of the sync.
        self.reap();
        let sessions = brain::forget_numbers(&mut self.io);
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

    /// What the trunk's owner counts.
    fn count_trunk(&mut self) {
        let seat = self.io.link.seat();
        let (bytes, (stale, errors)) = (seat.ring_bytes(), seat.counted());
        let stats = &mut self.io.conns.stats;
        stats.set(Stat::RingBytes, bytes as u64);
        stats.add(Stat::Stale, stale);
        stats.add(Stat::LinkErrors, errors);
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
        brain::forget_numbers(&mut self.io);
        self.sessions.writer(&mut self.io).owe_nothing();
        self.sessions.talk(&mut self.io).lost();
        for index in 0..self.io.conns.table.slots() {
            match self.io.conns.phase(index) {
                Phase::Http
                    if exchange_of(&mut self.io.conns, index).is_some_and(|e| e.is_in_flight()) =>
                {
                    self.http.refuse(&mut self.io, &mut self.sessions, index, &NO_BRAIN);
                }
                Phase::Opening => {
                    // It waits for the next one.
                    let ms = self.io.conns.settings.brain_away_ms_max;
                    self.sessions.tokens().set_deadline(&mut self.io.conns, index, ms);
                }
                Phase::Live => self.sessions.writer(&mut self.io).poll_due_if_late(index),
                _ => {}
            }
        }
    }
}
