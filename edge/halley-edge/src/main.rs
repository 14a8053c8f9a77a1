//! `halley-edge`: the process that owns every client socket.
//!
//! It holds workers: threads each with its own descriptor table, poll, listeners and connections,
//! and one more that has the link to the brain, if there are several (`trunk/owner.rs`). This file
//! starts them and waits for a signal; a worker's life is in `worker/mod.rs`.
#![forbid(unsafe_code)]

mod clock;
mod config;
mod conns;
mod groups;
mod http;
mod limits;
mod link;
mod log;
mod outbox;
mod proxies;
mod random;
mod sandbox;
mod sessions;
mod settings;
mod side_table;
#[cfg(test)]
mod sizes;
mod slab;
mod socket;
mod stats;
mod transport;
mod trunk;
mod user;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use clap::Parser;
use halley_sys::MemoryFiles;
use mio::Poll;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::{Config, Switch};
use crate::conns::tls::certificates::Certificates;
use crate::groups::write_permits::WritePermits;
use crate::limits::SharedLimits;
use crate::link::trunk::Trunk;
use crate::sandbox::Needs;
use crate::trunk::owner::Owner;
use crate::worker::state::{RUN, Shared, Worker};

/// For what it gives back to the kernel after a storm; see docs/internals/memory.md.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    std::hint::black_box(halley_sys::allocator_settings());
    match run(Config::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            log!("halley-edge: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut config: Config) -> Result<(), String> {
    // A session of its own, so that neither the brain's death nor Ctrl-C in its terminal reaches
    // the edge. It fails only for a process that leads one already.
    let _ = halley_sys::new_session();
    let user = user::wanted(&config)?;
    let certificates = Arc::new(Certificates::load(&config)?);
    take_addresses(&mut config)?;
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|e| e.to_string())?;
    let (permits, polls) = WritePermits::new(config.workers).map_err(|e| reason(&e))?;
    let memory = MemoryFiles::open();
    let sandboxed = config.sandbox == Switch::On;
    if sandboxed {
        sandbox::files_and_ports(&needs(&config))?;
        let to_change = if user.is_some() { sandbox::TO_CHANGE } else { 0 };
        sandbox::privileges(sandbox::TO_LISTEN | to_change);
    }
    if user.is_none() {
        warn_root();
    }
    let (permits, stop) = (Arc::new(permits), AtomicU64::new(RUN));
    let limits = Arc::new(SharedLimits::new(config.connections_max));
    let (trunk, owner) = trunk(&config, &permits)?;
    let gate = Arc::new(Barrier::new(polls.len() + 1));
    let shared = Arc::new(Shared { config, certificates, permits, trunk, stop, limits });
    let (mut of_worker, of_thread) = of_which_thread(owner, shared.config.workers);
    let mut threads = Vec::new();
    for (index, poll) in (0..).zip(polls) {
        threads.push(start(index, poll, of_worker.take(), &shared, &gate)?);
    }
    if let Some(user) = &user {
        user::become_user(user, &shared.config)?;
    }
    if sandboxed {
        sandbox::privileges(sandbox::TO_READ);
    }
    if shared.certificates.any() {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || shared.certificates.watch());
    }
    if sandboxed {
        sandbox::privileges(0);
    }
    // Their threads begin now, as bounded as all others.
    tikv_jemalloc_ctl::background_thread::write(true).map_err(|e| e.to_string())?;
    watch_memory(memory, &shared.limits);
    std::thread::spawn({
        let shared = Arc::clone(&shared);
        move || stop_by(signals, &shared)
    });
    threads.extend(of_thread.map(own).transpose()?);
    if sandboxed {
        sandbox::calls(shared.certificates.any());
    }
    gate.wait();
    let mut ends =
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err("a thread died".into())));
    ends.find(Result::is_err).unwrap_or(Ok(()))
}

/// The trunk's owner is in the thread of the only worker, first, or in one of its own, second.
fn of_which_thread(owner: Owner, workers: u16) -> (Option<Owner>, Option<Owner>) {
    match workers {
        1 => (Some(owner), None),
        _ => (None, Some(owner)),
    }
}

/// Starts the trunk's thread. It ends when all workers have.
fn own(owner: Owner) -> Result<EdgeThread, String> {
    let body = move || owner.run().map_err(|e| format!("trunk: {e}"));
    std::thread::Builder::new().name("trunk".into()).spawn(body).map_err(|e| e.to_string())
}

