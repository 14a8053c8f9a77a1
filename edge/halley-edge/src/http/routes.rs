//! The edge's part of the table of resources. Made from `halley_api:routes/0` and
//! `halley_api:headers/1` by `make docs`: a change belongs there.

/// Headers of a request at the public listener that the brain reads (link.md 8.2).
pub const PUBLIC_HEADERS: &[&str] = &["content-type", "host", "origin", "x-halley-demo"];
/// Those of a request at the API's.
pub const API_HEADERS: &[&str] =
    &["content-type", "host", "authorization", "if-none-match", "accept-encoding"];
/// Methods of the API's listener.
pub const API_METHODS: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS";
/// Methods of what users do themselves.
pub const ME_METHODS: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS";
/// The stream of the API's listener.
pub const STATUS_STREAM: &str = "/v1/status/stream";
