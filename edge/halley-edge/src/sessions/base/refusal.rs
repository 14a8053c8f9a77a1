//! The refusal of a WebSocket that is open and has no session yet (`protocol/http.md` 28.4): the
//! error as a message, and a close whose code has the status.

use halley_wire::json_escape;
use halley_wire::websocket::encode;

/// Close codes from here on are left to applications (RFC 6455 7.4.2).
const CODES: u16 = 4_000;

/// The last words of such a WebSocket.
pub fn of_websocket(status: u16, code: &str, message: &str, retry_after_s: Option<u32>) -> Vec<u8> {
    let mut text = format!("{{\"error\":{{\"status\":{status},\"code\":").into_bytes();
    json_escape(&mut text, code);
    text.extend_from_slice(b",\"message\":");
    json_escape(&mut text, message);
    if let Some(seconds) = retry_after_s {
        text.extend_from_slice(format!(",\"retry_after_s\":{seconds}").as_bytes());
    }
    text.extend_from_slice(b"}}");
    let mut out = Vec::new();
    encode::text(&mut out, &String::from_utf8_lossy(&text));
    encode::close(&mut out, Some(CODES + status), code);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_why_twice() {
        let out = of_websocket(503, "busy", "come \"back\"", Some(2));
        let error = r#""status":503,"code":"busy","message":"come \"back\"","retry_after_s":2"#;
        let mut frames = Vec::new();
        encode::text(&mut frames, &format!("{{\"error\":{{{error}}}}}"));
        encode::close(&mut frames, Some(4_503), "busy");
        assert_eq!(out, frames);
    }
}
