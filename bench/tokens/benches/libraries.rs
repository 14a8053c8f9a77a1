//! Which library checks tokens at what cost: `ring` and `aws-lc-rs` alone on the signature, and
//! whole checks by `halley-token` and by `jsonwebtoken` with `aws-lc-rs`.
//!
//!     cargo run --release --manifest-path bench/tokens/Cargo.toml
//!
//! The tokens are those of `protocol/tokens.json`. Each figure is the median of rounds in which all
//! have their turn, with the least and the most of them.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use aws_lc_rs::signature as aws;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use ring::signature as ring;
use serde_json::Value;

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(40);

type Check = Box<dyn Fn() -> bool>;

fn main() {
    let golden: Value =
        serde_json::from_str(include_str!("../../../protocol/tokens.json")).unwrap();
    let mut checks: Vec<(String, Check, Vec<f64>)> = Vec::new();
    for (alg, set) in [("HS256", "hs"), ("EdDSA", "ed"), ("ES256", "es"), ("RS256", "rs")] {
        let name = format!("{alg}, a key without kid");
        let cases = golden["cases"].as_array().unwrap();
        let case = cases.iter().find(|case| case["name"] == name.as_str()).unwrap();
        let token = Token::of(case["token"].as_str().unwrap());
        let key = golden["sets"][set]["keys"][0].clone();
        let now_s = golden["now"].as_u64().unwrap();
        for (what, check) in [
            ("ring: signature", by_ring(alg, &key, &token)),
            ("aws-lc-rs: signature", by_aws(alg, &key, &token)),
            ("halley-token: check", by_halley(&key, &token, now_s)),
            ("jsonwebtoken, aws-lc-rs: check", by_jsonwebtoken(alg, &key, &token)),
        ] {
            assert!(check(), "{alg}, {what}");
            checks.push((format!("{alg}  {what}"), check, Vec::new()));
        }
    }
    for _ in 0..ROUNDS {
        for (_, check, us) in &mut checks {
            us.push(microseconds(check));
        }
    }
    println!("{:40} {:>9} {:>9} {:>9}", "µs for a good token", "median", "least", "most");
    for (name, _, us) in &mut checks {
        us.sort_by(f64::total_cmp);
        println!("{name:40} {:>9.3} {:>9.3} {:>9.3}", us[ROUNDS / 2], us[0], us[ROUNDS - 1]);
    }
}

#[derive(Clone)]
struct Token {
    whole: String,
    signed: Vec<u8>,
    signature: Vec<u8>,
}

impl Token {
    fn of(whole: &str) -> Token {
        let (signed, signature) = whole.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        Token { whole: whole.to_owned(), signed: signed.into(), signature }
    }
}

fn bytes(key: &Value, name: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(key[name].as_str().unwrap()).unwrap()
}

fn point(key: &Value) -> Vec<u8> {
    [vec![4], bytes(key, "x"), bytes(key, "y")].concat()
}

fn by_ring(alg: &str, key: &Value, token: &Token) -> Check {
    let Token { signed, signature, .. } = token.clone();
    match alg {
        "HS256" => {
            let key = ::ring::hmac::Key::new(::ring::hmac::HMAC_SHA256, &bytes(key, "k"));
            Box::new(move || ::ring::hmac::verify(&key, &signed, black_box(&signature)).is_ok())
        }
        "RS256" => {
            let key = ring::RsaPublicKeyComponents { n: bytes(key, "n"), e: bytes(key, "e") };
            let how = &ring::RSA_PKCS1_2048_8192_SHA256;
            Box::new(move || key.verify(how, &signed, black_box(&signature)).is_ok())
        }
        "ES256" => {
            let key = ring::UnparsedPublicKey::new(&ring::ECDSA_P256_SHA256_FIXED, point(key));
            Box::new(move || key.verify(&signed, black_box(&signature)).is_ok())
        }
        _ => {
            let key = ring::UnparsedPublicKey::new(&ring::ED25519, bytes(key, "x"));
            Box::new(move || key.verify(&signed, black_box(&signature)).is_ok())
        }
    }
}

/// With points that were parsed before, which `ring` doesn't offer.
fn by_aws(alg: &str, key: &Value, token: &Token) -> Check {
    let Token { signed, signature, .. } = token.clone();
    let parsed = |how: &'static dyn aws::VerificationAlgorithm, key: Vec<u8>| {
        aws::ParsedPublicKey::new(how, key).unwrap()
    };
    let key = match alg {
        "HS256" => {
            let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &bytes(key, "k"));
            return Box::new(move || {
                aws_lc_rs::hmac::verify(&key, &signed, black_box(&signature)).is_ok()
            });
        }
        "RS256" => {
            let key = aws::RsaPublicKeyComponents { n: bytes(key, "n"), e: bytes(key, "e") };
            let how = &aws::RSA_PKCS1_2048_8192_SHA256;
            return Box::new(move || key.verify(how, &signed, black_box(&signature)).is_ok());
        }
        "ES256" => parsed(&aws::ECDSA_P256_SHA256_FIXED, point(key)),
        _ => parsed(&aws::ED25519, bytes(key, "x")),
    };
    Box::new(move || key.verify_sig(&signed, black_box(&signature)).is_ok())
}

fn by_halley(key: &Value, token: &Token, now_s: u64) -> Check {
    let keys = halley_token::Keys::parse(format!("{{\"keys\":[{key}]}}").as_bytes()).0;
    let rules = halley_token::Rules { token_bytes_max: 8_192, ..Default::default() };
    let token = token.whole.clone();
    Box::new(move || keys.check(black_box(token.as_bytes()), &rules, now_s).is_ok())
}

fn by_jsonwebtoken(alg: &str, key: &Value, token: &Token) -> Check {
    let jwk = serde_json::from_value(key.clone()).unwrap();
    let key = DecodingKey::from_jwk(&jwk).unwrap();
    let alg = match alg {
        "HS256" => Algorithm::HS256,
        "RS256" => Algorithm::RS256,
        "ES256" => Algorithm::ES256,
        _ => Algorithm::EdDSA,
    };
    let mut validation = Validation::new(alg);
    validation.validate_aud = false;
    let token = token.whole.clone();
    Box::new(move || jsonwebtoken::decode::<Value>(black_box(&token), &key, &validation).is_ok())
}

fn microseconds(check: &Check) -> f64 {
    let (mut count, started) = (0u32, Instant::now());
    while started.elapsed() < ROUND {
        // The clock is asked so seldom that it costs nothing.
        for _ in 0..64 {
            black_box(check());
        }
        count += 64;
    }
    started.elapsed().as_secs_f64() * 1e6 / f64::from(count)
}
