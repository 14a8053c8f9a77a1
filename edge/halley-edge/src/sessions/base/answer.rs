//! The brain's answer to a request.

use halley_link::{List, Pair};

/// RESPONSE without its connection.
pub struct Answer<'a> {
    /// HTTP status.
    pub status: u16,
    /// END and CLOSE.
    pub flags: u8,
    /// Length of the whole body.
    pub body_bytes: u64,
    /// Headers by lower-case names.
    pub headers: List<'a, Pair<'a>>,
    /// The body or its beginning; not longer than `body_bytes` (8.4, checked by the codec).
    pub body: &'a [u8],
}
