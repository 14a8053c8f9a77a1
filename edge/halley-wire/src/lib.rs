//! The edge's protocols with clients, as pure functions: bytes in, bytes out, no I/O and no clock.
//!
//! - [`http1`]: request heads, chunked bodies, response heads, CORS (RFC 9110, RFC 9112, Fetch).
//! - [`target`]: paths and queries, decoded.
//! - [`sse`], [`ndjson`], [`article`]: the three streams that are HTTP response bodies; [`poll`]:
//!   the answer that isn't a stream.
//! - [`proxy`]: who a proxy says the client is.
//! - [`websocket`]: RFC 6455, the server's side in full and what load tools need of the client's.
//!
//! `protocol/http.md` says in numbered clauses what is accepted, refused and written.
//!
//! Invariants, kept by property tests and fuzz targets:
//! - No input panics, and none allocates more than the caller's limits and its own length.
//! - Splitting the input at any place changes nothing of the result: an error is the one that
//!   stands first in the bytes, however they arrived.
//! - Everything that grows has a named bound: a constant here or a limit that the caller gives.
//!
//! It is not: a router (which path does what is `halley-edge`'s), a TLS stack, HTTP/2.

#![forbid(unsafe_code)]

pub mod article;
mod error;
mod gap;
pub mod http1;
mod json;
pub mod ndjson;
pub mod poll;
pub mod proxy;
pub mod sse;
pub mod target;
pub mod websocket;

pub use error::HttpError;
pub use gap::Gap;
pub use json::escape as json_escape;
