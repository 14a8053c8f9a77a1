//! Errors that the edge answers by itself where the brain is needed.

use halley_wire::HttpError;

use crate::limits::places::Full;

/// Why a stream doesn't come about.
pub struct StreamError<'a> {
    /// HTTP status.
    pub status: u16,
    /// Seconds for `Retry-After`; 0 for none.
    pub retry_after_s: u16,
    /// The contract's code.
    pub code: &'a str,
    /// The contract's message.
    pub message: &'a str,
}

impl StreamError<'static> {
    /// Of an error that nobody has to wait for.
    pub fn of(error: &HttpError) -> StreamError<'static> {
        let HttpError { status, code, message, .. } = *error;
        StreamError { status, retry_after_s: 0, code, message }
    }
}

/// Answer while there is no link.
pub const NO_BRAIN: HttpError = HttpError::new(
    503,
    "brain_away",
    "The brain behind this edge is away for a moment: streams stay open, try this request again.",
);
/// Answer when the brain has as much to do as it may.
pub const BUSY: HttpError = HttpError::new(
    503,
    "requests_in_flight_max",
    "Too many requests wait for an answer here: try again, or send events in batches (NDJSON).",
);
const TOO_MANY_IN_FLIGHT: HttpError = HttpError::new(
    429,
    "too_many_in_flight",
    "As many requests of this user, or of its address where no token says who it is, wait for an \
     answer here as limits.user_share_percent_max allows: wait for answers before you send more, \
     or send events in batches (NDJSON).",
)
.after(1);
/// Answer to a request that gets no place among those that wait for the brain.
pub fn no_place(full: &Full) -> HttpError {
    match full {
        Full::All => BUSY,
        Full::Own => TOO_MANY_IN_FLIGHT,
    }
}

/// Answer to what the brain takes too long for.
pub const ANSWER_LATE: HttpError = HttpError::new(
    504,
    "response_timeout",
    "The brain took longer to answer than limits.response_ms_max allows.",
);
/// Answer to a stream that would wait for too long.
pub const BUSY_STREAMS: StreamError<'static> = StreamError {
    status: 503,
    retry_after_s: 1,
    code: "busy",
    message: "Too many streams are being opened, or this edge is about to stop: come back after \
              Retry-After.",
};
/// Answer to a stream that has waited for too long for a brain.
pub const STREAM_WITHOUT_BRAIN: StreamError<'static> = StreamError {
    status: 503,
    retry_after_s: 1,
    code: "brain_away",
    message: "The brain behind this edge is away for longer than limits.brain_away_ms_max allows: \
              come back after Retry-After.",
};
/// Answer to a stream that can't have its session here and now.
pub const SESSION_LATE: StreamError<'static> = StreamError {
    status: 503,
    retry_after_s: 1,
    code: "brain_away",
    message: "The brain behind this edge is away for a moment: open the stream again.",
};
