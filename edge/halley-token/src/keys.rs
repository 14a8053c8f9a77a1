//! The keys of a JWK Set (RFC 7517, `protocol/link.md` 12.2, 12.3), ready to verify.
//!
//! The brain has judged them before; this checks what verifying needs, so that a key which could
//! never verify anything is reported instead of refusing all users in silence.

use std::collections::HashMap;
use std::fmt;

use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

use crate::json::{Object, base64url};
use crate::{Claims, KEYS_MAX, KEYS_TRIED_MAX, Refusal, SET_BYTES_MAX};

/// Most members of a set, and of a key; the brain sends six at most.
const MEMBERS_MAX: usize = 32;
/// RFC 7518, 3.2: a secret is as long as the hash at least. At most: as the brain has it.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 32..=1_024;
/// RFC 7518, 3.3: 2,048 bits at least; beyond 8,192 one check costs milliseconds.
const MODULUS_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;
const EXPONENT_MAX: u64 = (1 << 33) - 1;
/// A coordinate of P-256, or a public key of Ed25519.
const POINT_BYTES: usize = 32;

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
pub struct Keys {
    keys: Vec<Key>,
    revoked: Revoked,
}

/// By user, the second since 1970 before which a token must not have been issued.
pub type Revoked = HashMap<Box<str>, u64>;

/// A signature's algorithm, which is the type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Hs256,
    Rs256,
    Es256,
    EdDsa,
}

/// Invariant: of several keys each has a `kid` of its own.
pub(crate) struct Key {
    kid: Option<String>,
    verifier: Verifier,
}

enum Verifier {
    Hmac(hmac::Key),
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    P256(UnparsedPublicKey<Vec<u8>>),
    Ed25519(UnparsedPublicKey<Vec<u8>>),
}

impl Algorithm {
    /// By its name in JOSE (RFC 7518, 3.1; RFC 8037, 3.1).
    pub fn named(name: &str) -> Option<Algorithm> {
        match name {
            "HS256" => Some(Algorithm::Hs256),
            "RS256" => Some(Algorithm::Rs256),
            "ES256" => Some(Algorithm::Es256),
            "EdDSA" => Some(Algorithm::EdDsa),
            _ => None,
        }
    }
}

impl Keys {
    /// Reads a JWK Set. A key that can't be used is left out, and told; the others count. A text
    /// that is no JWK Set gives no key, and one [`Unusable`].
    pub fn parse(jwks: &[u8]) -> (Keys, Vec<Unusable>) {
        let (listed, revoked) = match listed(jwks) {
            Ok(found) => found,
            Err(why) => return (Keys::default(), vec![Unusable { place: 0, why }]),
        };
        let (mut keys, mut unusable) = (Vec::<Key>::new(), Vec::new());
        for (place, json) in (1..).zip(&listed) {
            let found = key(json.get()).and_then(|key| match &key.kid {
                None if listed.len() > 1 => Err("has no kid; of several keys each needs one"),
                Some(_) if keys.iter().any(|other| other.kid == key.kid) => {
                    Err("has the kid of another one")
                }
                _ => Ok(key),
            });
            match found {
                Ok(key) => keys.push(key),
                Err(why) => unusable.push(Unusable { place, why }),
            }
        }
        (Keys { keys, revoked }, unusable)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Is there none? Then every token is refused.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whose tokens are revoked, and since when.
    pub fn revoked(&self) -> &Revoked {
        &self.revoked
    }

    /// Is a token of this user from before the moment from which on they count? One that doesn't
    /// say when it was issued may be.
    pub(crate) fn is_revoked(&self, claims: &Claims) -> bool {
        let since_s = self.revoked.get(claims.user.as_str());
        since_s.is_some_and(|since_s| claims.issued_s.is_none_or(|issued_s| issued_s < *since_s))
    }

    /// The keys that a token's header can mean: one, or without `kid` up to [`KEYS_TRIED_MAX`].
    /// All are of this algorithm.
    pub(crate) fn meant(
        &self,
        algorithm: Algorithm,
        kid: Option<&str>,
    ) -> Result<impl Iterator<Item = &Key>, Refusal> {
        let is_named = move |key: &&Key| match (kid, &key.kid) {
            (Some(wanted), Some(kid)) => wanted == kid,
            // A key without a name is the only one; a token without one may mean any.
            (_, None) | (None, _) => true,
        };
        if !self.keys.iter().any(|key| is_named(&key)) {
            return Err(Refusal::KeyUnknown);
        }
        let meant =
            self.keys.iter().filter(move |key| is_named(key) && key.algorithm() == algorithm);
        match meant.clone().count() {
            0 => Err(Refusal::Algorithm),
            1..=KEYS_TRIED_MAX => Ok(meant),
            _ => Err(Refusal::KeyUnknown),
        }
    }
}

/// Shows no key.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.keys.len())
    }
}

