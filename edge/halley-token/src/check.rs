//! From the bytes of a token to its claims, or to why not.

use crate::{Keys, Refusal};

/// What is asked of a token besides its signature.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// What `iss` must be. Empty: it isn't looked at.
    pub issuer: String,
    /// What `aud` must be or have in it. Empty: it isn't looked at.
    pub audience: String,
    /// By how many seconds the signer's clock and this one may differ.
    pub leeway_s: u64,
    /// Longest token, in bytes.
    pub token_bytes_max: usize,
}

/// What a good token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// `sub`: 1 to 255 bytes without control characters.
    pub user: String,
    /// The JSON text of the claim `halley`, `{}` without one; at most
    /// [`RIGHTS_BYTES_MAX`](crate::RIGHTS_BYTES_MAX) bytes, in one line.
    pub rights: String,
    /// `exp`, in whole seconds since 1970, without the leeway: from `expires_s + leeway_s` on the
    /// token is refused.
    pub expires_s: u64,
}

impl Keys {
    /// Judges a token at the time `now_s`, in seconds since 1970.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(&self, _token: &[u8], _rules: &Rules, _now_s: u64) -> Result<Claims, Refusal> {
        Err(Refusal::NoKeys)
    }
}
