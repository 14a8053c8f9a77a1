//! Why connections end, in words.

use std::io;

use super::stream::StreamError;
use super::window::Window;

/// Whether the system only asks for patience.
pub fn not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected)
}

/// Says what the system refused, and what helps.
pub fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            format!("{error}: no local port is free, raise --sources")
        }
        _ => error.to_string(),
    }
}

/// Says why a stream is over, and counts a refusal by its status.
pub fn explain(error: StreamError, window: &mut Window) -> String {
    match error {
        StreamError::Refused(status) => {
            *window.counts.refused.entry(status).or_default() += 1;
            format!("the server answered {status}")
        }
        StreamError::Ended => "the server ended the stream".to_owned(),
        StreamError::Said(what) => format!("the server said {what}"),
        StreamError::Malformed(what) => format!("the server sent {what}"),
    }
}
