//! The parameters of a request for a session, each from its text alone: `cursor.rs`, `newest.rs`
//! and `timeout.rs` read one each, `parameters.rs` finds those that are almost known, and
//! `status.rs` has those of the brain's status. `subscriptions/` reads subjects, `users/` users.

pub mod cursor;
pub mod newest;
pub mod parameters;
pub mod status;
pub mod timeout;
