//! Tokens as an identity provider makes them, by HS256.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use halley_link::Frame;
use ring::hmac;

use crate::brain::{Brain, Edge, Seen};

/// The secret of most tests, 32 bytes.
pub const SECRET: &str = "0123456789abcdef0123456789abcdef";

pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A token with these claims, as JSON.
pub fn signed(secret: &str, claims: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let text = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes()).as_ref());
    format!("{text}.{signature}")
}

/// A user's token that is good for so many seconds; it has been, if they are below zero.
pub fn for_s(user: &str, seconds: i64) -> String {
    let exp = now_s().saturating_add_signed(seconds);
    signed(SECRET, &format!(r#"{{"sub":"{user}","exp":{exp}}}"#))
}

/// A good token.
pub fn of(user: &str) -> String {
    for_s(user, 3_600)
}

/// A good token with this claim `halley`.
pub fn with_rights(user: &str, rights: &str) -> String {
    let exp = now_s() + 3_600;
    signed(SECRET, &format!(r#"{{"sub":"{user}","exp":{exp},"halley":{rights}}}"#))
}

/// A JWK Set with these secrets; without a `kid` there is one at most.
pub fn set(secrets: &[&str]) -> String {
    let key = |secret: &&str| {
        let k = URL_SAFE_NO_PAD.encode(secret);
        format!(r#"{{"kty":"oct","alg":"HS256","k":"{k}"}}"#)
    };
    let keys: Vec<_> = secrets.iter().map(key).collect();
    format!(r#"{{"keys":[{}]}}"#, keys.join(","))
}

impl Brain {
    pub fn keys(&mut self, set: &str) {
        self.send(&Frame::Keys { keys: set.as_bytes() });
    }

    /// Returns when the edge has read all that was sent.
    pub fn ping(&mut self) {
        self.send(&Frame::Ping { nonce: 7 });
        assert_eq!(self.next(), Seen::Pong(7));
    }
}

impl Edge {
    /// An edge that asks for tokens, without leeway, and has the key of [`SECRET`].
    pub fn start_jwt(settings: &[(&str, &str)]) -> (Edge, Brain) {
        let given = |name| settings.iter().any(|(other, _)| *other == name);
        let usual = [("auth_mode", "jwt"), ("auth_leeway_ms", "0")];
        let usual = usual.iter().filter(|(name, _)| !given(*name));
        let all: Vec<_> = usual.chain(settings).copied().collect();
        let (edge, mut brain) = Edge::start(&all);
        brain.keys(&set(&[SECRET]));
        (edge, brain)
    }
}
