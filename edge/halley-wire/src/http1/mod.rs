//! HTTP/1.1 (RFC 9112) and 1.0, as a server that reads requests and writes responses.
//!
//! The order of use on a connection: [`head::parse_request`], then the body by
//! [`head::BodyFraming`] (for `Chunked` through [`chunked::ChunkedDecoder`]), then a response by
//! [`response`]; after any [`crate::HttpError`] the connection is closed, because where the next
//! request would begin is no longer certain (RFC 9112 section 6.3).

pub mod body;
pub mod chunked;
pub mod cors;
pub mod date;
pub mod head;
pub mod headers;
pub mod response;

mod framing;
mod origin;
