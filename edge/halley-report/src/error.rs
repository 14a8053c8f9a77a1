//! Why there is no report: one line for a person.

use std::fmt;
use std::path::PathBuf;

/// What went wrong.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// A file, and what is wrong with it.
    File(PathBuf, String),
    /// A line of the samples, counted from 1, and what is wrong with it.
    Line(usize, String),
    /// The drawing library refused.
    Drawing(String),
}

/// The result of reading or drawing.
pub type Result<T> = std::result::Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, why) => write!(f, "{}: {why}", path.display()),
            Self::Line(number, why) => write!(f, "samples.jsonl, line {number}: {why}"),
            Self::Drawing(why) => write!(f, "a plot can't be drawn: {why}"),
        }
    }
}

impl std::error::Error for Failure {}
