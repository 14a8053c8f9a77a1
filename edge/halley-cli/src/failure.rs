//! Why a command ended early, and the exit status that says so to a script.
//!
//! The statuses are those of `docs/reference/command-line.md`. A message is one line for a person:
//! what was wrong, and what would be right.

use std::fmt;
use std::io;

use serde_json::{Value, json};

/// Exit statuses with their meaning: the table of the reference page.
pub const STATUSES: [(u8, &str); 8] = [
    (0, "everything was done"),
    (1, "the server refused the request (4xx, 507) or lines of it, or a check of `doctor` failed"),
    (2, "the command line, a setting or a line of input is wrong; nothing more was sent"),
    (3, "no server was reached: wrong address, no connection, TLS failed, or time ran out"),
    (4, "the server can't do it now (429, 5xx), also after the time of `--patience`: try later"),
    (5, "the key or the token is missing, unknown, or doesn't allow this (401, 403)"),
    (6, "the command works on the server's machine alone; the message names it"),
    (7, "a file or pipe on this machine can't be read or written"),
];

/// What went wrong.
#[derive(Debug)]
pub enum Failure {
    /// The server's answer is an error.
    Refused(Refusal),
    /// Some of several things failed; each was reported when it did.
    Partly(String),
    /// An argument, a setting or input of the user is wrong.
    Usage(String),
    /// No answer came.
    Unreachable(String),
    /// Works on the server's machine alone.
    Elsewhere(String),
    /// A local file or pipe: what was being done, and the system's answer.
    Io(String, io::Error),
    /// The reader of stdout has gone. It wants no more, and no message.
    NoReader,
}

/// An answer of the server that is an error.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// For programs, such as `bad_subject`; empty if the answer had none.
    pub code: String,
    /// For people.
    pub message: String,
    /// `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
}

/// The result of a command or a part of it.
pub type Result<T> = std::result::Result<T, Failure>;

impl Refusal {
    /// Whether the same request may succeed later: 429, and any 5xx but 507.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.status == 429 || (self.status >= 500 && self.status != 507)
    }
}

impl Failure {
    /// For `map_err`: names what was being done when the system refused.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |error| Self::Io(doing.into(), error)
    }

    /// For `map_err` of writes to stdout.
    #[must_use]
    pub fn stdout(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::NoReader
        } else {
            Self::Io("can't write to stdout".to_owned(), error)
        }
    }

    /// The exit status, one of [`STATUSES`].
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::NoReader => 0,
            Self::Refused(Refusal { status: 401 | 403, .. }) => 5,
            Self::Refused(refusal) if refusal.is_passing() => 4,
            Self::Refused(_) | Self::Partly(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
            Self::Elsewhere(_) => 6,
            Self::Io(..) => 7,
        }
    }

    /// For scripts: `{"error":{"status":…,"code":…,"message":…}}`, with the exit status, and the
    /// server's code or null.
    #[must_use]
    pub fn json(&self) -> Value {
        let code = match self {
            Self::Refused(refusal) if !refusal.code.is_empty() => Some(refusal.code.as_str()),
            _ => None,
        };
        let message = self.to_string();
        json!({ "error": { "status": self.status(), "code": code, "message": message } })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Partly(message)
            | Self::Usage(message)
            | Self::Unreachable(message)
            | Self::Elsewhere(message) => f.write_str(message),
            Self::Io(doing, error) => write!(f, "{doing}: {error}"),
            Self::NoReader => Ok(()),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if self.code.is_empty() {
            write!(f, " ({})", self.status)
        } else {
            write!(f, " ({} {})", self.status, self.code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_can_tell_them_apart() {
        let refused = |status| {
            Failure::Refused(Refusal {
                status,
                code: String::new(),
                message: String::new(),
                retry_after_s: None,
            })
        };
        for (failure, status) in [
            (refused(400), 1),
            (refused(404), 1),
            (refused(401), 5),
            (refused(403), 5),
            (refused(429), 4),
            (refused(503), 4),
            (refused(507), 1),
            (Failure::Usage(String::new()), 2),
            (Failure::Unreachable(String::new()), 3),
            (Failure::stdout(io::ErrorKind::BrokenPipe.into()), 0),
            (Failure::stdout(io::ErrorKind::StorageFull.into()), 7),
        ] {
            assert_eq!(failure.status(), status, "{failure:?}");
        }
    }
    #[test]
    fn a_script_reads_the_servers_code() {
        let refusal = Refusal {
            status: 403,
            code: "scope_missing".into(),
            message: "no".into(),
            retry_after_s: None,
        };
        let error = &Failure::Refused(refusal).json()["error"];
        assert_eq!((&error["status"], &error["code"]), (&json!(5), &json!("scope_missing")));
        assert!(Failure::Usage("x".into()).json()["error"]["code"].is_null());
    }
}
