//! The thread of the trunk: accepts the brain, and runs its connection. The newest brain is the one
//! that is alive (1.2, 13.1).

use std::io;
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

/// See the module.
pub struct Owner {
    listener: UnixListener,
    poll: Poll,
    trunk: Arc<Trunk>,
    config: Arc<Config>,
    connection: Option<Connection>,
    started: Instant,
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
        Ok(Owner { listener, poll, trunk, config, connection, started })
    }

    /// Works until all workers have stopped.
    ///
    /// # Errors
    /// When the poll itself fails, which it doesn't.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let sleeps = self.trunk.sleeper.may_sleep(|| self.has_more());
            let pause = Duration::from_millis(if sleeps { self.pause_ms() } else { 0 });
            let heard_ms = self.now_ms();
            match self.poll.poll(&mut events, Some(pause)) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => result?,
            }
            self.trunk.sleeper.awake();
            for event in &events {
                match (event.token(), &mut self.connection) {
                    (LISTENER, _) => self.accept(),
                    (SOCKET, Some(connection)) if event.is_readable() => {
                        connection.became_readable(event.is_read_closed());
                    }
                    _ => {}
                }
            }
            self.round(heard_ms);
            if self.trunk.workers.iter().all(|worker| worker.left.load(Ordering::Relaxed)) {
                self.end(Some(GoodbyeCode::Stopping), "the edge stops");
                return Ok(());
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn has_more(&self) -> bool {
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

    fn round(&mut self, heard_ms: u64) {
        let now_ms = self.now_ms();
        let Some(connection) = &mut self.connection else {
            drop(self.trunk.take_wish());
            return;
        };
        match connection.round(now_ms, heard_ms) {
            Ok(()) => self.grant(),
            Err(LinkEnd::Broken(code, why)) => {
                self.trunk.errors.fetch_add(1, Ordering::Relaxed);
                self.end_for(Some(code), &why, true);
            }
            Err(LinkEnd::Goodbye(why)) => self.end(None, &why),
        }
    }

    /// Ends the trunk, as a worker wants it.
    fn grant(&mut self) {
        let Some(wish) = self.trunk.take_wish() else { return };
        let is_place = |of: &Connection| of.is_place(wish.worker, wish.place);
        if self.connection.as_ref().is_some_and(is_place) {
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
