//! Sessions, from a client's request on: the methods of `Sessions`, which use the connections, the
//! link and the groups that the caller lends them ([`base::io::Io`]).
//!
//! - `stream.rs` opens streams and `polls.rs` long polls, whose parameters `base/form.rs` may read
//!   from a body; `admit.rs` and `admission.rs` decide when one gets its session;
//!   `subscriptions/` has its subjects, `sync.rs` reports it to the brain, and `ending.rs` ends it;
//! - `expiry.rs` ends sessions whose tokens expire, `rights.rs` subscriptions that a renewed token
//!   doesn't allow;
//! - `deliver.rs`, `members.rs`, `replays.rs`, `cursor.rs` and `presence.rs` write
//!   messages to sessions; `inspect.rs` shows what waits for one;
//! - `websocket.rs` reads messages, `operations.rs` carries them out; `ws/` parses them, and has
//!   those that wait, and compression;
//! - `replay/` has the sessions that are held, and what waits for each; `poll/` what gathers in
//!   the answers of polls, and which are due;
//! - `users/` finds the user of a request, and has what is remembered of tokens;
//! - `base/` has the state of a connection meanwhile.

pub mod admission;
pub mod admit;
pub mod base;
pub mod cursor;
pub mod deliver;
pub mod ending;
pub mod expiry;
pub mod inspect;
pub mod members;
pub mod newest;
pub mod operations;
pub mod parameters;
pub mod poll;
pub mod polls;
pub mod presence;
pub mod replay;
pub mod replays;
pub mod rights;
pub mod state;
pub mod status;
pub mod stream;
pub mod subscriptions;
pub mod sync;
#[cfg(test)]
pub mod tests;
pub mod users;
pub mod websocket;
pub mod ws;
