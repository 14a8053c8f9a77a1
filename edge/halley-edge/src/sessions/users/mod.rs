//! The users of sessions and requests: `identity.rs` reads a request, `tokens.rs` remembers keys
//! and tokens, and `identify.rs` finds a request's user by both. Nothing in here ends a session;
//! `sessions/expiry.rs` does.

pub mod identify;
pub mod identity;
pub mod tokens;
