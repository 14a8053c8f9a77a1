//! The parts that sessions and requests act on.

use crate::groups::fan_out::FanOut;
use crate::link::brain_link::BrainLink;
use crate::sessions::base::detail::Conns;

/// What sessions and requests act on: connections, the brain, and the groups.
pub struct Io {
    /// Clients.
    pub conns: Conns,
    /// The brain.
    pub link: BrainLink,
    /// The groups and their members.
    pub fan_out: FanOut,
}

impl Io {
    /// May more be queued for the brain (4.6)?
    pub fn link_has_room(&self) -> bool {
        self.link.has_room(self.conns.settings.link_queue_bytes_max)
    }
}
