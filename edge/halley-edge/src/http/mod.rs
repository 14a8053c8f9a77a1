//! HTTP requests and their answers (`protocol/http.md` 1 to 5): `read.rs` takes requests off a
//! connection, `request.rs` decides who answers them, `respond.rs` writes answers, and
//! `exchange.rs` is what is kept between the first byte of the one and the last of the other.

pub mod read;
pub mod request;
pub mod respond;
