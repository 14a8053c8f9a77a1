//! Owns the trunk: accepts the brain, and runs its connection. The newest brain is the one that is
//! alive (1.2).
//!
//! It has a thread of its own ([`Owner::run`]), which costs each event the waking of a worker, and
//! lets an edge read and write at the same time. Where there is one worker, that worker's thread
//! has the trunk as well ([`Owner::turn`]): nothing is handed from one thread to another then.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use halley_link::GoodbyeCode;
use mio::net::UnixListener;
use mio::{Events, Interest, Poll, Token};

use crate::config::Config;
use crate::link::goodbye::LinkEnd;
use crate::link::trunk::Trunk;
use crate::log;
use crate::trunk::connection::{CURSOR_MS, Connection};

const LISTENER: Token = Token(1);
const SOCKET: Token = Token(2);
const EVENTS: usize = 16;
/// How often the only worker reads in one of its rounds, while there is more: so writes gather.
const READS_PER_TURN: usize = 8;

/// See the module.
pub struct Owner {
    listener: UnixListener,
    poll: Poll,
    trunk: Arc<Trunk>,
    config: Arc<Config>,
    connection: Option<Connection>,
    started: Instant,
    /// Up to when everything was heard. Silence is judged by it (4.5): a round of the only worker
    /// may take long, or stand still, while there is something to read.
    heard_ms: u64,
    events: Events,
}

impl Owner {
    /// One that listens. The poll is that of [`Trunk::new`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(
        mut listener: UnixListener,
        poll: Poll,
        trunk: Arc<Trunk>,
        config: Config,
    ) -> io::Result<Owner> {
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let (config, connection, started) = (Arc::new(config), None, Instant::now());
        let events = Events::with_capacity(EVENTS);
        Ok(Owner { listener, poll, trunk, config, connection, started, heard_ms: 0, events })
    }

    /// Works until all workers have stopped.
    ///
    /// # Errors
    /// When the poll itself fails, which it doesn't.
    pub fn run(mut self) -> io::Result<()> {
        loop {
            let sleeps = self.trunk.sleeper.may_sleep(|| self.has_more());
            self.poll_for(if sleeps { self.pause_ms() } else { 0 })?;
            if self.trunk.workers.iter().all(|worker| worker.left.load(Ordering::Relaxed)) {
                self.end(Some(GoodbyeCode::Stopping), "the edge stops");
                return Ok(());
            }
        }
    }

    /// The only worker begins a round: reads what there is, and hands it over.
    ///
    /// # Errors
    /// As [`Owner::run`] has it.
    pub fn turn(&mut self) -> io::Result<()> {
        self.poll_for(0)?;
        let may_read = |connection: &Connection| connection.may_read();
        for _ in 1..READS_PER_TURN {
            if !self.connection.as_ref().is_some_and(may_read) {
                break;
            }
            self.round();
        }
        Ok(())
    }

    /// The only worker ends a round: writes what it has for the brain.
    pub fn write(&mut self) {
        self.round();
    }

    /// The only worker has stopped.
    pub fn stop(mut self) {
        self.write();
        self.end(Some(GoodbyeCode::Stopping), "the edge stops");
    }

    fn poll_for(&mut self, pause_ms: u64) -> io::Result<()> {
        let heard_ms = self.now_ms();
        match self.poll.poll(&mut self.events, Some(Duration::from_millis(pause_ms))) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => result?,
        }
        self.trunk.sleeper.awake();
        self.heard_ms = heard_ms;
        let mut is_dialled = false;
        for event in &self.events {
            match (event.token(), &mut self.connection) {
                (LISTENER, _) => is_dialled = true,
                (SOCKET, Some(connection)) if event.is_readable() => {
                    connection.became_readable(event.is_read_closed());
                }
                _ => {}
            }
        }
        if is_dialled {
            self.accept();
        }
        self.round();
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Is there something to do that no event will tell of?
    pub fn has_more(&self) -> bool {
        self.trunk.has_wish() || self.connection.as_ref().is_some_and(Connection::has_more)
    }

    fn pause_ms(&self) -> u64 {
        self.connection.as_ref().map_or(CURSOR_MS, Connection::pause_ms)
    }

    fn accept(&mut self) {
        while let Ok((mut socket, _)) = self.listener.accept() {
            self.end(Some(GoodbyeCode::Replaced), "a newer trunk was dialled");
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut socket, SOCKET, interest).is_ok() {
                let now_ms = self.now_ms();
                self.connection = Some(Connection::new(socket, &self.trunk, &self.config, now_ms));
            }
        }
    }

    fn round(&mut self) {
        let now_ms = self.now_ms();
        let Some(connection) = &mut self.connection else {
            drop(self.trunk.take_wishes());
            return;
        };
        match connection.round(now_ms, self.heard_ms) {
            Ok(()) => self.grant(),
            Err(LinkEnd::Broken(code, why)) => {
                self.trunk.errors.fetch_add(1, Ordering::Relaxed);
                self.end_for(Some(code), &why, true);
            }
            Err(LinkEnd::Goodbye(why)) => self.end(None, &why),
        }
    }

    /// Ends the trunk, as a worker wants it that has its place still.
    fn grant(&mut self) {
        let Some(connection) = &self.connection else { return };
        let mut wishes = self.trunk.take_wishes().into_iter();
        if let Some(wish) = wishes.find(|wish| connection.is_place(wish.worker, wish.place)) {
            log!("trunk: worker {} ends it", wish.worker);
            self.end(Some(wish.code), &wish.why);
        }
    }

    fn end(&mut self, goodbye: Option<GoodbyeCode>, why: &str) {
        self.end_for(goodbye, why, false);
    }

    fn end_for(&mut self, goodbye: Option<GoodbyeCode>, why: &str, broke: bool) {
        if let Some(connection) = self.connection.take() {
            connection.end(goodbye, why, broke);
        }
    }
}