impl Key {
    fn algorithm(&self) -> Algorithm {
        match self.verifier {
            Verifier::Hmac(_) => Algorithm::Hs256,
            Verifier::Rsa(_) => Algorithm::Rs256,
            Verifier::P256(_) => Algorithm::Es256,
            Verifier::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// Does the signature hold? One of another length than the key's costs nothing.
    pub(crate) fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        match &self.verifier {
            Verifier::Hmac(key) => hmac::verify(key, signed, signature).is_ok(),
            Verifier::Rsa(key) => {
                signature.len() == key.n.len()
                    && key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok()
            }
            Verifier::P256(key) | Verifier::Ed25519(key) => {
                signature.len() == 2 * POINT_BYTES && key.verify(signed, signature).is_ok()
            }
        }
    }
}

// --- reading ----------------------------------------------------------------------------------

/// The members of a set's `keys` (RFC 7517, section 5), and its `revoked` (link.md 12.10).
fn listed(jwks: &[u8]) -> Result<(Vec<&serde_json::value::RawValue>, Revoked), &'static str> {
    if jwks.len() > SET_BYTES_MAX {
        return Err("is longer than 229,376 bytes");
    }
    let set = Object::read::<MEMBERS_MAX>(jwks).ok_or("is no JSON object")?;
    let keys = set.get("keys").ok_or("has no member \"keys\"")?;
    let listed: Vec<_> = serde_json::from_str(keys).map_err(|_| "has keys that are no list")?;
    if listed.len() > KEYS_MAX {
        return Err("has more than 64 keys");
    }
    // To leave them out would let revoked tokens in.
    let revoked = serde_json::from_str(set.get("revoked").unwrap_or("{}"));
    Ok((listed, revoked.map_err(|_| "has revoked tokens that can't be read")?))
}

fn key(json: &str) -> Result<Key, &'static str> {
    let key =
        Object::read::<MEMBERS_MAX>(json.as_bytes()).ok_or("is no object with each name once")?;
    let kid = match key.text("kid") {
        None if key.has("kid") => return Err("has a kid that is no text"),
        kid => kid.map(String::from),
    };
    let (verifier, algorithm) = verifier(&key)?;
    if key.has("alg") && key.text("alg").as_deref() != Some(algorithm) {
        return Err("has an alg that is not its type's");
    }
    if key.has("use") && key.text("use").as_deref() != Some("sig") {
        return Err("is not for signatures");
    }
    Ok(Key { kid, verifier })
}

fn verifier(key: &Object<'_>) -> Result<(Verifier, &'static str), &'static str> {
    match (key.text("kty").as_deref(), key.text("crv").as_deref()) {
        (Some("oct"), None) => Ok((secret(&bytes(key, "k")?)?, "HS256")),
        (Some("RSA"), None) => Ok((rsa(bytes(key, "n")?, bytes(key, "e")?)?, "RS256")),
        (Some("EC"), Some("P-256")) => {
            // SEC 1, 2.3.3: a point that is not compressed.
            let point = [&[4], &*point(key, "x")?, &*point(key, "y")?].concat();
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
            Ok((Verifier::P256(key), "ES256"))
        }
        (Some("OKP"), Some("Ed25519")) => {
            let key = UnparsedPublicKey::new(&ED25519, point(key, "x")?);
            Ok((Verifier::Ed25519(key), "EdDSA"))
        }
        _ => Err("is of a type that is not known: RSA, EC with P-256, OKP with Ed25519, oct"),
    }
}

fn bytes(key: &Object<'_>, name: &str) -> Result<Vec<u8>, &'static str> {
    let text = key.text(name).ok_or("misses a member of its type")?;
    base64url(text.as_bytes()).ok_or("has a member that is no base64url")
}

fn point(key: &Object<'_>, name: &str) -> Result<Vec<u8>, &'static str> {
    let bytes = bytes(key, name)?;
    if bytes.len() == POINT_BYTES { Ok(bytes) } else { Err("has a number that is not of 32 bytes") }
}

fn secret(secret: &[u8]) -> Result<Verifier, &'static str> {
    if !SECRET_BYTES.contains(&secret.len()) {
        return Err("has a secret that is not of 32 to 1,024 bytes");
    }
    Ok(Verifier::Hmac(hmac::Key::new(hmac::HMAC_SHA256, secret)))
}

fn rsa(modulus: Vec<u8>, exponent: Vec<u8>) -> Result<Verifier, &'static str> {
    let (n, e) = (without_zeros(modulus), without_zeros(exponent));
    let bits = n.first().map_or(0, |first| 8 * n.len() - first.leading_zeros() as usize);
    let is_odd = n.last().is_some_and(|last| last % 2 == 1);
    if !MODULUS_BITS.contains(&bits) || !is_odd {
        return Err("has a modulus that is not of 2,048 to 8,192 bits, or even");
    }
    let value = e.iter().fold(0u64, |value, byte| value.saturating_mul(256) | u64::from(*byte));
    if !(3..=EXPONENT_MAX).contains(&value) || value % 2 == 0 {
        return Err("has an exponent that is none");
    }
    Ok(Verifier::Rsa(RsaPublicKeyComponents { n, e }))
}

/// A number's shortest form, which is the one that the library takes.
fn without_zeros(number: Vec<u8>) -> Vec<u8> {
    number.into_iter().skip_while(|byte| *byte == 0).collect()
}
