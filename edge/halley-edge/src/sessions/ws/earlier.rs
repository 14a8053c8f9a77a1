//! An operation as the request of http.md 18.2, for a brain of an earlier build, which knows no
//! OPERATION, and the answer as HTTP has it (link.md 20.7). The next version of the link ends this.

use std::fmt::Write as _;

use halley_link::{FLAG_END, Frame, Item, List, Pair, What};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::sessions::base::io::Io;
use crate::sessions::subscriptions::view::EVERYBODY;
use crate::sessions::ws::answers;
use crate::sessions::ws::operation::Ask;

/// Sends it to the brain, with what the session's user may do.
pub fn send(io: &mut Io, index: u32, ask: &Ask, rights: &str) {
    let conn = io.conns.table.conn(index);
    let mut items = Vec::new();
    let headers = [
        ("halley-user", io.conns.table.user(index)),
        ("halley-rights", rights.as_bytes()),
        ("content-type", b"application/json".as_slice()),
        // The brain may grant less than everybody (link.md 19.3).
        ("halley-view", b"kept"),
    ];
    let sees = ask.change.as_ref().is_some_and(|change| change.is_of(EVERYBODY));
    let headers = &headers[..if sees { 4 } else { 3 }];
    for (name, value) in headers {
        Pair { name: name.as_bytes(), value }.write(&mut items);
    }
    let (method, target, body) = request(ask);
    io.link.send(&Frame::Request {
        conn,
        listener: 1,
        flags: FLAG_END,
        method: method.as_bytes(),
        target: target.as_bytes(),
        headers: List::from_items(headers.len() as u16, &items),
        body: body.as_bytes(),
    });
}

/// Method, target and body.
fn request(ask: &Ask) -> (&'static str, String, String) {
    let (method, path) = match ask.what {
        What::Publish => ("POST", "/v1/me/events"),
        What::Follow => ("PUT", "/v1/me/follows/"),
        What::Unfollow => ("DELETE", "/v1/me/follows/"),
        What::Subscribe => ("PUT", "/v1/me/subscriptions/"),
        What::Unsubscribe => ("DELETE", "/v1/me/subscriptions/"),
        What::State => ("PUT", "/v1/me/state"),
    };
    let mut target = path_to(path, &ask.subject);
    if ask.last > 0 {
        let _ = write!(target, "?last={}", ask.last);
    }
    let mut body = String::new();
    for member in ask.members.list().iter() {
        let before = if body.is_empty() { '{' } else { ',' };
        let value = String::from_utf8_lossy(member.value);
        let _ = write!(body, "{before}\"{}\":{value}", member.name.text());
    }
    if !body.is_empty() {
        body.push('}');
    }
    (method, target, body)
}

fn path_to(path: &str, subject: &str) -> String {
    let mut target = path.to_owned();
    for byte in subject.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            target.push(char::from(byte));
        } else {
            let _ = write!(target, "%{byte:02X}");
        }
    }
    target
}