/// What the workers share with the owner of the trunk, and the owner. Its socket and what wakes it
/// are made before the first worker has descriptors of its own.
fn trunk(config: &Config, permits: &WritePermits) -> Result<(Arc<Trunk>, Owner), String> {
    let owner = || {
        let (trunk, poll) = Trunk::new(permits.wakers())?;
        let trunk = Arc::new(trunk);
        let listener = worker::listen::unix(&config.trunk_path())?;
        Ok((Arc::clone(&trunk), Owner::new(listener, poll, trunk, config.clone())?))
    };
    owner().map_err(|e: io::Error| format!("trunk: {}", reason(&e)))
}

fn stop_by(mut signals: Signals, shared: &Shared) {
    // SIGHUP comes when the brain's terminal goes; the edge outlives that.
    for signal in signals.forever().filter(|signal| *signal != SIGHUP) {
        log!("signal {signal}: stopping");
        let first = u64::from(shared.config.drain_ms);
        // A second signal, or one during the brain's drain, means: don't wait.
        let (run, order) = (RUN, Ordering::Relaxed);
        if shared.stop.compare_exchange(run, first, order, order).is_err() {
            shared.stop.store(0, order);
        }
    }
}

fn warn_root() {
    if halley_sys::is_root() {
        log!(
            "the edge runs as root, and reads what strangers send; start Halley as another user, \
             or name one in edge.user"
        );
    }
}

/// What the sandbox leaves open.
fn needs(config: &Config) -> Needs {
    Needs {
        socket_dir: config.socket_dir.clone(),
        reads: config.read_again().map(|(_, file)| file.clone()).collect(),
        ports: vec![config.public.port(), config.api.port()],
    }
}

/// Finds out whether the addresses are free, and which ports a 0 becomes. Both are held until both
/// are known, as they must not be one.
fn take_addresses(config: &mut Config) -> Result<(), String> {
    let beside = config.beside;
    let take = |key: &str, address: &mut SocketAddr| {
        let held = worker::listen::probe(*address, beside)
            .and_then(|held| Ok((held.local_addr()?, held)))
            .map_err(|e| format!("{key} = {address}: {}", reason(&e)))?;
        *address = held.0;
        Ok::<_, String>(held.1)
    };
    let _public = take("public.listen", &mut config.public)?;
    let _api = take("api.listen", &mut config.api)?;
    if config.public == config.api {
        return Err(format!("api.listen = {}: public.listen has this address", config.api));
    }
    Ok(())
}

/// Opens what tells how much memory is left, before anything may forbid it. Where there is no such
/// file memory always counts as enough.
fn watch_memory(files: io::Result<MemoryFiles>, limits: &Arc<SharedLimits>) {
    match files {
        Ok(files) => {
            // Before anybody is let in.
            limits.look_at_memory(&files);
            let limits = Arc::clone(limits);
            std::thread::spawn(move || limits.watch_memory(&files));
        }
        Err(error) => log!("memory isn't watched: /proc/meminfo: {error}"),
    }
}

type EdgeThread = std::thread::JoinHandle<Result<(), String>>;

/// Starts a worker and waits until it listens, so that an error is known before anything runs. It
/// serves when the gate opens.
fn start(
    index: u16,
    poll: Poll,
    owner: Option<Owner>,
    shared: &Arc<Shared>,
    gate: &Arc<Barrier>,
) -> Result<EdgeThread, String> {
    let (ready, listening) = std::sync::mpsc::channel();
    let (shared, gate) = (Arc::clone(shared), Arc::clone(gate));
    let name = format!("worker-{index}");
    let body = move || match Worker::new(index, poll, owner, shared)
        .map_err(|e| format!("worker {index}: {}", reason(&e)))
    {
        Ok(worker) => {
            let Config { sandbox, ref user, .. } = worker.shared.config;
            // All threads change the user together, and have no privileges then.
            if sandbox == Switch::On && user.is_none() {
                sandbox::privileges(0);
            }
            let _ = ready.send(Ok(()));
            gate.wait();
            worker.run().map_err(|e| format!("worker {index}: {e}"))
        }
        Err(sentence) => {
            let _ = ready.send(Err(sentence.clone()));
            Err(sentence)
        }
    };
    let thread = std::thread::Builder::new().name(name).spawn(body).map_err(|e| e.to_string())?;
    listening.recv().unwrap_or(Err(format!("worker {index} died")))?;
    Ok(thread)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the port is in use: stop the program that listens there, or choose another port".into()
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".into(),
        io::ErrorKind::PermissionDenied => {
            format!(
                "{error}: a port below 1024 needs root (see edge.user) or CAP_NET_BIND_SERVICE, a \
                 directory must be your own"
            )
        }
        _ => error.to_string(),
    }
}
