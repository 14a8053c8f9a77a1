//! The handshake: the trunk's owner answers the brain, and each worker takes the settings
//! (`protocol/link.md` 3, 13.2).

use halley_link::{
    Frame, GoodbyeCode, List, Pair, TRUNK_WORKER, VERSION, VERSION_MAX_SETTING, VERSION_MIN, common,
};

use crate::config::Config;
use crate::link::goodbye::LinkEnd;
use crate::settings::Settings;
use crate::stats;

/// The version that this link has: the highest in common with a brain that speaks `lowest` to what
/// its settings say, or that alone (3.2).
///
/// # Errors
/// When there is none.
pub fn version_with(lowest: u16, settings: List<'_, Pair<'_>>) -> Result<u16, LinkEnd> {
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

/// The brain's limits.
///
/// # Errors
/// 3.3, with the name of what can't be used.
pub fn settings(settings: List<'_, Pair<'_>>) -> Result<Settings, LinkEnd> {
    Settings::read(settings)
        .map_err(|name| LinkEnd::Broken(GoodbyeCode::Handshake, format!("setting {name} (3.3)")))
}

/// What HELLO_EDGE says besides the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The link's version.
    pub version: u16,
    /// What it grants.
    pub window: u32,
    /// Most connections.
    pub connections_max: usize,
}

impl Answer {
    /// Lets `send` have HELLO_EDGE.
    pub fn frame(&self, config: &Config, send: impl FnOnce(&Frame<'_>)) {
        let (count, names) = stats::metrics();
        let [public, api] = [config.public, config.api].map(|address| address.to_string());
        send(&Frame::HelloEdge {
            version: self.version,
            window: self.window,
            pid: std::process::id(),
            worker: TRUNK_WORKER,
            workers: config.workers,
            build: env!("CARGO_PKG_VERSION").as_bytes(),
            public_listen: public.as_bytes(),
            api_listen: api.as_bytes(),
            connections_max: u32::try_from(self.connections_max).unwrap_or(u32::MAX),
            metrics: List::from_items(count, &names),
        });
    }
}
