//! Progress of anything that takes longer than a second, on stderr.
//!
//! A bar where stderr is a terminal, otherwise a plain line every few seconds, so that a log stays
//! readable. Nothing at all is shown in the first second. `set` is cheap enough for inner loops
//! that run a few thousand times a second.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How long something must last to be worth showing.
const SHOW_AFTER: Duration = Duration::from_secs(1);
/// Between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(3);

/// One running piece of work of known size.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    total: u64,
    started: Instant,
    next_line: Cell<Duration>,
    /// Present when stderr is a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Starts counting `total` of `what` (a plural noun, or "seconds").
    #[must_use]
    pub fn new(what: &'static str, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
            let template = "{bar:40} {human_pos}/{human_len} {msg} ({per_sec}, {eta} left)";
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(what);
            bar
        });
        Self { what, total, started: Instant::now(), next_line: Cell::new(SHOW_AFTER), bar }
    }

    /// So much is done now.
    pub fn set(&self, done: u64) {
        let done = done.min(self.total);
        let elapsed = self.started.elapsed();
        if elapsed < self.next_line.get() {
            if let Some(bar) = &self.bar {
                bar.set_position(done);
            }
            return;
        }
        if let Some(bar) = &self.bar {
            if bar.is_hidden() {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                self.next_line.set(Duration::MAX);
            }
            bar.set_position(done);
        } else {
            self.next_line.set(elapsed + LINE_EVERY);
            eprintln!("{done}/{} {} after {:.0} s", self.total, self.what, elapsed.as_secs_f64());
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
