//! Tokens: no panic, nothing is accepted without the key's signature, and accepted tokens keep
//! their bounds (`protocol/link.md` 12). The first byte selects the meaning of the rest.

#![no_main]

use std::collections::HashSet;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use halley_token::{Keys, RIGHTS_BYTES_MAX, Refusal, Rules};
use libfuzzer_sys::fuzz_target;
use ring::hmac;
use serde_json::Value;

const NOW_S: u64 = 1_800_000_000;
const SECRET: &[u8; 32] = b"thirty-two bytes of a secret are";
const RULES: Rules = Rules {
    issuer: String::new(),
    audience: String::new(),
    leeway_s: 10,
    token_bytes_max: 65_536,
    nobody_allowed: true,
};

/// The secret as the only key.
static SECRET_KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let secret = URL_SAFE_NO_PAD.encode(SECRET);
    Keys::parse(format!("{{\"keys\":[{{\"kty\":\"oct\",\"k\":\"{secret}\"}}]}}").as_bytes()).0
});

/// Keys of each kind, with which nobody here can sign, and the tokens that are known of them.
static STRANGE: LazyLock<(Keys, HashSet<Vec<u8>>)> = LazyLock::new(|| {
    let golden = include_str!("../../../protocol/tokens.json");
    let golden: Value = serde_json::from_str(golden).unwrap();
    let tokens = golden["cases"].as_array().unwrap().iter();
    let tokens = tokens.map(|case| case["token"].as_str().unwrap().into());
    (Keys::parse(golden["sets"]["all"].to_string().as_bytes()).0, tokens.collect())
});

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else { return };
    match mode % 3 {
        0 => {
            let (keys, known) = &*STRANGE;
            assert!(judged(keys, rest).is_err() || known.contains(rest));
        }
        1 => drop(judged(&SECRET_KEYS, &signed(br#"{"alg":"HS256"}"#, rest))),
        _ => header(rest),
    }
});

fn signed(header: &[u8], claims: &[u8]) -> Vec<u8> {
    let text = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)).into_bytes()
}

/// Any header, signed rightly: it decides what is refused, never what is done.
fn header(header: &[u8]) {
    let claims = format!("{{\"sub\":\"ann\",\"exp\":{}}}", NOW_S + 1);
    let token = signed(header, claims.as_bytes());
    if judged(&SECRET_KEYS, &token).is_ok() {
        // A member that nobody reads may be a number that no type holds, such as 1e999.
        if let Ok(header) = serde_json::from_slice::<Value>(header) {
            assert_eq!(header["alg"], "HS256");
            assert!(header.get("crit").is_none());
        }
        // Without the right signature it is nothing.
        let end = token.len() - 43;
        assert_eq!(judged(&SECRET_KEYS, &token[..end]), Err(Refusal::Signature));
    }
}

/// Checks, and checks what came out.
fn judged(keys: &Keys, token: &[u8]) -> Result<(), Refusal> {
    let claims = keys.check(token, &RULES, NOW_S)?;
    // Empty: of nobody, which these rules allow.
    assert!(claims.user.len() <= 255);
    assert!(!claims.user.bytes().any(|byte| byte < 0x20 || byte == 0x7f));
    assert!(claims.expires_s.saturating_add(RULES.leeway_s) > NOW_S);
    assert!(claims.rights.len() <= RIGHTS_BYTES_MAX && !claims.rights.contains(['\r', '\n']));
    assert!(serde_json::from_str::<Value>(&claims.rights).unwrap().is_object());
    Ok(())
}
