//! The users of sessions and requests: `identity.rs` reads a request, `tokens.rs` remembers keys
//! and tokens, and `identify.rs` finds a request's user by both. Nothing in here ends a session;
//! `sessions/expiry.rs` and `sessions/rights.rs` do.

pub mod identify;
pub mod identity;
pub mod tokens;
