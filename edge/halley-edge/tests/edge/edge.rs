//! The edge process that a test drives.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::brain::{Brain, Seen, WAIT, WINDOW};
use crate::client::Client;
use crate::trunk_way::TrunkWay;

/// Addresses of the edge, from HELLO_EDGE, and the process.
pub struct Edge {
    pub child: Child,
    pub dir: PathBuf,
    pub public: SocketAddr,
    pub api: SocketAddr,
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A directory and a loopback address of the test's own, so that no two edges share a port.
fn place() -> (PathBuf, String) {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let (pid, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let dir = std::env::temp_dir().join(format!("halley-edge-{pid}-{n}"));
    std::fs::create_dir_all(&dir).unwrap();
    let (high, low) = (1 + (pid / 250 + n / 250) % 250, 1 + n % 250);
    (dir, format!("127.{}.{high}.{low}:0", 1 + pid % 250))
}

/// An address with a port that is free, and that nobody else chooses meanwhile.
pub fn free_address() -> SocketAddr {
    let (dir, address) = place();
    let _ = std::fs::remove_dir_all(dir);
    TcpListener::bind(address).unwrap().local_addr().unwrap()
}

/// The command of an edge in a place of its own; what the arguments leave open is filled in.
pub fn command(arguments: &[&str]) -> (Command, PathBuf) {
    let (dir, address) = place();
    // tools/edge-calls.sh puts strace in front.
    let program = std::env::var("HALLEY_EDGE_PROGRAM");
    let mut command = Command::new(program.as_deref().unwrap_or(env!("CARGO_BIN_EXE_halley-edge")));
    for (name, value) in [("--public", &*address), ("--api", &*address), ("--workers", "1")] {
        if !arguments.contains(&name) {
            command.args([name, value]);
        }
    }
    command.args(arguments).arg("--socket-dir").arg(&dir).stderr(Stdio::null());
    (command, dir)
}

impl Edge {
    /// An edge before its first handshake.
    pub fn alone(arguments: &[&str]) -> Edge {
        let (mut command, dir) = command(arguments);
        let child = command.spawn().unwrap();
        let nowhere = "127.0.0.1:0".parse().unwrap();
        Edge { child, dir, public: nowhere, api: nowhere }
    }

    /// An edge and the brain that had a handshake with it, with these settings.
    pub fn start(settings: &[(&str, &str)]) -> (Edge, Brain) {
        Edge::start_with(&[], settings, WINDOW)
    }

    pub fn start_with(arguments: &[&str], settings: &[(&str, &str)], window: u32) -> (Edge, Brain) {
        let mut edge = Edge::alone(arguments);
        let mut brain = edge.dial();
        brain.hello(settings, window);
        match brain.next() {
            Seen::HelloEdge { public, api } => {
                edge.public = public.parse().unwrap();
                edge.api = api.parse().unwrap();
            }
            other => panic!("not HELLO_EDGE: {other:?}"),
        }
        // The syncs of several workers come in any order.
        let workers = arguments.iter().skip_while(|word| **word != "--workers").nth(1);
        let mut syncs = workers.map_or(1, |workers| workers.parse().unwrap());
        while syncs > 0 {
            match brain.next() {
                Seen::SyncBegin(0) => {}
                Seen::SyncEnd => syncs -= 1,
                other => panic!("not a sync: {other:?}"),
            }
        }
        (edge, brain)
    }

    /// A brain that speaks to the first worker; waits for a process that is just starting.
    pub fn dial(&self) -> Brain {
        let mut brain = self.dial_trunk();
        brain.trunk = Some(TrunkWay::default());
        brain
    }

    /// A brain that sees the trunk's frames as they are.
    pub fn dial_trunk(&self) -> Brain {
        let path = self.dir.join("trunk.sock");
        let end = Instant::now() + WAIT;
        loop {
            match UnixStream::connect(&path) {
                Ok(socket) => return Brain::new(socket),
                Err(e) => assert!(Instant::now() < end, "{e}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A client of the public listener.
    pub fn public(&self) -> Client {
        Client::to(self.public)
    }

    /// A client of the API listener.
    pub fn api(&self) -> Client {
        Client::to(self.api)
    }

    /// The exit code, once the process has ended.
    pub fn exit_code(&mut self) -> Option<i32> {
        let end = Instant::now() + WAIT;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the edge didn't end");
    }
}
