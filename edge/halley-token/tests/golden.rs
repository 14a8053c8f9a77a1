//! `protocol/tokens.json`: tokens that another implementation signed, and what becomes of each.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, HashMap};

use halley_token::{Keys, Refusal, Rules};
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../../protocol/tokens.json")).unwrap()
}

fn rules(case: &Value) -> Rules {
    let text = |name: &str| case[name].as_str().unwrap_or_default().to_owned();
    Rules {
        issuer: text("issuer"),
        audience: text("audience"),
        leeway_s: case["leeway_s"].as_u64().unwrap_or(0),
        token_bytes_max: case["token_bytes_max"].as_u64().unwrap_or(65_536) as usize,
        nobody_allowed: case["nobody_allowed"].as_bool().unwrap_or(false),
    }
}

#[test]
fn each_token_fares_as_it_should() {
    let golden = golden();
    let sets: HashMap<&str, Keys> = golden["sets"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, set)| {
            let (keys, unusable) = Keys::parse(set.to_string().as_bytes());
            assert_eq!(unusable, [], "{name}");
            (name.as_str(), keys)
        })
        .collect();
    let mut wrong = Vec::new();
    for case in golden["cases"].as_array().unwrap() {
        let now_s = case["now"].as_u64().or(golden["now"].as_u64()).unwrap();
        let token = case["token"].as_str().unwrap().as_bytes();
        let found = match sets[case["keys"].as_str().unwrap()].check(token, &rules(case), now_s) {
            Ok(claims) => serde_json::json!({"user": claims.user, "rights": claims.rights,
                                             "expires_s": claims.expires_s}),
            Err(refusal) => serde_json::json!({"refusal": refusal.code()}),
        };
        if found != case["expect"] {
            wrong.push(format!("{}: {found}, not {}", case["name"], case["expect"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_refusal_has_a_token() {
    let golden = golden();
    let cases = golden["cases"].as_array().unwrap();
    let shown: BTreeSet<_> =
        cases.iter().filter_map(|case| case["expect"]["refusal"].as_str()).collect();
    assert_eq!(shown, Refusal::ALL.iter().map(|refusal| refusal.code()).collect());
}
