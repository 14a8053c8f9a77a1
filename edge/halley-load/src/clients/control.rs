//! The benchmark's remote control: one command per line on stdin, one JSON line on stdout for each.
//!
//! | command | does | answer |
//! | --- | --- | --- |
//! | `ready` | waits until every connection is welcomed or has failed | a report |
//! | `mark NAME` | begins a new window in all threads at once | `{"marked":NAME,"at_ns":…}` |
//! | `report` | nothing else | a report of the window so far ([`super::window::Report`]) |
//! | `interval` | nothing else | what came since the last one ([`super::interval::Interval`]) |
//! | `drop` | closes all connections and opens none | `{"done":"drop","at_ns":…}` once it is |
//! | `return cursors [PER_S]` | opens them again, with the cursors they know | likewise |
//! | `return strangers [PER_S]` | opens them again, without | likewise |
//! | `expect FILE` | who hasn't seen the numbers in FILE owes them | likewise |
//! | `flow [SINCE_NS]` | who gets an event that was due since then flows | likewise |
//! | `quit` | ends the program | none |
//!
//! `at_ns` is when the order was given; FILE is what `halley-load publish --numbers` wrote. A
//! command that can't be obeyed is answered by `{"error":…}`. The end of stdin is `quit`, so
//! clients don't outlive the benchmark that started them. Streams may end without any command; a
//! report says so.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use serde::Serialize;
use serde_json::json;

use super::WATCH_EVERY;
use super::interval::Intervals;
use super::order::{Order, Orders};
use super::window::Windows;
use crate::error::Result;
use crate::progress::Progress;

/// Commands that wait to be obeyed; the one who sends more waits.
const COMMANDS_MAX: usize = 16;

/// Obeys until `quit`, the end of stdin, or `stop`.
///
/// # Errors
/// Those of [`Intervals::new`].
pub fn obey(
    windows: &mut Windows,
    orders: &mut Orders,
    connections: u64,
    stop: &AtomicBool,
) -> Result<()> {
    let mut intervals = Intervals::new()?;
    let commands = read_commands();
    while !stop.load(Ordering::Relaxed) {
        let line = match commands.recv_timeout(WATCH_EVERY) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
        match command {
            "quit" => return Ok(()),
            "report" => answer(&windows.report()),
            "interval" => answer(&intervals.look(windows)),
            "ready" => {
                wait_until_settled(windows, connections, stop);
                answer(&windows.report());
            }
            "mark" => {
                windows.mark(argument);
                answer(&json!({"marked": argument, "at_ns": halley_sys::monotonic_ns()}));
            }
            _ => {
                let at_ns = halley_sys::monotonic_ns();
                let done = order(command, argument, orders).and_then(|order| {
                    let late = || "a thread of clients didn't obey within 30 s".to_owned();
                    orders.give(&order, windows).then_some(()).ok_or_else(late)
                });
                match done {
                    Ok(()) => answer(&json!({"done": command, "at_ns": at_ns})),
                    Err(error) => answer(&json!({"error": format!("{line}: {error}")})),
                }
            }
        }
    }
    Ok(())
}

/// Reads an order. The error says what would be right.
fn order(command: &str, argument: &str, orders: &Orders) -> std::result::Result<Order, String> {
    let mut words = argument.split(' ');
    match (command, words.next().unwrap_or_default(), words.next()) {
        ("drop", "", None) => Ok(Order::Drop),
        ("return", who @ ("cursors" | "strangers"), rate) => {
            let per_s = rate.map_or(Some(0.0), |rate| rate.parse::<f64>().ok());
            let per_s = per_s.filter(|per_s| per_s.is_finite() && *per_s >= 0.0);
            let per_s = per_s.ok_or("expected connections per second, as in return cursors 500")?;
            let opens_per_s = per_s / orders.threads().max(1) as f64;
            Ok(Order::Return { with_cursors: who == "cursors", opens_per_s })
        }
        ("expect", _, _) => {
            let follows = orders.follows.as_ref().ok_or("expected --follows FILE at the start")?;
            let numbers =
                follows.numbers(Path::new(argument)).map_err(|error| error.to_string())?;
            Ok(Order::Expect(numbers))
        }
        ("flow", "", None) => Ok(Order::Flow(halley_sys::monotonic_ns())),
        ("flow", since_ns, None) => {
            let bad = |_| "expected nanoseconds of CLOCK_MONOTONIC".to_owned();
            since_ns.parse().map(Order::Flow).map_err(bad)
        }
        _ => Err("expected mark NAME, report, interval, ready, drop, \
                  return cursors|strangers [PER_S], expect FILE, flow [SINCE_NS] or quit"
            .to_owned()),
    }
}

/// Reads stdin on a thread of its own, which ends with it.
fn read_commands() -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(COMMANDS_MAX);
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.send(line.trim().to_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn wait_until_settled(windows: &Windows, connections: u64, stop: &AtomicBool) {
    let progress = Progress::new("connections", connections);
    loop {
        let (connected, given_up) = windows.settled();
        progress.set(connected);
        if connected + given_up >= connections || stop.load(Ordering::Relaxed) {
            progress.finish();
            return;
        }
        thread::sleep(WATCH_EVERY);
    }
}

/// One line. If nobody reads any more, the end of stdin follows.
fn answer(value: &impl Serialize) {
    let mut stdout = io::stdout().lock();
    if let Ok(line) = serde_json::to_string(value) {
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
}