impl AsRawFd for Owner {
    /// What another poll waits for.
    fn as_raw_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    //! The trunk in the thread of the only worker.
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use std::io::{Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream};

    use clap::Parser;
    use halley_link::trunk::Handed;
    use halley_link::{Deframer, Frame, Item, List, Pair, VERSION, VERSION_MAX_SETTING};

    use super::*;
    use crate::groups::write_permits::WritePermits;
    use crate::link::trunk::Wish;

    const PING: u8 = 0x01;
    const PONG: u8 = 0x02;
    const GOODBYE: u8 = 0x04;
    const HELLO_EDGE: u8 = 0x40;

    /// An owner, and a brain that has dialled it.
    struct Test {
        owner: Owner,
        brain: UnixStream,
        _polls: Vec<Poll>,
    }

    impl Test {
        fn new(name: &str, workers: u16) -> Test {
            let name = format!("halley-owner-{name}-{}", std::process::id());
            let address = SocketAddr::from_abstract_name(name).unwrap();
            let listener = StdListener::bind_addr(&address).unwrap();
            listener.set_nonblocking(true).unwrap();
            let (permits, _polls) = WritePermits::new(workers).unwrap();
            let (trunk, poll) = Trunk::new(permits.wakers()).unwrap();
            let config = ["edge", "--public=127.0.0.1:0", "--api=127.0.0.1:0", "--socket-dir=/"];
            let config = Config::parse_from(config);
            let (listener, trunk) = (UnixListener::from_std(listener), Arc::new(trunk));
            let owner = Owner::new(listener, poll, trunk, config).unwrap();
            let brain = UnixStream::connect_addr(&address).unwrap();
            brain.set_nonblocking(true).unwrap();
            Test { owner, brain, _polls }
        }

        fn say(&mut self, frame: &Frame<'_>) {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            self.brain.write_all(&bytes).unwrap();
        }

        fn hello(&mut self) {
            let (mut settings, highest) = (Vec::new(), VERSION.to_string());
            Pair { name: VERSION_MAX_SETTING, value: highest.as_bytes() }.write(&mut settings);
            let settings = List::from_items(1, &settings);
            self.say(&Frame::HelloBrain {
                version: VERSION,
                window: 600_000,
                node: b"n",
                settings,
            });
        }

        /// The worker's round lasts so long.
        fn round_of(&mut self, ms: u64) {
            self.owner.turn().unwrap();
            self.owner.started -= Duration::from_millis(ms);
            self.owner.write();
        }

        /// The kinds of the frames that have come to the brain, without PING.
        fn heard(&mut self) -> Vec<u8> {
            let mut frames = Deframer::new();
            while let Ok(n @ 1..) = self.brain.read(frames.space()) {
                frames.filled(n);
            }
            let mut kinds = Vec::new();
            while let Some(raw) = frames.next().unwrap() {
                kinds.push(raw.kind);
            }
            kinds.retain(|kind| *kind != PING);
            kinds
        }
    }

    /// 4.5: "a side that stood still itself reads what has come before it judges"; 3.5 likewise.
    #[test]
    fn a_long_round_is_no_silence_of_the_brain() {
        let mut test = Test::new("silence", 1);
        test.owner.turn().unwrap();
        test.hello();
        test.owner.started -= Duration::from_millis(6_000);
        test.owner.write();
        test.round_of(0);
        assert_eq!(test.heard(), [HELLO_EDGE]);
        test.round_of(11_000);
        test.say(&Frame::Ping { nonce: 1 });
        test.round_of(0);
        assert_eq!(test.heard(), [PONG]);
        test.round_of(0);
        test.owner.started -= Duration::from_millis(11_000);
        test.round_of(0);
        test.round_of(0);
        assert_eq!(test.heard(), [GOODBYE], "and this is silence");
    }

    /// A wish for a place that has ended stands in the way of none.
    #[test]
    fn each_wish_is_looked_at() {
        let mut test = Test::new("wishes", 2);
        test.hello();
        test.owner.turn().unwrap();
        test.owner.turn().unwrap();
        assert_eq!(test.heard(), [HELLO_EDGE]);
        let trunk = Arc::clone(&test.owner.trunk);
        let places = trunk.workers.iter().map(|worker| match worker.ring.take() {
            Some(Handed::Begin(begin)) => begin.place,
            _ => panic!("no place"),
        });
        let places: Vec<_> = places.collect();
        for (worker, place) in [(0, places[0] + 100), (1, places[1])] {
            let (code, why) = (GoodbyeCode::BadFrame, "10.9".to_owned());
            trunk.wish(Wish { place, worker, code, why });
        }
        test.owner.turn().unwrap();
        assert_eq!(test.heard(), [GOODBYE]);
        assert!(!trunk.has_wish());
    }
}
