//! `halley-load slowloris`: connections that take their time, a byte now and then.
//!
//! Purpose: do they leave room for the others? Most send a request's head that never ends, the rest
//! the body of a POST. One that the server closes, or answers, is opened again, so as many as were
//! asked for are there all the time.
//!
//! The connections come round in order, one after the other within `--every-ms`, so the load is
//! even. It doesn't measure the others; `clients`, run at the same time, does that.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use crate::error::{Failure, Result};
use crate::local;
use crate::report::{self, grouped};
use crate::target::Target;

/// Between two looks at the clock.
const STEP: Duration = Duration::from_millis(5);
/// An answer's status stands in these of its first bytes.
const STATUS: std::ops::Range<usize> = 9..12;

/// What to hold.
#[derive(Args, Debug)]
pub struct Options {
    /// Where heads are sent to
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// Where bodies are sent to
    #[arg(long, default_value = "http://127.0.0.1:8081")]
    bodies_url: String,
    /// Connections
    #[arg(long, default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=19_000))]
    connections: u32,
    /// How many of them send a body
    #[arg(long, default_value_t = 1_000)]
    bodies: u32,
    /// Each sends a byte this often
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..))]
    every_ms: u64,
    /// For how long
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Also write the figures to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Default, Serialize)]
struct Figures {
    seconds: f64,
    /// Connections that were opened, the first ones and again.
    opened: u64,
    /// Connects that failed at once.
    failed: u64,
    bytes: u64,
    /// Connections that ended without an answer.
    closed: u64,
    statuses: BTreeMap<u16, u64>,
    cpu_s: f64,
}

/// Runs the subcommand.
///
/// # Errors
/// For options that can't be used, or if no connection was opened.
pub fn run(options: &Options) -> Result<()> {
    let head = options.url.parse::<Target>()?.plain()?;
    let body = options.bodies_url.parse::<Target>()?.plain()?;
    let stop = crate::stop_on_signals()?;
    halley_sys::descriptors_max().map_err(Failure::io("can't read the limit of descriptors"))?;
    let count = options.connections as usize;
    let mut all: Vec<Option<Slow>> = (0..count).map(|_| None).collect();
    let mut figures = Figures::default();
    let started = Instant::now();
    let mut turns = 0u64;
    // The first round opens them all; it is as long as the others.
    while started.elapsed().as_secs_f64() < options.seconds && !stop.load(Ordering::Relaxed) {
        let due = started.elapsed().as_millis() as u64 * u64::from(options.connections);
        while turns < due / options.every_ms {
            let index = (turns % u64::from(options.connections)) as usize;
            let is_body = (index as u32) < options.bodies;
            let target = if is_body { &body } else { &head };
            turn(&mut all[index], index, target, is_body, &mut figures);
            turns += 1;
        }
        std::thread::sleep(STEP);
    }
    figures.seconds = started.elapsed().as_secs_f64();
    figures.cpu_s = halley_sys::cpu_ns(std::process::id()).unwrap_or(0) as f64 / 1e9;
    print(&figures);
    report::write_json(options.json.as_deref(), &figures)?;
    if figures.opened == 0 {
        return Err(Failure::Message(format!("{}: nothing could be opened", options.url)));
    }
    Ok(())
}

/// One connection.
struct Slow {
    socket: TcpStream,
    /// Its request has begun.
    begun: bool,
}

/// A connection's turn: it is opened, or its request begins, or it sends its next byte.
fn turn(
    slow: &mut Option<Slow>,
    index: usize,
    target: &Target,
    is_body: bool,
    figures: &mut Figures,
) {
    let Some(there) = slow else {
        let source = local::loopback(index as u32 / local::SOURCE_CONNECTIONS_MAX as u32);
        let source = target.address.ip().is_loopback().then_some(source);
        match local::connect(target.address, source) {
            Ok(socket) => {
                figures.opened += 1;
                *slow = Some(Slow { socket: socket.into(), begun: false });
            }
            Err(_) => figures.failed += 1,
        }
        return;
    };
    let mut answer = [0; 512];
    let ended = match there.socket.read(&mut answer) {
        Ok(n) => {
            let status = answer.get(STATUS).filter(|_| n >= STATUS.end);
            let status = status.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
            match status {
                Some(status) => *figures.statuses.entry(status).or_default() += 1,
                None => figures.closed += 1,
            }
            true
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => false,
        Err(_) => {
            figures.closed += 1;
            true
        }
    };
    if ended {
        *slow = None;
        return turn(slow, index, target, is_body, figures);
    }
    let first = if is_body {
        "POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n{"
    } else {
        "GET /v1/stream?user=slow HTTP/1.1\r\nHost: h\r\nX-Slow: "
    };
    let bytes: &[u8] = if there.begun { b"a" } else { first.as_bytes() };
    if let Ok(n) = there.socket.write(bytes) {
        figures.bytes += n as u64;
        there.begun = true;
    }
}

fn print(figures: &Figures) {
    let statuses: Vec<String> =
        figures.statuses.iter().map(|(status, n)| format!("{} by {status}", grouped(*n))).collect();
    report::print_table(&[
        ("opened", grouped(figures.opened)),
        ("answered", statuses.join(", ")),
        ("closed without an answer", grouped(figures.closed)),
        ("bytes sent", grouped(figures.bytes)),
        ("CPU of this program", format!("{:.2} s", figures.cpu_s)),
    ]);
}
