//! Reading the messages of WebSockets' clients.
#![allow(clippy::unwrap_used, reason = "tests")]
use halley_link::What;

use crate::sessions::subscriptions::change::Change;
use crate::sessions::ws::operation::{Ask, Operation, Refused, Wish, read};
use crate::sessions::ws::wish::{MEMBERS_BYTES_MAX, STATE_BYTES_MAX, last_of};

fn ask(text: &str) -> Ask {
    match read(text).unwrap().wish {
        Wish::Ask(ask) => ask,
        Wish::Token(_) => panic!("a token"),
    }
}

fn members(ask: &Ask) -> Vec<(&'static str, &str)> {
    let text = |value| std::str::from_utf8(value).unwrap();
    ask.members.list().iter().map(|member| (member.name.text(), text(member.value))).collect()
}

fn code(text: &str) -> (Option<String>, &'static str) {
    let Refused { reference, error } = read(text).unwrap_err();
    (reference.map(String::from), error.code)
}

/// http.md 18.2: values travel as they were written; link.md 20.2, 20.3.
#[test]
fn what_travels() {
    let text = r#"{"op":"publish","subject":"a","data":{"n":1.0e5,"s":"é\u0000"}}"#;
    let publish = ask(text);
    assert_eq!((publish.what, publish.subject.as_str()), (What::Publish, ""));
    let data = r#"{"n":1.0e5,"s":"é\u0000"}"#;
    assert_eq!(members(&publish), [("subject", r#""a""#), ("data", data)]);
    let text = r#"{"keep":true,"id":7,"ack":"memory","data":null,"to":[],"op":"publish"}"#;
    let expected =
        [("to", "[]"), ("data", "null"), ("id", "7"), ("ack", "\"memory\""), ("keep", "true")];
    assert_eq!(members(&ask(text)), expected, "in the order of 20.3");
    for (text, what, subject, last) in [
        (r#"{"op":"follow","subject":"room/7 é?"}"#, What::Follow, "room/7 é?", 0),
        (r#"{"op":"unfollow","subject":"\u0061"}"#, What::Unfollow, "a", 0),
        (r#"{"op":"subscribe","last":20,"subject":"r"}"#, What::Subscribe, "r", 20),
        (r#"{"op":"unsubscribe","presence":"*"}"#, What::Unsubscribe, "\u{1}*", 0),
    ] {
        let ask = ask(text);
        assert_eq!((ask.what, ask.subject.as_str(), ask.last), (what, subject, last));
        assert!(members(&ask).is_empty(), "{text}");
    }
    let state = ask("{\"op\":\"state\",\"data\":{\"n\":1.0e5,\n\t\"s\":\"é\\n\"}}");
    assert_eq!(members(&state), [("data", r#"{"n":1.0e5,"s":"é\n"}"#)]);
    let token = read(r#"{"op":"token","token":"abc","ref":"x"}"#).unwrap();
    let expected = Operation { reference: Some("\"x\"".into()), wish: Wish::Token("abc".into()) };
    assert_eq!(token, expected);
}

/// http.md 25.1
#[test]
fn numbers_of_the_newest() {
    assert_eq!(last_of("20"), Some(20));
    for text in ["", "0", "020", "+20", "-1", "2.0", " 2", "x", "1234567", "٣"] {
        assert_eq!(last_of(text), None, "{text}");
    }
}

/// http.md 18.2: what isn't understood is refused, under its `ref` where that can be read.
#[test]
fn what_is_not_understood() {
    for text in ["", "x", "7", "null", "\"{}\"", "{", "{}{}", "\u{0}", "\u{a0}{\"op\":1}"] {
        assert_eq!(code(text), (None, "bad_json"), "{text}");
    }
    assert_eq!(code(r#"{"op":"follow"} "#), (None, "bad_operation"));
    for text in [
        r#"{"ref":1}"#,
        r#"{"ref":1,"op":7}"#,
        r#"{"ref":1,"op":"shout"}"#,
        r#"{"ref":1,"op":"publish","subject":"a"}"#,
        r#"{"ref":1,"op":"publish","data":1}"#,
        r#"{"ref":1,"op":"publish","subject":"a","data":1,"user":"bob"}"#,
        r#"{"ref":1,"op":"publish","subject":"a","data":1,"data":2}"#,
        r#"{"ref":1,"op":"publish","subject":"a","data":1,"token":"t"}"#,
        r#"{"ref":1,"op":"publish","subject":"a","to":["bob"],"data":1}"#,
        r#"{"ref":1,"op":"publish","to":["bob"]}"#,
        r#"{"ref":1,"op":"publish","subjects":["a"],"to":["bob"],"data":1}"#,
        r#"{"ref":1,"op":"publish","subjects":["a"],"subject":"b","data":1}"#,
        r#"{"ref":1,"op":"follow","subject":"a","subjects":["a"]}"#,
        r#"{"ref":1,"op":"follow","subject":"a","to":["bob"]}"#,
        r#"{"ref":1,"op":"follow","to":["bob"]}"#,
        r#"{"ref":1,"op":"token","token":"t","to":["bob"]}"#,
        r#"{"ref":1,"op":"follow","subject":"a","data":1}"#,
        r#"{"ref":1,"op":"follow","subject":"a","last":2}"#,
        r#"{"ref":1,"op":"follow","subject":"a","keep":true}"#,
        r#"{"ref":1,"op":"unsubscribe","subject":"a","last":2}"#,
        r#"{"ref":1,"op":"publish","subject":"a","data":1,"last":2}"#,
        r#"{"ref":1,"op":"follow","presence":"a"}"#,
        r#"{"ref":1,"op":"subscribe","presence":"a","last":2}"#,
        r#"{"ref":1,"op":"subscribe","subject":"a","presence":"a"}"#,
        r#"{"ref":1,"op":"publish","subject":"a","data":1,"presence":"a"}"#,
        r#"{"ref":1,"op":"state"}"#,
        r#"{"ref":1,"op":"state","data":1,"subject":"a"}"#,
        r#"{"ref":1,"op":"state","data":1,"id":"a"}"#,
        r#"{"ref":1,"op":"token"}"#,
        r#"{"ref":1,"op":"token","token":7}"#,
    ] {
        assert_eq!(code(text), (Some("1".into()), "bad_operation"), "{text}");
    }
}

/// http.md 18.2: so is a member whose value it can't be.
#[test]
fn values_that_cannot_be() {
    for last in ["0", "-1", "2.0", "1e2", "\"2\"", "null", "1234567"] {
        let text = format!(r#"{{"op":"subscribe","subject":"a","last":{last}}}"#);
        assert_eq!(code(&text), (None, "bad_last"));
    }
    for subject in ["7", "null", "\"\"", "[]", &format!("\"{}\"", "x".repeat(256))] {
        let text = format!(r#"{{"ref":"r","op":"follow","subject":{subject}}}"#);
        assert_eq!(code(&text), (Some("\"r\"".into()), "bad_subject"));
    }
    for subject in ["7", "null", "\"\"", "[]", &format!("\"{}\"", "x".repeat(255))] {
        let text = format!(r#"{{"ref":"r","op":"subscribe","presence":{subject}}}"#);
        assert_eq!(code(&text), (Some("\"r\"".into()), "bad_presence"));
    }
    for reference in ["null", "true", "{}", "[1]", &format!("\"{}\"", "x".repeat(63))] {
        let text = format!(r#"{{"ref":{reference},"op":"follow","subject":"a"}}"#);
        assert_eq!(code(&text), (None, "bad_ref"), "{reference}");
    }
    let twice = r#"{"ref":1,"ref":2,"op":"follow","subject":"a"}"#;
    assert_eq!(code(twice), (None, "bad_json"));
    let large = "x".repeat(MEMBERS_BYTES_MAX);
    let text = format!(r#"{{"op":"publish","subject":"a","data":"{large}"}}"#);
    assert_eq!(code(&text), (None, "data_too_large"));
    let text = format!(r#"{{"op":"state","data":"{}"}}"#, "x".repeat(STATE_BYTES_MAX - 1));
    assert_eq!(code(&text), (None, "state_too_large"));
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let text = format!(r#"{{"op":"publish","subject":"a","data":{deep}}}"#);
    assert!(read(&text).is_err(), "and nothing overflows");
}

/// RFC 8259 to the letter, by the cases that HTTP has; those in no UTF-8 are no text message.
#[test]
fn data_is_json() {
    let cases = include_str!("../../../../../protocol/json.json");
    let cases: serde_json::Value = serde_json::from_str(cases).unwrap();
    for case in cases["cases"].as_array().unwrap() {
        let bytes = case["text"].as_str().unwrap().chars().map(|c| c as u8).collect();
        if let Ok(data) = String::from_utf8(bytes) {
            let text = format!(r#"{{"op":"publish","subject":"s","data":{data},"ref":1}}"#);
            assert_eq!(case["json"], read(&text).is_ok(), "{}", case["name"]);
        }
    }
}

/// http.md 18.1: "one JSON object", and no list with the values of one.
#[test]
fn a_list_is_no_operation() {
    for text in [
        "[]",
        r#"["follow","a"]"#,
        r#"["publish","a",1]"#,
        r#"["publish","a",1,"id","memory",null,7]"#,
        " \n\t\r[\"follow\",\"a\"]",
        r#"[{"op":"follow","subject":"a"}]"#,
    ] {
        assert_eq!(code(text), (None, "bad_json"), "{text}");
    }
    let spaced = ask(" \n\t\r{\"op\":\"follow\",\"subject\":\"a\"}");
    assert_eq!(spaced.what, What::Follow);
}

/// http.md 23.1: what is kept of it is what was said, or nothing.
#[test]
fn states() {
    for (data, kept) in [("{\"a\":\n[1]}", "{\"a\":[1]}"), ("null", ""), ("\"\"", "\"\"")] {
        let Wish::Ask(asked) = read(&format!(r#"{{"op":"state","data":{data}}}"#)).unwrap().wish
        else {
            panic!("no request");
        };
        assert_eq!(asked.change, Some(Change::State(kept.into())), "{data}");
    }
}
