//! A client's session, from its request until it is open, and what its client says then:
//! `stream.rs` opens streams, `poll.rs` long polls, `admit.rs` says when one gets its session;
//! `transport.rs` is what each kind writes; `websocket.rs` reads messages, `operation.rs`
//! understands them, `operations.rs` does what they ask for; `compression.rs` makes messages
//! shorter and longer. What is written to sessions is in `outbox/` and `groups/`.

pub mod admit;
pub mod compression;
pub mod cursor;
pub mod deliver;
pub mod detail;
pub mod exchange;
pub mod hold;
pub mod inspect;
pub mod operation;
pub mod operations;
pub mod poll;
pub mod stream;
pub mod sync;
pub mod tokens;
pub mod websocket;
pub mod who;
