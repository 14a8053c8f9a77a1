//! Tokens that must be refused. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::rng::Rng;
use crate::token::{Signer, now_s};

/// How many are made; they are shown in turn.
const TOKENS: u64 = 1_024;
/// For how long they would be good.
const LIFE_S: u64 = 86_400;
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// What the tokens with a wrong signature say that it is. The server needs a key for it, or it has
/// nothing to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Alg {
    Hs256,
    Rs256,
    Es256,
    #[value(name = "EdDSA")]
    EdDsa,
}

/// Which tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// In order but for the signature, so that it must be computed
    Signature,
    /// Half of them that, half of them whatever is refused for another reason
    Mixed,
}

/// Each token is another user's.
#[must_use]
pub fn tokens(signer: &Signer, kind: Kind, alg: Alg) -> Vec<String> {
    let junk_of = |number: u64| match kind {
        Kind::Mixed if number % 2 == 1 => Some(number / 2),
        _ => None,
    };
    let token = |number: u64| {
        let user = format!("u{number}");
        match junk_of(number) {
            Some(which) => junk(signer, &user, which),
            None => wrong(alg, &claims(&user, now_s() + LIFE_S), number),
        }
    };
    (0..TOKENS).map(token).collect()
}

/// A token in order but for the signature, which is of the right length and within its range.
fn wrong(alg: Alg, claims: &str, number: u64) -> String {
    let (name, bytes) = match alg {
        Alg::Hs256 => ("HS256", 32),
        Alg::Rs256 => ("RS256", 256),
        Alg::Es256 => ("ES256", 64),
        Alg::EdDsa => ("EdDSA", 64),
    };
    let mut rng = Rng::new(number);
    let mut signature: Vec<u8> = (0..bytes).map(|_| rng.next() as u8).collect();
    // An RSA signature is below the modulus, Ed25519's S below the group's order (RFC 8032, 5.1.7).
    if let Some(highest) = signature.get_mut(if alg == Alg::EdDsa { 63 } else { 0 }) {
        *highest &= 0x0f;
    }
    let header = format!("{{\"alg\":\"{name}\",\"typ\":\"JWT\"}}");
    let parts = [header.as_bytes(), claims.as_bytes(), &signature];
    parts.map(|part| URL_SAFE_NO_PAD.encode(part)).join(".")
}

fn junk(signer: &Signer, user: &str, which: u64) -> String {
    let later = now_s() + LIFE_S;
    let good = claims(user, later);
    match which % 10 {
        0 => user.to_owned(),
        1 => format!("{user}.{user}"),
        2 => "x".repeat(2_000),
        3 => signed(signer, HEADER, &good).replace('.', "=."),
        4 => signed(signer, r#"{"alg":"none"}"#, &good),
        5 => signed(signer, r#"{"alg":"RS256"}"#, &good),
        6 => signed(signer, r#"{"alg":"HS256","crit":["exp"]}"#, &good),
        7 => signed(signer, HEADER, &good) + ".AA.AA",
        8 => signed(signer, HEADER, &claims(user, now_s() - LIFE_S)),
        _ => signed(signer, HEADER, &claims("", later)),
    }
}

fn claims(user: &str, expires_s: u64) -> String {
    serde_json::json!({"sub": user, "exp": expires_s}).to_string()
}

fn signed(signer: &Signer, header: &str, claims: &str) -> String {
    let mut token = String::new();
    signer.push_signed(header, claims, &mut token);
    token
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_token_is_good_and_they_differ() {
        let signer = Signer::new(&[7; 32]);
        for (kind, least) in [(Kind::Signature, 1_024), (Kind::Mixed, 900)] {
            let tokens = tokens(&signer, kind, Alg::Hs256);
            let different: BTreeSet<&String> = tokens.iter().collect();
            assert!(different.len() >= least, "{}", different.len());
            assert!(tokens.iter().all(|token| token.bytes().all(|byte| byte.is_ascii_graphic())));
            let good = (0..TOKENS).map(|number| {
                signed(&signer, HEADER, &claims(&format!("u{number}"), now_s() + LIFE_S))
            });
            assert!(good.into_iter().all(|good| !different.contains(&good)));
        }
    }

    #[test]
    fn every_other_one_is_junk_where_they_are_mixed() {
        let tokens = tokens(&Signer::new(&[7; 32]), Kind::Mixed, Alg::EdDsa);
        let parts = |token: &String| token.split('.').count();
        assert!(tokens.iter().step_by(2).all(|token| parts(token) == 3));
        let junk: BTreeSet<usize> = tokens.iter().skip(1).step_by(2).map(parts).collect();
        assert_eq!(junk, BTreeSet::from([1, 2, 3, 5]));
    }

    /// RFC 7518, 3.2 to 3.4, and RFC 8037, 3.1: how long signatures are.
    #[test]
    fn a_wrong_signature_has_the_right_length() {
        for (alg, name, letters) in [
            (Alg::Hs256, "HS256", 43),
            (Alg::Rs256, "RS256", 342),
            (Alg::Es256, "ES256", 86),
            (Alg::EdDsa, "EdDSA", 86),
        ] {
            for token in tokens(&Signer::new(&[7; 32]), Kind::Signature, alg) {
                let parts: Vec<&str> = token.split('.').collect();
                let header = URL_SAFE_NO_PAD.decode(parts[0]).unwrap_or_default();
                let header = String::from_utf8(header).unwrap_or_default();
                assert!(header.contains(&format!("\"alg\":\"{name}\"")), "{header}");
                assert_eq!(parts[2].len(), letters);
            }
        }
    }
}
