//! JWK Sets (`protocol/link.md` 12.2, 12.3): no panic; every key is used or reported; and the used
//! keys are those that a second reader finds, over `serde_json`'s own values: each secret of the
//! set signs tokens that pass, under its own name alone, and no other key does.

#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use halley_token::{KEYS_MAX, Keys, Refusal, Rules, SET_BYTES_MAX};
use libfuzzer_sys::fuzz_target;
use ring::hmac;
use serde_json::{Value, json};

const NOW_S: u64 = 1_800_000_000;
const RULES: Rules = Rules {
    issuer: String::new(),
    audience: String::new(),
    leeway_s: 10,
    token_bytes_max: 65_536,
    nobody_allowed: false,
};

fuzz_target!(|data: &[u8]| {
    let (keys, unusable) = Keys::parse(data);
    assert!(keys.len() <= KEYS_MAX && unusable.iter().all(|key| !key.why.is_empty()));
    if unusable.first().is_some_and(|key| key.place == 0) {
        // The text as a whole is none.
        assert!(keys.is_empty() && unusable.len() == 1);
        return;
    }
    assert!(data.len() <= SET_BYTES_MAX);
    // What holds a number that no type holds, such as 1e999, can't be read a second time.
    let Ok(set) = serde_json::from_slice::<Value>(data) else { return };
    let Some(listed) = set["keys"].as_array() else { panic!("{set} is no set") };
    assert_eq!(keys.len() + unusable.len(), listed.len(), "each key is used or told");
    let told: Vec<usize> = unusable.iter().map(|key| key.place).collect();
    assert!(told.is_sorted_by(|one, other| one < other) && told.last() <= Some(&listed.len()));
    for (place, key) in (1..).zip(listed) {
        let used = !told.contains(&place);
        assert!(!used || is_coherent(key, listed.len()), "{key} is used");
        signs(&keys, key, used);
        confuses(&keys, key, used);
    }
});

/// Does a key that is used say what it has to?
fn is_coherent(key: &Value, of: usize) -> bool {
    let alg = match (key["kty"].as_str(), key["crv"].as_str()) {
        (Some("oct"), None) => "HS256",
        (Some("RSA"), None) => "RS256",
        (Some("EC"), Some("P-256")) => "ES256",
        (Some("OKP"), Some("Ed25519")) => "EdDSA",
        _ => return false,
    };
    let says = |name: &str, value: &str| key.get(name).is_none_or(|said| said == value);
    let is_named = key.get("kid").map_or(of == 1, Value::is_string);
    says("alg", alg) && says("use", "sig") && is_named
}

/// A secret that is used signs tokens under its name, and under no other.
fn signs(keys: &Keys, key: &Value, used: bool) {
    let secret = key["k"].as_str().and_then(|k| URL_SAFE_NO_PAD.decode(k).ok());
    let (Some("oct"), Some(secret), true) = (key["kty"].as_str(), secret, used) else { return };
    assert!((32..=1_024).contains(&secret.len()));
    let kid = key["kid"].as_str();
    let judged = |kid: Option<&str>| keys.check(&signed(&secret, kid), &RULES, NOW_S);
    assert!(judged(kid).is_ok(), "{key} signs");
    if let Some(kid) = kid {
        // Another key may be of that name and, by chance of who wrote the set, of that secret.
        let other = judged(Some(&format!("{kid}'")));
        assert!(other.is_err() || keys.len() > 1);
        assert!(keys.len() > 1 || other == Err(Refusal::KeyUnknown));
    }
}

/// RFC 8725, 2.1: what is public is no secret, whatever a token's header says.
fn confuses(keys: &Keys, key: &Value, used: bool) {
    if !used || key["kty"] == "oct" {
        return;
    }
    for name in ["n", "x", "y", "e"] {
        let Some(text) = key[name].as_str() else { continue };
        let bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        for secret in [text.as_bytes(), &bytes] {
            let token = signed(secret, key["kid"].as_str());
            assert!(keys.check(&token, &RULES, NOW_S).is_err(), "{key} is taken for a secret");
        }
    }
}

/// A token of this secret, which may name its key.
fn signed(secret: &[u8], kid: Option<&str>) -> Vec<u8> {
    let mut header = json!({"alg": "HS256"});
    if let Some(kid) = kid {
        header["kid"] = kid.into();
    }
    let claims = json!({"sub": "ann", "exp": NOW_S + 1});
    let text = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)).into_bytes()
}
