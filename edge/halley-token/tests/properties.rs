//! True for every input: no panic, no forged token accepted, no claim beyond its bounds.

#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use halley_token::{Claims, KEYS_MAX, Keys, RIGHTS_BYTES_MAX, Rules};
use proptest::prelude::*;
use ring::hmac;
use serde_json::{Value, json};

const NOW_S: u64 = 1_800_000_000;
const SECRET: &[u8; 32] = b"thirty-two bytes of a secret are";
const RULES: Rules = Rules {
    issuer: String::new(),
    audience: String::new(),
    leeway_s: 10,
    token_bytes_max: 16_384,
    nobody_allowed: false,
};

fn secret_keys() -> Keys {
    let set = json!({"keys": [{"kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET)}]});
    Keys::parse(set.to_string().as_bytes()).0
}

fn signed(header: &[u8], claims: &[u8]) -> String {
    let text = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let signature = hmac::sign(&key, text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Every good token of the golden ones, with its keys.
static GOOD: LazyLock<Vec<(Keys, String)>> = LazyLock::new(|| {
    let golden: Value =
        serde_json::from_str(include_str!("../../../protocol/tokens.json")).unwrap();
    let good = golden["cases"].as_array().unwrap().iter().filter(|case| {
        let is_plain = case.as_object().unwrap().len() == 4;
        is_plain && case["expect"]["user"].is_string()
    });
    good.map(|case| {
        let set = golden["sets"][case["keys"].as_str().unwrap()].to_string();
        (Keys::parse(set.as_bytes()).0, case["token"].as_str().unwrap().to_owned())
    })
    .collect()
});

#[derive(Clone, Debug)]
enum Mutation {
    Replace(prop::sample::Index, u8),
    ReplaceByLetter(prop::sample::Index, prop::sample::Index),
    Insert(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
    Cut(prop::sample::Index),
    Append(Vec<u8>),
    /// One part of another good token.
    Part(prop::sample::Index, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        (index(), any::<u8>()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        (index(), index()).prop_map(|(at, letter)| Mutation::ReplaceByLetter(at, letter)),
        (index(), any::<u8>()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        index().prop_map(Mutation::Remove),
        (index(), index()).prop_map(|(one, other)| Mutation::Swap(one, other)),
        index().prop_map(Mutation::Cut),
        prop::collection::vec(any::<u8>(), 1..8).prop_map(Mutation::Append),
        (index(), 0..3usize).prop_map(|(other, part)| Mutation::Part(other, part)),
    ]
}

impl Mutation {
    fn apply(&self, token: &mut Vec<u8>, others: &[(Keys, String)]) {
        const LETTERS: &[u8] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=";
        match self {
            _ if token.is_empty() => token.push(b'.'),
            Mutation::Replace(at, byte) => *at.get_mut(token) = *byte,
            Mutation::ReplaceByLetter(at, letter) => *at.get_mut(token) = *letter.get(LETTERS),
            Mutation::Insert(at, byte) => token.insert(at.index(token.len()), *byte),
            Mutation::Remove(at) => {
                token.remove(at.index(token.len()));
            }
            Mutation::Swap(one, other) => {
                let (one, other) = (one.index(token.len()), other.index(token.len()));
                token.swap(one, other);
            }
            Mutation::Cut(at) => token.truncate(at.index(token.len())),
            Mutation::Append(bytes) => token.extend_from_slice(bytes),
            Mutation::Part(other, part) => {
                let other = other.get(others).1.as_bytes();
                let mut parts: Vec<&[u8]> = token.split(|byte| *byte == b'.').collect();
                if let (Some(mine), Some(strange)) =
                    (parts.get_mut(*part), other.split(|byte| *byte == b'.').nth(*part))
                {
                    *mine = strange;
                }
                *token = parts.join(&b'.');
            }
        }
    }
}

/// What every token that is accepted says.
fn is_within_bounds(claims: &Claims) -> bool {
    let is_user = (1..=255).contains(&claims.user.len())
        && !claims.user.chars().any(|c| c <= '\u{1f}' || c == '\u{7f}');
    let rights = serde_json::from_str::<Value>(&claims.rights);
    let is_rights = claims.rights.len() <= RIGHTS_BYTES_MAX
        && rights.is_ok_and(|rights| rights.is_object())
        && !claims.rights.chars().any(|c| c <= '\u{1f}');
    is_user && is_rights && claims.expires_s.saturating_add(RULES.leeway_s) > NOW_S
}

/// Claims as others might make them: the right names, values of all kinds.
fn claims() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (NOW_S - 20..NOW_S + 20).prop_map(Value::from),
        any::<[char; 3]>().prop_map(|chars| Value::from(chars.iter().collect::<String>())),
        (250..260usize).prop_map(|bytes| Value::from("*".repeat(bytes))),
    ];
    let value = leaf.prop_recursive(3, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
            prop::collection::hash_map("publish|follow|.", inner, 0..20)
                .prop_map(|members| json!(members)),
        ]
    });
    let name = "sub|exp|nbf|iss|aud|halley|.";
    let likely = (1..260usize, any::<bool>()).prop_map(|(bytes, has_exp)| match has_exp {
        true => format!("\"sub\":\"{}\",\"exp\":{}", "u".repeat(bytes), NOW_S + 9),
        false => format!("\"sub\":\"{}\"", "u".repeat(bytes)),
    });
    (likely, prop::collection::vec((name, value), 0..5)).prop_map(|(likely, members)| {
        let members = members.into_iter().map(|(name, value)| format!(",{}:{value}", json!(name)));
        format!("{{{likely}{}}}", members.collect::<String>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// RFC 7515, 5.2: what was signed is these bytes and no others.
    #[test]
    fn no_mutation_of_a_good_token_is_accepted(
        chosen in any::<prop::sample::Index>(),
        mutations in prop::collection::vec(mutation(), 1..4),
    ) {
        let (keys, token) = chosen.get(&GOOD);
        prop_assert!(keys.check(token.as_bytes(), &RULES, NOW_S).is_ok());
        let mut mutated = token.clone().into_bytes();
        for mutation in &mutations {
            mutation.apply(&mut mutated, &GOOD);
        }
        // Parts of others can make one of the others.
        let is_good = GOOD.iter().any(|(_, other)| other.as_bytes() == mutated);
        let accepted = keys.check(&mutated, &RULES, NOW_S).is_ok();
        prop_assert!(!accepted || is_good, "{}", String::from_utf8_lossy(&mutated));
    }

    #[test]
    fn no_bytes_panic_nor_pass(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(secret_keys().check(&bytes, &RULES, NOW_S).is_err());
        let (keys, unusable) = Keys::parse(&bytes);
        prop_assert!(keys.is_empty() && unusable.len() == 1);
    }

}

proptest! {
    /// link.md 12.6: "the `sub` of the token, and `halley-rights`, the JSON of its claim `halley`,
    /// at most 4,096 bytes".
    #[test]
    fn what_is_accepted_is_within_its_bounds(claims in claims()) {
        let token = signed(br#"{"alg":"HS256"}"#, claims.as_bytes());
        if let Ok(found) = secret_keys().check(token.as_bytes(), &RULES, NOW_S) {
            prop_assert!(is_within_bounds(&found), "{found:?}");
        }
    }

    /// Whatever a header has, only the key's algorithm is done.
    #[test]
    fn a_header_changes_nothing(
        alg in "HS256|RS256|ES256|EdDSA|none|HS512|.",
        more in prop::sample::select(vec!["", r#","typ":"JWT""#, r#","kid":"""#, r#","jwk":{}"#,
                                          r#","crit":[]"#, r#","alg":"HS256""#]),
    ) {
        let header = format!("{{\"alg\":{}{more}}}", json!(alg));
        let claims = json!({"sub": "ann", "exp": NOW_S + 1}).to_string();
        let token = signed(header.as_bytes(), claims.as_bytes());
        let is_plain = alg == "HS256" && !more.contains("crit") && !more.contains("alg");
        let found = secret_keys().check(token.as_bytes(), &RULES, NOW_S);
        prop_assert_eq!(found.is_ok(), is_plain, "{}: {:?}", header, found);
    }

    #[test]
    fn a_set_of_anything_is_read(
        members in prop::collection::vec(
            ("kty|crv|alg|kid|use|k|n|e|x|y", "oct|RSA|EC|OKP|P-256|Ed25519|[A-Z_a-z]{43}"),
            0..8,
        ),
        count in 0..2 * KEYS_MAX,
    ) {
        let key = members.iter().map(|(name, value)| format!("\"{name}\":\"{value}\""));
        let key = format!("{{{}}}", key.collect::<Vec<_>>().join(","));
        let set = format!("{{\"keys\":[{}]}}", vec![key; count].join(","));
        let (keys, unusable) = Keys::parse(set.as_bytes());
        prop_assert!(keys.len() <= 1, "the others have the same kid, or none");
        prop_assert!(count > KEYS_MAX || keys.len() + unusable.len() == count);
        prop_assert!(count <= KEYS_MAX || unusable.len() == 1);
    }
}
