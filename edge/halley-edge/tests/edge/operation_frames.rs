//! OPERATION as the request of http.md 18.2 that does the same, and its answer: so tests of
//! operations hold for brains of an earlier build as well, which get these requests (link.md 20.7).

use halley_link::{FLAG_END, FLAG_ERROR, Frame, What};

use crate::brain::Request;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Of an OPERATION.
pub fn request(frame: &Frame<'_>) -> Request {
    let Frame::Operation { conn, number, what, user, rights, subject, last, members } = *frame
    else {
        panic!("not OPERATION: {frame:?}");
    };
    let (method, path) = match what {
        What::Publish => ("POST", "/v1/me/events"),
        What::Follow => ("PUT", "/v1/me/follows/"),
        What::Unfollow => ("DELETE", "/v1/me/follows/"),
        What::Subscribe => ("PUT", "/v1/me/subscriptions/"),
        What::Unsubscribe => ("DELETE", "/v1/me/subscriptions/"),
        What::State => ("PUT", "/v1/me/state"),
    };
    let escaped = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(*byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    let id: String = subject.iter().map(escaped).collect();
    let query = if last > 0 { format!("?last={last}") } else { String::new() };
    let members: Vec<_> = members
        .iter()
        .map(|member| format!("\"{}\":{}", member.name.text(), text(member.value)))
        .collect();
    let body =
        if members.is_empty() { String::new() } else { format!("{{{}}}", members.join(",")) };
    let headers = [
        ("halley-user", text(user)),
        ("halley-rights", text(rights)),
        ("content-type", "application/json".to_owned()),
    ];
    Request {
        conn,
        listener: 1,
        flags: FLAG_END,
        method: method.to_owned(),
        target: format!("{path}{id}{query}"),
        headers: headers.map(|(name, value)| (name.to_owned(), value)).into(),
        body: body.into(),
        number: Some(number),
    }
}

/// The flag and the JSON for what HTTP would answer.
pub fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> (u8, Vec<u8>) {
    if (200..300).contains(&status) {
        return (0, body.trim_ascii().to_vec());
    }
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let mut error = json["error"].to_string();
    if let Some((_, seconds)) = headers.iter().find(|(name, _)| *name == "retry-after") {
        error.truncate(error.len() - 1);
        error = format!("{error},\"retry_after_s\":{seconds}}}");
    }
    (FLAG_ERROR, error.into_bytes())
}
