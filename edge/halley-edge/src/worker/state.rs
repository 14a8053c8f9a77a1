//! The parts of a worker, and the data that the threads of an edge share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mio::{Poll, Token};

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
use crate::worker::acceptor::Acceptor;
use crate::worker::silence::Silence;
use crate::worker::stop::Stopping;
use crate::worker::sweep::Sweep;

/// The link's socket.
pub const LINK: Token = Token(3);

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
    /// See [`Trunk`]; there if the edge may have one.
    pub trunk: Option<Arc<Trunk>>,
    /// [`RUN`], or within how many milliseconds to close everything.
    pub stop: AtomicU64,
}

/// See `worker/mod.rs`.
pub struct Worker {
    pub(crate) index: u16,
    pub(crate) shared: Arc<Shared>,
    pub(crate) poll: Poll,
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
    /// is one of [`WritePermits::new`].
    ///
    /// # Errors
    /// What the kernel says to the addresses or the socket path.
    pub fn new(index: u16, poll: Poll, shared: Arc<Shared>) -> io::Result<Worker> {
        halley_sys::own_fd_table()?;
        let (certificates, limits) = (Arc::clone(&shared.certificates), Arc::clone(&shared.limits));
        let acceptor = Acceptor::new(index, &shared.config, poll.registry())?;
        let seat = shared.trunk.clone().map(|trunk| Seat::new(trunk, index));
        if let Some(seat) = &seat {
            seat.connections_max(acceptor.connections_max());
        }
        let io = Io {
            conns: Conns::new(poll.registry().try_clone()?, certificates, limits),
            link: BrainLink::with_seat(seat),
            fan_out: FanOut::new(Arc::clone(&shared.permits), index),
        };
        Ok(Worker {
            index,
            acceptor,
            poll,
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
