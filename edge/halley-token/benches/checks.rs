//! The price of a check, for each kind of token that is good or refused, in microseconds.
//!
//!     cargo bench -p halley-token
//!
//! The tokens are those of `protocol/tokens.json`. Each figure is the median of rounds in which all
//! kinds have their turn, with the least and the most of them.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use halley_token::{Keys, Rules};
use serde_json::Value;

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(40);

/// The golden cases, by name.
const CASES: [&str; 18] = [
    "HS256 with its kid",
    "EdDSA with its kid",
    "ES256 with its kid",
    "RS256 with its kid",
    "RSA of 4,096 bits",
    "rights",
    "nothing",
    "two parts",
    "JSON instead of base64url",
    "JWE",
    "alg \"none\", no signature",
    "an unknown kid",
    "HS256 with the RSA key's PEM as the secret",
    "HS256, a bit changed",
    "EdDSA, a bit changed",
    "ES256, a bit changed",
    "RS256, a bit changed",
    "exp is now",
];

struct Case {
    name: &'static str,
    keys: Keys,
    token: String,
    us: Vec<f64>,
}

fn main() {
    let golden: Value =
        serde_json::from_str(include_str!("../../../protocol/tokens.json")).unwrap();
    let now_s = golden["now"].as_u64().unwrap();
    let rules = Rules { token_bytes_max: 8_192, ..Rules::default() };
    let mut cases = CASES.map(|name| {
        let case = golden["cases"].as_array().unwrap().iter().find(|case| case["name"] == name);
        let case = case.unwrap();
        let set = golden["sets"][case["keys"].as_str().unwrap()].to_string();
        let token = case["token"].as_str().unwrap().to_owned();
        Case { name, keys: Keys::parse(set.as_bytes()).0, token, us: Vec::new() }
    });
    for _ in 0..ROUNDS {
        for Case { keys, token, us, .. } in &mut cases {
            us.push(microseconds(|| {
                keys.check(black_box(token.as_bytes()), &rules, now_s).is_ok()
            }));
        }
    }
    println!("{:48} {:>5} {:>9} {:>9} {:>9}", "µs for a check", "bytes", "median", "least", "most");
    for Case { name, token, us, .. } in &mut cases {
        us.sort_by(f64::total_cmp);
        let (middle, most) = (us[ROUNDS / 2], us[ROUNDS - 1]);
        println!("{name:48} {:>5} {middle:>9.3} {:>9.3} {most:>9.3}", token.len(), us[0]);
    }
}

fn microseconds(check: impl Fn() -> bool) -> f64 {
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
