//! The keys of a JWK Set (RFC 7517, `protocol/link.md` 12.2, 12.3), ready to verify.

/// A key that can't be used, or the text that is no JWK Set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unusable {
    /// Its place in the set, from 1 on; 0 is the text as a whole.
    pub place: usize,
    /// The end of a sentence that begins with what it is about.
    pub why: &'static str,
}

/// The keys of one JWK Set. The default has none, and refuses every token.
#[derive(Default)]
pub struct Keys {}

impl Keys {
    /// Reads a JWK Set. A key that can't be used is left out, and told; the others count. A text
    /// that is no JWK Set gives no key, and one [`Unusable`].
    pub fn parse(_jwks: &[u8]) -> (Keys, Vec<Unusable>) {
        (Keys {}, Vec::new())
    }
}
