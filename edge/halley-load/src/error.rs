//! Why a subcommand ended early: one line for a person, who reads it on stderr.

use std::fmt;
use std::io;

/// What went wrong.
#[derive(Debug)]
pub enum Failure {
    /// Says what was wrong and, of an argument, what would be right.
    Message(String),
    /// The system refused something: what was being done, and its answer.
    Io(String, io::Error),
}

/// The result of a subcommand or a part of it.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// For `map_err`: names what was being done when the system refused.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |error| Self::Io(doing.into(), error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(message) => f.write_str(message),
            Self::Io(doing, error) => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for Failure {}
