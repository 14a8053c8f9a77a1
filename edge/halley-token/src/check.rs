//! From the bytes of a token to its claims, or to why not.

use std::borrow::Cow;

use crate::json::{Object, base64url};
use crate::keys::Algorithm;
use crate::{Keys, Refusal, claims};

/// Most members of a header; those that are in use are fewer (RFC 7515, 4.1).
const HEADER_MEMBERS_MAX: usize = 16;

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
    /// Is a token without `sub` good? Its user is empty.
    pub nobody_allowed: bool,
}

/// What a good token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// `sub`: 1 to 255 bytes without control characters; empty where there is none and that is
    /// allowed.
    pub user: String,
    /// The JSON text of the claim `halley`, `{}` without one; at most
    /// [`RIGHTS_BYTES_MAX`](crate::RIGHTS_BYTES_MAX) bytes, in one line.
    pub rights: String,
    /// `exp`, in whole seconds since 1970, without the leeway: from `expires_s + leeway_s` on the
    /// token is refused.
    pub expires_s: u64,
    /// `iat`, in whole seconds since 1970; `None` where there is none, or what is no number.
    pub issued_s: Option<u64>,
}

impl Keys {
    /// Judges a token at the time `now_s`, in seconds since 1970.
    ///
    /// # Errors
    /// The first thing that is wrong with it: what can be seen for little before the signature, the
    /// claims behind it.
    pub fn check(&self, token: &[u8], rules: &Rules, now_s: u64) -> Result<Claims, Refusal> {
        if self.is_empty() {
            return Err(Refusal::NoKeys);
        }
        if token.len() > rules.token_bytes_max {
            return Err(Refusal::TooLarge);
        }
        let Parts { signed, header, claims, signature } = parts(token)?;
        let header = base64url(header).ok_or(Refusal::Malformed)?;
        let (algorithm, kid) = read_header(&header)?;
        let mut keys = self.meant(algorithm, kid.as_deref())?;
        let signature = base64url(signature).ok_or(Refusal::Malformed)?;
        let claims = base64url(claims).ok_or(Refusal::Malformed)?;
        if !keys.any(|key| key.verifies(signed, &signature)) {
            return Err(Refusal::Signature);
        }
        let claims = claims::judge(&claims, rules, now_s)?;
        if self.is_revoked(&claims) { Err(Refusal::Revoked) } else { Ok(claims) }
    }
}

struct Parts<'a> {
    /// Header and claims as they stand, with the dot between.
    signed: &'a [u8],
    header: &'a [u8],
    claims: &'a [u8],
    signature: &'a [u8],
}

/// The compact serialization (RFC 7515, 7.1). A JWE's has five parts (RFC 7516, 7.1).
fn parts(token: &[u8]) -> Result<Parts<'_>, Refusal> {
    let mut dots = (0..).zip(token).filter(|(_, byte)| **byte == b'.').map(|(at, _)| at);
    let (Some(first), Some(second)) = (dots.next(), dots.next()) else {
        return Err(Refusal::Malformed);
    };
    match dots.take(3).count() {
        0 => Ok(Parts {
            signed: &token[..second],
            header: &token[..first],
            claims: &token[first + 1..second],
            signature: &token[second + 1..],
        }),
        2 => Err(Refusal::Encrypted),
        _ => Err(Refusal::Malformed),
    }
}

/// The header's algorithm and `kid` (RFC 7515, section 4). Members that find or carry keys (`jku`,
/// `jwk`, `x5u`, `x5c`) are never looked at: a token doesn't bring its own key.
fn read_header(json: &[u8]) -> Result<(Algorithm, Option<Cow<'_, str>>), Refusal> {
    let header = Object::read::<HEADER_MEMBERS_MAX>(json).ok_or(Refusal::Malformed)?;
    if header.has("crit") {
        return Err(Refusal::Critical);
    }
    let algorithm = header.text("alg").ok_or(Refusal::Malformed)?;
    let algorithm = Algorithm::named(&algorithm).ok_or(Refusal::Algorithm)?;
    if header.has("typ") && !header.text("typ").is_some_and(|name| is_type(&name)) {
        return Err(Refusal::Type);
    }
    match header.text("kid") {
        None if header.has("kid") => Err(Refusal::Malformed),
        kid => Ok((algorithm, kid)),
    }
}

/// A token for one purpose is no good for another (RFC 8725, 3.11). `JWT` is anything (RFC 7519,
/// 5.1), `at+jwt` an access token (RFC 9068, 2.1); being media types, in whatever case.
fn is_type(name: &str) -> bool {
    let start = name.get(..12).filter(|start| start.eq_ignore_ascii_case("application/"));
    let name = &name[start.map_or(0, str::len)..];
    name.eq_ignore_ascii_case("JWT") || name.eq_ignore_ascii_case("at+jwt")
}
