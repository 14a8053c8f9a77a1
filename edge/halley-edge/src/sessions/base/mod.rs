//! The common ground of sessions and requests: the state of a connection while something happens
//! there, and the parts that they act on. Nothing in here knows a session.
//!
//! - `io.rs` has the parts that they act on;
//! - `detail.rs`, `exchange.rs`, `form.rs`, `opening.rs` and `poll.rs` have the state of a
//!   connection;
//! - `groups.rs` has the groups that connections are members of;
//! - `requests.rs` gives up a request that waits for the brain;
//! - `answer.rs` is the brain's answer to a request, `errors.rs` has answers where the brain is
//!   needed and can't be had.

pub mod answer;
pub mod detail;
pub mod errors;
pub mod exchange;
pub mod form;
pub mod groups;
pub mod io;
pub mod opening;
pub mod poll;
pub mod requests;
