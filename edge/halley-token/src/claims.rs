//! A token's claims (RFC 7519, section 4), judged after its signature held.

use crate::json::{Object, text};
use crate::{Claims, RIGHTS_BYTES_MAX, Refusal, Rules};

/// Most claims of a token, and members of `halley`.
const CLAIMS_MAX: usize = 128;
/// Longest id of a user (`halley_id`).
const USER_BYTES_MAX: usize = 255;

/// Judges the claims at the time `now_s`.
pub fn judge(json: &[u8], rules: &Rules, now_s: u64) -> Result<Claims, Refusal> {
    let claims = Object::read::<CLAIMS_MAX>(json).ok_or(Refusal::Claims)?;
    let expires_s = seconds(&claims, "exp").ok_or(Refusal::Expiry)?.floor() as u64;
    if now_s >= expires_s.saturating_add(rules.leeway_s) {
        return Err(Refusal::Expired);
    }
    if claims.has("nbf") {
        let begins_s = seconds(&claims, "nbf").ok_or(Refusal::Claims)?.ceil() as u64;
        if begins_s > now_s.saturating_add(rules.leeway_s) {
            return Err(Refusal::NotYet);
        }
    }
    let issuer = &*rules.issuer;
    if !issuer.is_empty() && claims.text("iss").as_deref() != Some(issuer) {
        return Err(Refusal::Issuer);
    }
    if !rules.audience.is_empty() && !is_meant_for(&claims, &rules.audience) {
        return Err(Refusal::Audience);
    }
    let user = match claims.has("sub") {
        false if rules.nobody_allowed => String::new(),
        _ => user(&claims)?,
    };
    let issued_s = seconds(&claims, "iat").map(|issued| issued.floor() as u64);
    Ok(Claims { user, rights: rights(&claims)?, expires_s, issued_s })
}

/// A NumericDate (RFC 7519, section 2): a number of seconds since 1970, whole or not.
fn seconds(claims: &Object<'_>, name: &str) -> Option<f64> {
    // What can't be written as a number of this type, like 1e999, is none.
    serde_json::from_str(claims.get(name)?).ok()
}

/// RFC 7519, 4.1.3: a text, or a list of texts.
fn is_meant_for(claims: &Object<'_>, audience: &str) -> bool {
    let Some(aud) = claims.get("aud") else { return false };
    match text(aud) {
        Some(one) => one == audience,
        None => serde_json::from_str::<Vec<String>>(aud)
            .is_ok_and(|several| several.iter().any(|one| one == audience)),
    }
}

/// The rules of `halley_id`: what isn't an id there must not become a user here.
fn user(claims: &Object<'_>) -> Result<String, Refusal> {
    let user = claims.text("sub").ok_or(Refusal::Subject)?;
    let is_id = (1..=USER_BYTES_MAX).contains(&user.len())
        && !user.bytes().any(|byte| byte.is_ascii_control());
    if is_id { Ok(user.into_owned()) } else { Err(Refusal::Subject) }
}

/// The claim `halley` in one line. What is no object gives no right, as in the brain.
fn rights(claims: &Object<'_>) -> Result<String, Refusal> {
    let Some(rights) = claims.get("halley").filter(|rights| rights.starts_with('{')) else {
        return Ok("{}".to_owned());
    };
    if Object::read::<CLAIMS_MAX>(rights.as_bytes()).is_none() {
        return Err(Refusal::Rights);
    }
    // Written anew, so that no other reader can find something else in it.
    let value: serde_json::Value = serde_json::from_str(rights).map_err(|_| Refusal::Rights)?;
    let rights = value.to_string();
    if rights.len() > RIGHTS_BYTES_MAX { Err(Refusal::Rights) } else { Ok(rights) }
}
