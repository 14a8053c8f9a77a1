//! The real `halley-edge`, driven from outside: a brain over its Unix socket (`brain.rs`), clients
//! over TCP (`client.rs`). Every test quotes the clause that it proves; a clause without a page's
//! name is one of `protocol/link.md`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod admission;
mod beside;
mod bodies;
mod brain;
mod certificates;
mod client;
mod crowds;
mod cursors;
mod deflate;
mod drain;
mod edge;
mod expiry;
mod faults;
mod flow;
mod forms;
mod groups;
mod handshake;
mod holds;
mod limits;
mod operation_frames;
mod operations;
mod pace;
mod polls;
mod process;
mod proxies;
mod renewals;
mod replaying;
mod requests;
mod sandbox;
mod sessions;
mod shares;
mod slow;
mod slow_readers;
mod status;
mod streams;
mod subscriptions;
mod tables;
mod tls;
mod tls_turns;
mod token;
mod tokens;
mod trunk;
mod trunk_way;
mod user;
mod waiting;
mod websocket;
