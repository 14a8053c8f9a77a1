//! Sessions, from a client's request on: what `Sessions` does, with the connections, the link and
//! the groups that are handed to it ([`state::Io`]).
//!
//! - `stream.rs` opens streams and `poll.rs` long polls, `admit.rs` and `admission.rs` say when one
//!   gets its session, `subscriptions.rs` what it is subscribed to, `sync.rs` tells the brain;
//!   `ending.rs` is how they end;
//! - `identity.rs` and `identify.rs` say who asks, `tokens.rs` and `expiry.rs` until when,
//!   `rights.rs` what ends when less is allowed;
//! - `deliver.rs`, `members.rs`, `replay.rs` with `holds.rs`, `cursor.rs` and `presence.rs` say
//!   what is written to them, `view.rs` whom they may see, `inspect.rs` what waits for one;
//! - `websocket.rs` reads messages, `operation.rs` understands them, `operations.rs` does what they
//!   ask for; `compression.rs` makes messages shorter and longer;
//! - `detail.rs`, `opening.rs`, `exchange.rs`, `operation_queue.rs` are what hangs on a connection
//!   meanwhile, `answer.rs` and `errors.rs` what clients are answered.

pub mod admission;
pub mod admit;
pub mod answer;
pub mod compression;
pub mod cursor;
pub mod deliver;
pub mod detail;
pub mod ending;
pub mod errors;
pub mod exchange;
pub mod expiry;
pub mod holds;
pub mod identify;
pub mod identity;
pub mod inspect;
pub mod members;
pub mod newest;
pub mod opening;
pub mod operation;
pub mod operation_queue;
pub mod operations;
pub mod parameters;
pub mod poll;
pub mod presence;
pub mod replay;
pub mod rights;
pub mod state;
pub mod status;
pub mod stream;
pub mod subscriptions;
pub mod sync;
#[cfg(test)]
pub mod tests;
pub mod tokens;
pub mod view;
pub mod websocket;
