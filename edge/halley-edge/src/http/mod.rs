//! HTTP on client connections: `read.rs` reads requests, `request.rs` says who answers,
//! `respond.rs` writes answers. Their bytes are `halley-wire`'s business; what a request is while
//! it lasts is `sessions/exchange.rs`.

pub mod read;
pub mod request;
pub mod respond;
pub mod state;
#[cfg(test)]
mod tests;
