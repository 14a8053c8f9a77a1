//! TLS (`protocol/http.md` 15, `docs/internals/tls.md`): `session.rs` is one connection's, bytes in
//! and bytes out; `shake.rs` puts it between sockets and the rest; `handshakes.rs` says whose turn
//! it is; `certificates.rs` is what the listeners show, read again when it changes.

pub mod certificates;
pub mod handshakes;
pub mod session;
#[cfg(test)]
mod session_tests;
pub mod shake;

pub use shake::Tls;
