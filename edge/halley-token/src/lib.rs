//! Is this token good, and whose is it? Bytes in, claims out: no I/O, no clock.
//!
//! A token is a JWT (RFC 7519) in the compact form of a JWS (RFC 7515), signed by HS256, RS256,
//! ES256 or EdDSA (RFC 7518, RFC 8037). The keys are those that the brain judged and handed over
//! (`protocol/link.md` 12). The rules for a token follow RFC 8725, the best current practices.
//!
//! Invariants, kept by property tests and a fuzz target:
//! - No input panics; none makes more work than its own length, and one signature's check (two for
//!   a token without `kid`, [`KEYS_TRIED_MAX`]).
//! - The algorithm is the key's. The token's `alg` can only agree with it.
//! - What costs least is looked at first, and no claim is believed, nor read, before the signature
//!   holds.
//! - What isn't understood is refused.
//!
//! It is not: a JOSE library. It signs nothing, decrypts nothing, and fetches no keys.

#![forbid(unsafe_code)]

mod check;
mod claims;
mod json;
mod keys;
mod refusal;

pub use check::{Claims, Rules};
pub use keys::{Keys, Revoked, Unusable};
pub use refusal::Refusal;

/// How many keys a token without `kid` is tried with: while keys are rotated, the old one and the
/// new one. More of them with its `alg`, and it has to say which.
pub const KEYS_TRIED_MAX: usize = 2;
/// Longest text of the claim `halley` (link.md 12.6).
pub const RIGHTS_BYTES_MAX: usize = 4_096;
/// Most keys of a set.
pub const KEYS_MAX: usize = 64;
/// Longest text of a set (link.md 12.2).
pub const SET_BYTES_MAX: usize = 229_376;
