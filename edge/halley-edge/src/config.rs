//! The edge's command line; everything else comes from the brain (`settings.rs`).

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// Descriptors of a worker that are not connections: listeners, poll, standard streams and some to
/// spare.
const DESCRIPTORS_KEPT: u64 = 64;
/// Descriptors of a worker for each worker: all polls and wakers (`groups/write_permits.rs`). The
/// trunk's few are among those to spare.
const DESCRIPTORS_SHARED: u64 = 2;

/// Halley's edge: holds client connections for a brain. The brain starts it; there is no need to
/// do so by hand.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Config {
    /// Address for clients' streams.
    #[arg(long, value_name = "IP:PORT")]
    pub public: SocketAddr,
    /// Address for the server API.
    #[arg(long, value_name = "IP:PORT")]
    pub api: SocketAddr,
    /// Threads; each has its own poll and descriptors.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub workers: u16,
    /// Directory of the socket for the brain.
    #[arg(long, value_name = "DIR")]
    pub socket_dir: PathBuf,
    /// Over how long a signal spreads the closing of streams; a second one closes them at once.
    /// When the brain stops the edge it says how long.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub drain_ms: u32,
    /// Most connections of all workers together; by default what the descriptors allow.
    #[arg(long, value_name = "N")]
    pub connections_max: Option<u32>,
    /// Certificate chain of the public listener, in PEM: it speaks TLS then.
    #[arg(long, value_name = "FILE", requires = "public_key")]
    pub public_certificate: Option<PathBuf>,
    /// Its private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "public_certificate")]
    pub public_key: Option<PathBuf>,
    /// Certificate chain of the API listener, in PEM: it speaks TLS then.
    #[arg(long, value_name = "FILE", requires = "api_key")]
    pub api_certificate: Option<PathBuf>,
    /// Its private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "api_certificate")]
    pub api_key: Option<PathBuf>,
    /// Who signs the certificates that clients of the API must show, in PEM.
    #[arg(long, value_name = "FILE", requires = "api_certificate")]
    pub api_client_ca: Option<PathBuf>,
    /// Another edge serves these addresses and will stop: begin beside it. What isn't an edge of
    /// the same user at such an address is an error all the same.
    #[arg(long)]
    pub beside: bool,
    /// The user that the edge becomes when it listens, if root starts it.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Does the edge give up what it doesn't need once it listens?
    #[arg(long, value_name = "on|off", value_enum, default_value = "on")]
    pub sandbox: Switch,
}

/// A choice of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

impl Config {
    /// Where the edge listens for the brain.
    pub fn trunk_path(&self) -> PathBuf {
        self.socket_dir.join("trunk.sock")
    }

    /// Files that are read again when they change, each with its configuration key.
    pub fn read_again(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        [
            ("public.tls.certificate", &self.public_certificate),
            ("public.tls.key", &self.public_key),
            ("api.tls.certificate", &self.api_certificate),
            ("api.tls.key", &self.api_key),
            ("api.tls.client_ca", &self.api_client_ca),
        ]
        .into_iter()
        .filter_map(|(key, file)| Some((key, file.as_ref()?)))
    }

    /// Most connections of one worker, when a process or thread may hold `descriptors`. Its table
    /// may hold fewer.
    pub fn worker_connections_max(&self, descriptors: u64) -> usize {
        let kept = DESCRIPTORS_KEPT + DESCRIPTORS_SHARED * u64::from(self.workers);
        let possible = descriptors.saturating_sub(kept).max(1) as usize;
        let wanted = self.connections_max.map_or(usize::MAX, |n| n as usize);
        possible.min(wanted)
    }
}
