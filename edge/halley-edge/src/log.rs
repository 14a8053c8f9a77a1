//! One line per event worth a person's time, on stderr. The edge outlives the brain that reads
//! its stderr, so an error in writing is nothing to die of.

use std::fmt::Arguments;
use std::io::Write;

/// Writes a line.
pub fn line(text: Arguments<'_>) {
    let line = format!("{text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Writes a line, with `format!`'s arguments.
#[macro_export]
macro_rules! log {
    ($($arg:tt)*) => { $crate::log::line(format_args!($($arg)*)) };
}
