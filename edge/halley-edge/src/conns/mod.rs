//! What a worker's connections are made of: `table/` has their slots, `tls/` their sealed records,
//! `write.rs` empties outboxes into sockets; `limits.rs`, `origin.rs` and `proxy.rs` say who may
//! ask.

pub mod limits;
pub mod origin;
pub mod proxy;
pub mod table;
pub mod tls;
pub mod write;
