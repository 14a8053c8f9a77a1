//! Stdout: values as JSON for programs, or words and columns for people.
//!
//! The result of a command is on stdout and nothing else; progress and what is wrong are on stderr.

use std::fmt::Write as _;
use std::io::{self, StdoutLock, Write as _};

use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Result};

/// Stdout of one command.
#[derive(Debug)]
pub struct Out {
    stdout: io::BufWriter<StdoutLock<'static>>,
    /// Values are printed, not words.
    json: bool,
}

impl Out {
    /// Of this process.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Self { stdout: io::BufWriter::new(io::stdout().lock()), json }
    }

    /// Whether values are printed.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// A value in one line.
    ///
    /// # Errors
    /// If stdout takes no more.
    pub fn value(&mut self, value: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_string(value)
            .map_err(|error| Failure::Io("can't print a value".into(), error.into()))?;
        line.push('\n');
        self.stdout.write_all(line.as_bytes()).map_err(Failure::stdout)
    }

    /// A line for people. What could move a terminal's cursor is shown as its escape.
    ///
    /// # Errors
    /// If stdout takes no more.
    pub fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.stdout, "{}", shown(text)).map_err(Failure::stdout)
    }

    /// Text as it is, such as a page of the terminal.
    ///
    /// # Errors
    /// If stdout takes no more.
    pub fn raw(&mut self, text: &str) -> Result<()> {
        self.stdout.write_all(text.as_bytes()).map_err(Failure::stdout)
    }

    /// The value if JSON is printed, else the words.
    ///
    /// # Errors
    /// If stdout takes no more.
    pub fn either(&mut self, value: &impl Serialize, words: impl FnOnce() -> String) -> Result<()> {
        if self.json { self.value(value) } else { self.line(&words()) }
    }

    /// What was printed so far is on its way to the reader.
    ///
    /// # Errors
    /// If stdout takes no more.
    pub fn flush(&mut self) -> Result<()> {
        self.stdout.flush().map_err(Failure::stdout)
    }
}

/// A line on stderr. Where stderr is gone the line is lost, and the command goes on.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Text from elsewhere as a terminal may have it: control characters are shown, not obeyed.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\n' && character != '\t' {
            // A `String` takes everything.
            let _ = write!(out, "{}", character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out
}

/// Columns of text, each as wide as its widest cell; the first row is the heading.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    let mut lines = Vec::with_capacity(rows.len());
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        lines.push(cells.collect::<Vec<_>>().join("  ").trim_end().to_owned());
    }
    lines.join("\n")
}

/// A member of a JSON object as a cell: text without quotes, nothing for null.
#[must_use]
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_u64() => count(number.as_u64().unwrap_or(0)),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

/// A count with commas between thousands.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A size in bytes with its unit.
#[must_use]
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut shown = format!("{number} B");
    for unit in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        shown = format!("{value:.1} {unit}");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["USER", "N"]), row(["é", "1"])]), "USER  N\né     1");
    }

    #[test]
    fn numbers_are_read_at_a_glance() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(15_000_000), "15,000,000");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
    }

    #[test]
    fn a_terminal_obeys_nobody_else() {
        assert_eq!(shown("a\u{1b}[2Jb\tc"), "a\\u{1b}[2Jb\tc");
    }
}
