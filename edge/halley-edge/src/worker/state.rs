//! The parts of a worker, and the data that the threads of an edge share.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};

use crate::config::Config;
use crate::conns::Conns;
use crate::conns::tls::certificates::Certificates;
use crate::groups::fan_out::FanOut;
use crate::groups::write_permits::WritePermits;
use crate::http::state::Http;
use crate::limits::SharedLimits;
use crate::link::brain_link::BrainLink;
use crate::link::trunk::{Seat, Trunk};
use crate::sessions::Sessions;
use crate::sessions::base::io::Io;
use crate::trunk::owner::Owner;
use crate::worker::acceptor::Acceptor;
use crate::worker::silence::Silence;
use crate::worker::stop::Stopping;
use crate::worker::sweep::Sweep;

/// By which the poll of the only worker says that the trunk has something.
pub const TRUNK: Token = Token(3);

/// Value of [`Shared::stop`] while the edge runs.
pub const RUN: u64 = u64::MAX;

/// What the threads of an edge share.
pub struct Shared {
    /// The command line.
    pub config: Config,
    /// Of the listeners that speak TLS.
    pub certificates: Arc<Certificates>,
    /// See [`WritePermits`].
    pub permits: Arc<WritePermits>,
    /// See [`SharedLimits`].
    pub limits: Arc<SharedLimits>,
    /// See [`Trunk`].
    pub trunk: Arc<Trunk>,
    /// [`RUN`], or within how many milliseconds to close everything.
    pub stop: AtomicU64,
}

/// See `worker/mod.rs`.
pub struct Worker {
    pub(crate) index: u16,
    pub(crate) shared: Arc<Shared>,
    pub(crate) poll: Poll,
    /// Of the only worker the trunk.
    pub(crate) owner: Option<Owner>,
    pub(crate) io: Io,
    pub(crate) sessions: Sessions,
    pub(crate) http: Http,
    pub(crate) acceptor: Acceptor,
    pub(crate) sweep: Sweep,
    pub(crate) silence: Silence,
    pub(crate) stopping: Option<Stopping>,
}

impl Worker {
    /// A worker with a descriptor table of its own, for the calling thread, that listens. The poll
    /// is one of [`WritePermits::new`]. The only worker of an edge has the trunk as well.
    ///
    /// # Errors
    /// What the kernel says to the addresses.
    pub fn new(
        index: u16,
        poll: Poll,
        owner: Option<Owner>,
        shared: Arc<Shared>,
    ) -> io::Result<Worker> {
        halley_sys::own_fd_table()?;
        if let Some(owner) = &owner {
            let its = owner.as_raw_fd();
            poll.registry().register(&mut SourceFd(&its), TRUNK, Interest::READABLE)?;
        }
        let (certificates, limits) = (Arc::clone(&shared.certificates), Arc::clone(&shared.limits));
        let acceptor = Acceptor::new(&shared.config)?;
        let seat = Seat::new(Arc::clone(&shared.trunk), index);
        seat.connections_max(acceptor.connections_max());
        let io = Io {
            conns: Conns::new(poll.registry().try_clone()?, certificates, limits),
            link: BrainLink::new(seat),
            fan_out: FanOut::new(Arc::clone(&shared.permits), index),
        };
        Ok(Worker {
            index,
            acceptor,
            poll,
            owner,
            io,
            sessions: Sessions::new(),
            http: Http::default(),
            sweep: Sweep::new(),
            silence: Silence::default(),
            stopping: None,
            shared,
        })
    }
}
