//! The benchmark's remote control: one command per line on stdin, one JSON line on stdout for each.
//!
//! | command | does | answer |
//! | --- | --- | --- |
//! | `ready` | waits until every connection is welcomed or has failed | a report |
//! | `mark NAME` | begins a new window in all threads at once | `{"marked":NAME,"at_ns":…}` |
//! | `report` | nothing else | a report of the window so far ([`super::window::Report`]) |
//! | `quit` | ends the program | none |
//!
//! An unknown command is answered by `{"error":…}`. The end of stdin is `quit`, so clients don't
//! outlive the benchmark that started them. Streams may end without any command; a report says so.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use serde::Serialize;
use serde_json::json;

use super::WATCH_EVERY;
use super::window::Windows;
use crate::progress::Progress;

/// Commands that wait to be obeyed; the one who sends more waits.
const COMMANDS_MAX: usize = 16;

/// Obeys until `quit`, the end of stdin, or `stop`.
pub fn obey(windows: &mut Windows, connections: u64, stop: &AtomicBool) {
    let commands = read_commands();
    while !stop.load(Ordering::Relaxed) {
        let line = match commands.recv_timeout(WATCH_EVERY) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
        match command {
            "quit" => return,
            "report" => answer(&windows.report()),
            "ready" => {
                wait_until_settled(windows, connections, stop);
                answer(&windows.report());
            }
            "mark" => {
                windows.mark(argument);
                answer(&json!({"marked": argument, "at_ns": halley_sys::monotonic_ns()}));
            }
            _ => answer(
                &json!({"error": format!("{line}: expected mark NAME, report, ready or quit")}),
            ),
        }
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
