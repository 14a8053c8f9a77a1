//! HTTP on client connections: `read.rs` reads requests, `request.rs` decides which part answers,
//! `first_message.rs` reads that of a WebSocket which is opened by it, `respond.rs` writes answers.
//! `halley-wire` parses and writes their bytes; `sessions/base/` has the state of a request while
//! it lasts, and a body that asks for a session. `routes.rs` is generated: the edge's part of the
//! table of resources.

mod first_message;
pub mod read;
pub mod request;
pub mod respond;
mod routes;
pub mod state;
#[cfg(test)]
mod tests;
