//! Signatures of tokens: HS256 with a secret, RS256, ES256 or EdDSA with a private key in PEM.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use clap::Args;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use ring::{hmac, rand};
use serde_json::{Value, json};

use super::{read, read_secret};
use crate::failure::{Failure, Result};

/// RFC 7518, 3.2: a key is at least as long as the hash. The server insists on it.
const SECRET_BYTES_MIN: usize = 32;

/// By what a token is signed.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Options {
    /// The file of auth.hmac_secret_file: the token is signed by HS256
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// A private key in PEM (PKCS #8), as openssl genpkey writes it: RSA, P-256 or Ed25519
    #[arg(long, value_name = "FILE")]
    pem: Option<PathBuf>,
}

/// Signs tokens.
pub enum Signer {
    /// HS256.
    Hmac(hmac::Key),
    /// RS256.
    Rsa(RsaKeyPair),
    /// ES256.
    P256(EcdsaKeyPair),
    /// `EdDSA`.
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    /// With the key of these options.
    ///
    /// # Errors
    /// If the file can't be read, or has no key that the server would take.
    pub fn read(options: &Options) -> Result<Self> {
        if let Some(path) = &options.secret_file {
            let secret = read_secret(path)?;
            if secret.len() < SECRET_BYTES_MIN {
                let (name, length) = (path.display(), secret.len());
                return Err(Failure::Usage(format!(
                    "{name} has {length} bytes; a secret has 32 at least, such as those of \
                     `openssl rand -hex 32`"
                )));
            }
            return Ok(Self::Hmac(hmac::Key::new(hmac::HMAC_SHA256, &secret)));
        }
        let path = options.pem.clone().unwrap_or_default();
        Self::of_pem(&read(&path)?).ok_or_else(|| {
            Failure::Usage(format!(
                "{} has no private key of RSA, P-256 or Ed25519 in PEM (PKCS #8), as `openssl \
                 genpkey -algorithm ed25519` writes it",
                path.display()
            ))
        })
    }

    fn of_pem(pem: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(pem).ok()?;
        let (_, rest) = text.split_once("-----BEGIN PRIVATE KEY-----")?;
        let (body, _) = rest.split_once("-----END PRIVATE KEY-----")?;
        let body: String = body.split_whitespace().collect();
        let der = STANDARD.decode(body).ok()?;
        let random = SystemRandom::new();
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der)
            .map(Self::Ed25519)
            .or_else(|_| {
                let scheme = &ECDSA_P256_SHA256_FIXED_SIGNING;
                EcdsaKeyPair::from_pkcs8(scheme, &der, &random).map(Self::P256)
            })
            .or_else(|_| RsaKeyPair::from_pkcs8(&der).map(Self::Rsa))
            .ok()
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Hmac(_) => "HS256",
            Self::Rsa(_) => "RS256",
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    /// The token with these claims.
    ///
    /// # Errors
    /// If the system has no randomness for the signature.
    pub fn sign(&self, kid: Option<&str>, claims: &Value) -> Result<String> {
        let mut header = json!({ "alg": self.algorithm(), "typ": "JWT" });
        if let Some(kid) = kid {
            header["kid"] = json!(kid);
        }
        let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", encoded(&header), encoded(claims));
        let signature = self.signature(text.as_bytes()).map_err(|_| {
            Failure::Io("can't sign the token".to_owned(), std::io::ErrorKind::Other.into())
        })?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn signature(&self, text: &[u8]) -> std::result::Result<Vec<u8>, ring::error::Unspecified> {
        let random: &dyn rand::SecureRandom = &SystemRandom::new();
        match self {
            Self::Hmac(key) => Ok(hmac::sign(key, text).as_ref().to_vec()),
            Self::Ed25519(key) => Ok(key.sign(text).as_ref().to_vec()),
            Self::P256(key) => Ok(key.sign(random, text)?.as_ref().to_vec()),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, random, text, &mut signature)?;
                Ok(signature)
            }
        }
    }
}
