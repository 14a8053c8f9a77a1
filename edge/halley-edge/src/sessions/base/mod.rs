//! The common ground of sessions and requests: the state of a connection while something happens
//! there, and the parts that they act on. Nothing in here knows a session.
//!
//! - `io.rs` has the parts that they act on;
//! - `detail.rs`, `exchange.rs`, `form.rs`, `first_message.rs`, `opening.rs` and `poll.rs` have the
//!   state of a connection;
//! - `groups.rs` has the groups that connections are members of;
//! - `requests.rs` gives up a request that waits for the brain;
//! - `answer.rs` is the brain's answer to a request, `errors.rs` has answers where the brain is
//!   needed and can't be had, `refusal.rs` writes them for a WebSocket that has no session yet.

pub mod answer;
pub mod detail;
pub mod errors;
pub mod exchange;
pub mod first_message;
pub mod form;
pub mod groups;
pub mod io;
pub mod opening;
pub mod poll;
pub mod refusal;
pub mod requests;
