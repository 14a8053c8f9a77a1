//! Answers to clients of WebSockets (`protocol/http.md` 18.3). Values in, text out.

use halley_wire::HttpError;

/// The message that says what became of an operation; `json` is the text of its value.
pub fn answer(reference: Option<&str>, what: &str, json: &str) -> String {
    match reference {
        Some(reference) => format!("{{\"ref\":{reference},\"{what}\":{json}}}"),
        None => format!("{{\"{what}\":{json}}}"),
    }
}

/// The message that an operation failed.
pub fn refusal(reference: Option<&str>, error: &HttpError) -> String {
    failure(reference, error.code, error.message, error.retry_after_s)
}

/// The message for an answer of the brain that can't be shown.
pub fn unreadable(reference: Option<&str>) -> String {
    let message = "The brain's answer can't be read: whether it was done is not known.";
    failure(reference, "bad_answer", message, None)
}

/// The message of this error.
pub fn failure(reference: Option<&str>, code: &str, message: &str, after_s: Option<u32>) -> String {
    let mut json = b"{\"code\":".to_vec();
    halley_wire::json_escape(&mut json, code);
    json.extend_from_slice(b",\"message\":");
    halley_wire::json_escape(&mut json, message);
    if let Some(seconds) = after_s {
        json.extend_from_slice(format!(",\"retry_after_s\":{seconds}").as_bytes());
    }
    json.push(b'}');
    answer(reference, "error", &String::from_utf8_lossy(&json))
}