/// The message for what the brain answered.
pub fn answer(reference: Option<&str>, status: u16, body: &[u8], after_s: Option<u32>) -> String {
    #[derive(Deserialize)]
    struct Body {
        error: Error,
    }
    #[derive(Deserialize)]
    struct Error {
        code: String,
        message: String,
    }
    if (200..300).contains(&status) {
        return match serde_json::from_slice::<&RawValue>(body.trim_ascii()) {
            Ok(json) => answers::answer(reference, "ok", json.get()),
            Err(_) => answers::unreadable(reference),
        };
    }
    match serde_json::from_slice::<Body>(body) {
        Ok(Body { error }) => answers::failure(reference, &error.code, &error.message, after_s),
        Err(_) => answers::unreadable(reference),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::sessions::ws::operation::{Wish, read};

    fn asked(text: &str) -> (&'static str, String, String) {
        match read(text).unwrap().wish {
            Wish::Ask(ask) => request(&ask),
            Wish::Token(_) => panic!("a token"),
        }
    }

    /// http.md 18.2: values travel as they were written.
    #[test]
    fn operations_are_requests() {
        let text = r#"{"op":"publish","subject":"a","data":{"n":1.0e5,"s":"é\u0000"}}"#;
        let body = r#"{"subject":"a","data":{"n":1.0e5,"s":"é\u0000"}}"#;
        assert_eq!(asked(text), ("POST", "/v1/me/events".into(), body.into()));
        let text = r#"{"id":7,"ack":"memory","data":null,"ref":1,"subject":"a","op":"publish"}"#;
        let body = r#"{"subject":"a","data":null,"id":7,"ack":"memory"}"#;
        assert_eq!(asked(text), ("POST", "/v1/me/events".into(), body.into()));
        let text = r#"{"op":"publish","to":["bob","eve"],"data":1,"id":"7"}"#;
        let body = r#"{"to":["bob","eve"],"data":1,"id":"7"}"#;
        assert_eq!(asked(text), ("POST", "/v1/me/events".into(), body.into()));
        let text = r#"{"op":"publish","data":1,"subjects":["ann","room/7"]}"#;
        let body = r#"{"subjects":["ann","room/7"],"data":1}"#;
        assert_eq!(asked(text), ("POST", "/v1/me/events".into(), body.into()));
        let text = r#"{"op":"publish","keep":true,"data":1,"subject":"a"}"#;
        let body = r#"{"subject":"a","data":1,"keep":true}"#;
        assert_eq!(asked(text), ("POST", "/v1/me/events".into(), body.into()));
        let text = r#"{"op":"follow","subject":"room/7 é?"}"#;
        let target = "/v1/me/follows/room%2F7%20%C3%A9%3F";
        assert_eq!(asked(text), ("PUT", target.into(), String::new()));
        let text = r#"{"op":"unfollow","subject":"\u0061.-_~"}"#;
        assert_eq!(asked(text), ("DELETE", "/v1/me/follows/a.-_~".into(), String::new()));
        let text = r#"{"op":"subscribe","subject":"room/7"}"#;
        assert_eq!(asked(text), ("PUT", "/v1/me/subscriptions/room%2F7".into(), String::new()));
        let text = r#"{"op":"subscribe","last":20,"subject":"room/7"}"#;
        let target = "/v1/me/subscriptions/room%2F7?last=20";
        assert_eq!(asked(text), ("PUT", target.into(), String::new()));
        let text = r#"{"op":"unsubscribe","subject":"room/7"}"#;
        assert_eq!(asked(text), ("DELETE", "/v1/me/subscriptions/room%2F7".into(), String::new()));
        let text = r#"{"op":"subscribe","presence":"room/7"}"#;
        assert_eq!(asked(text), ("PUT", "/v1/me/subscriptions/%01room%2F7".into(), String::new()));
        let text = r#"{"op":"unsubscribe","presence":"*"}"#;
        assert_eq!(asked(text), ("DELETE", "/v1/me/subscriptions/%01%2A".into(), String::new()));
        let text = "{\"op\":\"state\",\"data\":{\"n\":1.0e5,\n\t\"s\":\"é\\n\"}}";
        let body = r#"{"data":{"n":1.0e5,"s":"é\n"}}"#;
        assert_eq!(asked(text), ("PUT", "/v1/me/state".into(), body.into()));
    }

    /// http.md 18.3.
    #[test]
    fn answers() {
        let ok = answer(Some("\"a\""), 200, b"{\"id\":\"x\"}\n", None);
        assert_eq!(ok, r#"{"ref":"a","ok":{"id":"x"}}"#);
        assert_eq!(answer(None, 200, b"{}", None), r#"{"ok":{}}"#);
        let body = br#"{"error":{"code":"overloaded","message":"say \"again\""}}"#;
        let error = answer(Some("7"), 503, body, Some(2));
        let expected = r#"{"ref":7,"error":{"code":"overloaded","message":"say \"again\"","#;
        assert_eq!(error, format!("{expected}\"retry_after_s\":2}}}}"));
        for (status, body) in [(200, ""), (200, "{"), (500, ""), (500, "{}"), (404, "no")] {
            let text = answer(Some("7"), status, body.as_bytes(), None);
            assert!(text.starts_with(r#"{"ref":7,"error":{"code":"bad_answer""#), "{text}");
        }
    }
}
