//! Progress of long commands, on stderr: a bar on a terminal, else a plain line every few seconds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::out::{count, note};

/// How long something must last to be worth showing.
const SHOW_AFTER: Duration = Duration::from_secs(1);
/// Between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// One piece of work.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    started: Instant,
    next_line: Duration,
    /// Present when stderr is a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins; `total` bytes of it are known where the input is a file.
    #[must_use]
    pub fn new(what: &'static str, total: Option<u64>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            let template = match total {
                Some(_) => "{bar:40} {bytes}/{total_bytes} {msg} ({eta} left)",
                None => "{spinner} {msg}",
            };
            let style = ProgressStyle::with_template(template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            // ASCII, for terminals without UTF-8.
            bar.set_style(style.progress_chars("=> ").tick_chars("-\\|/ "));
            bar
        });
        Self { what, started: Instant::now(), next_line: SHOW_AFTER, bar }
    }

    /// So many bytes and things are done; `new` of the things by this run.
    pub fn set(&mut self, bytes: u64, things: u64, new: u64) {
        let elapsed = self.started.elapsed();
        let rate = count((new as f64 / elapsed.as_secs_f64().max(0.001)) as u64);
        let message = || format!("{} {}, {rate}/s", count(things), self.what);
        if let Some(bar) = &self.bar {
            bar.set_message(message());
            bar.set_position(bytes);
        } else if elapsed >= self.next_line {
            note(&format!("{} after {:.0} s", message(), elapsed.as_secs_f64()));
            self.next_line = elapsed + LINE_EVERY;
        }
    }

    /// Removes the bar; gives the seconds that it took.
    pub fn finish(&self) -> f64 {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.started.elapsed().as_secs_f64()
    }
}
