//! Which keys of a JWK Set count (`protocol/link.md` 12.2, 12.3; RFC 7517, RFC 7518).

#![allow(clippy::unwrap_used)]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use halley_token::{KEYS_MAX, Keys, Refusal, Rules, SET_BYTES_MAX};
use serde_json::{Value, json};

fn zeros_with(bytes: usize, first: u8, last: u8) -> String {
    let mut number = vec![0; bytes];
    number[0] = first;
    number[bytes - 1] |= last;
    URL_SAFE_NO_PAD.encode(number)
}

fn oct(bytes: usize) -> Value {
    json!({"kty": "oct", "alg": "HS256", "k": zeros_with(bytes, 1, 1)})
}

fn rsa(bytes: usize, first: u8, last: u8, e: &str) -> Value {
    json!({"kty": "RSA", "alg": "RS256", "n": zeros_with(bytes, first, last), "e": e})
}

fn with(mut key: Value, name: &str, value: Value) -> Value {
    key[name] = value;
    key
}

fn without(mut key: Value, name: &str) -> Value {
    key.as_object_mut().unwrap().remove(name);
    key
}

/// How many keys count, and the places of the others.
fn read(keys: Value) -> (usize, Vec<usize>) {
    let (keys, unusable) = Keys::parse(json!({"keys": keys}).to_string().as_bytes());
    (keys.len(), unusable.iter().map(|key| key.place).collect())
}

#[test]
fn each_type_is_read() {
    let p256 = json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "x": zeros_with(32, 1, 1),
                      "y": zeros_with(32, 1, 1)});
    let ed = json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": zeros_with(32, 1, 1)});
    for key in [oct(32), oct(1_024), rsa(256, 128, 1, "AQAB"), rsa(1_024, 255, 1, "Aw"), p256, ed] {
        assert_eq!(read(json!([key])), (1, vec![]), "{key}");
        assert_eq!(read(json!([without(key.clone(), "alg")])), (1, vec![]), "{key}");
        assert_eq!(read(json!([with(key.clone(), "use", json!("sig"))])), (1, vec![]), "{key}");
        for (name, value) in [
            ("alg", json!("none")),
            ("alg", json!(1)),
            ("kty", json!("oct ")),
            ("crv", json!("P-521")),
            ("use", json!("enc")),
            ("kid", json!(1)),
        ] {
            let other = with(key.clone(), name, value);
            assert_eq!(read(json!([other])), (0, vec![1]), "{other}");
        }
    }
}

/// RFC 7518, 3.2 and 3.3: as long as the hash, 2,048 bits or more.
#[test]
fn what_is_weak_or_malformed_is_left_out() {
    for key in [
        oct(31),
        oct(1_025),
        without(oct(32), "k"),
        with(oct(32), "k", json!("a=")),
        rsa(256, 127, 1, "AQAB"),
        rsa(1_025, 1, 1, "AQAB"),
        rsa(256, 128, 2, "AQAB"),
        rsa(256, 128, 1, "AQ"),
        rsa(256, 128, 1, "BA"),
        rsa(256, 128, 1, "AgAAAAE"),
        rsa(256, 128, 1, ""),
        json!({"kty": "OKP", "crv": "Ed25519", "x": zeros_with(31, 1, 1)}),
        json!({"kty": "OKP", "crv": "Ed448", "x": zeros_with(57, 1, 1)}),
        json!({"kty": "EC", "crv": "P-256", "x": zeros_with(32, 1, 1)}),
        json!({"kty": "EC", "crv": "P-256", "x": zeros_with(33, 1, 1), "y": zeros_with(32, 1, 1)}),
        json!("key"),
        json!(null),
        json!([]),
        json!(["oct", "HS256", zeros_with(32, 1, 1)]),
    ] {
        assert_eq!(read(json!([key])), (0, vec![1]), "{key}");
    }
    assert_eq!(read(json!([rsa(256, 128, 1, "Af____8")])), (1, vec![]), "2^33 - 1");
    assert_eq!(read(json!([rsa(257, 0, 1, "AQAB")])), (0, vec![1]), "zeros don't make it longer");
}

/// Some write a zero in front of a number whose first bit is set.
#[test]
fn zeros_before_a_number_are_no_part_of_it() {
    let golden: Value =
        serde_json::from_str(include_str!("../../../protocol/tokens.json")).unwrap();
    let case = golden["cases"].as_array().unwrap().iter();
    let case = case.clone().find(|case| case["name"] == "RS256, a key without kid").unwrap();
    let mut key = golden["sets"]["rs"]["keys"][0].clone();
    for name in ["n", "e"] {
        let number = URL_SAFE_NO_PAD.decode(key[name].as_str().unwrap()).unwrap();
        key[name] = json!(URL_SAFE_NO_PAD.encode([&[0], &*number].concat()));
    }
    let (keys, unusable) = Keys::parse(json!({"keys": [key]}).to_string().as_bytes());
    assert_eq!(unusable, []);
    let rules = Rules { token_bytes_max: 65_536, ..Rules::default() };
    let token = case["token"].as_str().unwrap().as_bytes();
    assert!(keys.check(token, &rules, golden["now"].as_u64().unwrap()).is_ok());
}

/// link.md 12.3: "A key that the edge can't use is left out, and reported in its log by its place
/// in the set; the others count."
#[test]
fn the_others_count() {
    let named = |kid: &str| with(oct(32), "kid", json!(kid));
    let twice: Value = serde_json::from_str(r#"{"kty":"OKP"}"#).unwrap();
    assert_eq!(read(json!([named("a"), twice, named("b")])), (2, vec![2]));
    assert_eq!(read(json!([named("a"), oct(32), named("a"), named("c")])), (2, vec![2, 3]));
    assert_eq!(read(json!([oct(32), oct(32)])), (0, vec![1, 2]));
}

/// link.md 12.3: "When the text is no JWK Set, there is no key."
#[test]
fn a_text_that_is_no_set_has_no_key() {
    let many: Vec<Value> =
        (0..=KEYS_MAX).map(|n| with(oct(32), "kid", json!(n.to_string()))).collect();
    let many = json!({"keys": many}).to_string();
    let long = format!("{{\"keys\":[]{}}}", " ".repeat(SET_BYTES_MAX));
    let list = json!([[oct(32)]]).to_string();
    for text in
        ["", "[]", &list, "{}", "{\"keys\":{}}", "{\"keys\":[],\"keys\":[]}", "x", &many, &long]
    {
        let (keys, unusable) = Keys::parse(text.as_bytes());
        let places: Vec<usize> = unusable.iter().map(|unusable| unusable.place).collect();
        assert_eq!((keys.len(), places), (0, vec![0]), "{text:.40}");
    }
    let (keys, unusable) = Keys::parse(b"{\"keys\":[],\"more\":1}");
    assert!(keys.is_empty() && unusable.is_empty());
}

/// link.md 12.4: "One that has no key refuses every token".
#[test]
fn no_key_refuses_every_token() {
    let rules = Rules { token_bytes_max: 65_536, ..Rules::default() };
    for token in ["", "a.b.c", "eyJhbGciOiJub25lIn0.e30."] {
        assert_eq!(Keys::default().check(token.as_bytes(), &rules, 0), Err(Refusal::NoKeys));
    }
}

/// A secret shows up in no log.
#[test]
fn keys_show_nothing_of_themselves() {
    let set = json!({"keys": [oct(32)]}).to_string();
    assert_eq!(format!("{:?}", Keys::parse(set.as_bytes()).0), "Keys(1)");
}
