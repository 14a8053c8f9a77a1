//! The error that becomes an HTTP response.

use std::fmt;

/// A request that is refused. [`crate::http1::response::http_error`] writes it.
///
/// `message` says what was wrong and what would be right; it never repeats input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpError {
    /// The HTTP status, 400..=599.
    pub status: u16,
    /// The contract's `error.code`: stable, `[a-z_]+`.
    pub code: &'static str,
    /// The contract's `error.message`, for people.
    pub message: &'static str,
    /// Seconds after which it is worth trying again, if that is known; at least 1.
    pub retry_after_s: Option<u32>,
}

impl HttpError {
    /// An error of this status, code and message.
    pub const fn new(status: u16, code: &'static str, message: &'static str) -> HttpError {
        HttpError { status, code, message, retry_after_s: None }
    }

    /// The same, with `Retry-After`.
    pub const fn after(self, seconds: u32) -> HttpError {
        HttpError { retry_after_s: Some(seconds), ..self }
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status, self.code, self.message)
    }
}

impl std::error::Error for HttpError {}
