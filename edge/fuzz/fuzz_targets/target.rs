//! Request targets: no panic, and what is decoded is the text that was encoded.

#![no_main]

use halley_wire::target::{self, Plus};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for plus in [Plus::Literal, Plus::Space] {
        if let Ok(decoded) = target::decode(text, plus) {
            assert!(!decoded.contains('\0') && decoded.len() <= text.len());
            let again = target::decode(&encode(&decoded), plus).map(|text| text.into_owned());
            assert_eq!(again.as_deref(), Ok(&*decoded));
        }
    }
    let (path, query) = target::split(text);
    let whole = target::with_path(text);
    assert_eq!(path.len() + query.map_or(0, |query| query.len() + 1), whole.len());
    let slashes = path.bytes().filter(|&byte| byte == b'/').count();
    let segments = target::segments(path).count();
    assert!(segments == slashes || segments == slashes + 1);
    let _ = target::query_value(text, "user");
});

/// Escapes all that is not a letter or a digit.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
