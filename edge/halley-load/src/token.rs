//! Tokens as a login service makes them: JWTs signed by HS256 (RFC 7515, RFC 7518 3.2).

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use crate::clients::users::Users;
use crate::error::{Failure, Result};

/// What makes tokens.
#[derive(Debug)]
pub struct Signer(hmac::Key);

impl Signer {
    /// Signs by this secret.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Reads the secret as the server does: line ends at the end of the file are none of it.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let secret = std::fs::read(path).map_err(Failure::io(format!("can't read {name}")))?;
        let end = secret.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |at| at + 1);
        Ok(Self::new(&secret[..end]))
    }

    /// Appends a user's token, which expires at the second `expires_s` since 1970.
    pub fn push_token(&self, user: &str, expires_s: u64, out: &mut String) {
        let claims = serde_json::json!({"sub": user, "exp": expires_s}).to_string();
        self.push_signed(r#"{"alg":"HS256","typ":"JWT"}"#, &claims, out);
    }

    /// Appends a token of these parts, whatever they say.
    pub fn push_signed(&self, header: &str, claims: &str, out: &mut String) {
        let start = out.len();
        URL_SAFE_NO_PAD.encode_string(header, out);
        out.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, out);
        let signature = hmac::sign(&self.0, &out.as_bytes()[start..]);
        out.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, out);
    }
}

/// One token for each connection, made before any is shown.
#[derive(Debug)]
pub struct Tokens {
    text: String,
    /// End of each token in `text`.
    ends: Vec<usize>,
}

impl Tokens {
    /// Those of the first `connections` of these users, good for as long.
    #[must_use]
    pub fn new(signer: &Signer, users: &Users, connections: u64, life: Duration) -> Self {
        let expires_s = now_s() + life.as_secs();
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(connections as usize));
        for index in 0..connections {
            users.with(index, |user| signer.push_token(user, expires_s, &mut text));
            ends.push(text.len());
        }
        Self { text, ends }
    }

    /// The token of the connection with this index.
    #[must_use]
    pub fn get(&self, index: u64) -> &str {
        let index = index as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[index]]
    }
}

/// Seconds since 1970.
#[must_use]
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// RFC 7515, A.1: the example's parts, signed by its key, are the example.
    #[test]
    fn signs_as_the_rfc_does() {
        let secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTw\
                      jAzZr1Z9CAow";
        let signer = Signer::new(&URL_SAFE_NO_PAD.decode(secret).unwrap());
        let mut token = "behind others ".to_owned();
        signer.push_signed(
            "{\"typ\":\"JWT\",\r\n \"alg\":\"HS256\"}",
            "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}",
            &mut token,
        );
        assert!(token.ends_with(".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"), "{token}");
    }

    #[test]
    fn each_connection_has_its_users_token() {
        let signer = Signer::new(&[7; 32]);
        let users = Users::parse("5-6").unwrap();
        let before = now_s();
        let tokens = Tokens::new(&signer, &users, 3, Duration::from_secs(60));
        let good_until = before + 60..=now_s() + 60;
        for (index, user) in [(0, "5"), (1, "6"), (2, "5")] {
            let claims = tokens.get(index).split('.').nth(1).unwrap();
            let claims = URL_SAFE_NO_PAD.decode(claims).unwrap();
            let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
            assert_eq!(claims["sub"], user);
            assert!(good_until.contains(&claims["exp"].as_u64().unwrap()), "{claims}");
        }
    }

    #[test]
    fn a_secrets_file_may_end_its_line() {
        let path = std::env::temp_dir().join(format!("halley-load-secret-{}", std::process::id()));
        let token_of = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let mut token = String::new();
            Signer::read(&path).unwrap().push_token("ann", 1, &mut token);
            token
        };
        assert_eq!(token_of(b"secret"), token_of(b"secret\r\n\n"));
        assert_ne!(token_of(b"secret"), token_of(b"secret "));
        std::fs::remove_file(&path).unwrap();
        assert!(Signer::read(&path).is_err());
    }
}
