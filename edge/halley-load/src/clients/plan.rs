//! The connections to make, and how.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::follows::Follows;
use super::protocol::{Protocol, Who};
use super::users::Users;
use crate::speak::channel;
use crate::target::Target;
use crate::token::Tokens;
use crate::wire::Tls;

/// What all threads share.
#[derive(Debug)]
pub struct Plan {
    /// The server.
    pub target: Target,
    /// For a target of TLS.
    pub tls: Option<Tls>,
    /// What it speaks.
    pub protocol: Box<dyn Protocol>,
    /// Who connects.
    pub users: Users,
    /// What they show, where the server asks for tokens.
    pub tokens: Option<Tokens>,
    /// How many users share a channel, where the server has channels.
    pub group_size: u64,
    /// Local addresses to connect from; 1 leaves the choice to the system.
    pub sources: u32,
    /// How many threads there are.
    pub threads: usize,
    /// Connections per second and thread; 0 for as many as the server takes.
    pub opens_per_s: f64,
    /// Whether cursors are remembered and shown on return.
    pub cursors: bool,
    /// What the clients follow, where their numbers are to be checked.
    pub follows: Option<Arc<Follows>>,
    /// Connections between connect and welcome, per thread.
    pub opening_max: usize,
    /// Whether lost and failed connections are opened again.
    pub reconnect: bool,
    /// Whether the threads are scheduled as `SCHED_BATCH`.
    pub batch: bool,
    /// Before the next look at the sockets after one that found something, unless connections
    /// are being opened.
    pub pause: Duration,
    /// Set when all shall stop.
    pub stop: AtomicBool,
}

impl Plan {
    /// Calls `with` with who the client with this index is.
    pub fn who(&self, index: u64, cursor: Option<&[u8]>, with: impl FnOnce(&Who<'_>)) {
        let channel = channel(self.users.position(index), self.group_size);
        let token = self.tokens.as_ref().map(|tokens| tokens.get(index));
        self.users.with(index, |user| with(&Who { user, token, channel: &channel, cursor }));
    }
}
