//! The tables of `protocol/` that say what clients may send: `http-requests.json` and
//! `websocket.json`. `protocol/README.md` says how to read them.

use serde_json::Value as Json;

/// The cases of a table.
pub fn cases(text: &str) -> Vec<Json> {
    let table: Json = serde_json::from_str(text).unwrap();
    table["cases"].as_array().unwrap().clone()
}

/// A text, or null for none.
pub fn text<'c>(json: &'c Json, name: &str) -> &'c str {
    json[name].as_str().unwrap_or_default()
}

/// Bytes: a text of one character up to U+00FF for each, or a list of such texts and of
/// `[text, how often]`.
pub fn bytes(json: &Json) -> Vec<u8> {
    match json {
        Json::String(text) => text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect(),
        Json::Array(parts) => parts.iter().flat_map(part).collect(),
        Json::Null => Vec::new(),
        other => panic!("no bytes: {other}"),
    }
}

fn part(json: &Json) -> Vec<u8> {
    match json.as_array().map(Vec::as_slice) {
        Some([text, times]) => bytes(text).repeat(times.as_u64().unwrap() as usize),
        _ => bytes(json),
    }
}

/// A list of texts.
pub fn texts(json: &Json) -> Vec<String> {
    let list = json.as_array().unwrap().iter();
    list.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// A request that is to be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub line: String,
    pub body: Vec<u8>,
    pub whole: bool,
    /// By lower-case names; `None` where the case says nothing of them.
    pub fields: Option<Vec<(String, Vec<u8>)>>,
}

impl Seen {
    /// The same, without fields where `expected` says nothing of them.
    pub fn like(self, expected: &Seen) -> Seen {
        Seen { fields: self.fields.filter(|_| expected.fields.is_some()), ..self }
    }
}

/// The requests that a case lets pass.
pub fn seen(case: &Json) -> Vec<Seen> {
    case["seen"]
        .as_array()
        .unwrap()
        .iter()
        .map(|seen| Seen {
            line: String::from_utf8(bytes(&seen["line"])).unwrap(),
            body: bytes(&seen["body"]),
            whole: seen["whole"].as_bool().unwrap_or(true),
            fields: seen["fields"].as_object().map(|fields| {
                let mut fields: Vec<_> =
                    fields.iter().map(|(name, value)| (name.clone(), bytes(value))).collect();
                fields.sort();
                fields
            }),
        })
        .collect()
}

/// What a WebSocket client sends: bytes in hexadecimal digits, or frames by their first byte and
/// their payload, in the shortest form and masked.
pub fn frames(sends: &Json) -> Vec<u8> {
    sends.as_array().unwrap().iter().flat_map(frame).collect()
}

fn frame(json: &Json) -> Vec<u8> {
    if let Some(digits) = json.as_str() {
        return unhex(digits);
    }
    let key = json["key"].as_str().unwrap_or("37fa213d");
    let (mut out, key) = (unhex(text(json, "first")), unhex(key));
    let payload = bytes(&json["payload"]);
    match payload.len() {
        0..=125 => out.push(0x80 | payload.len() as u8),
        126..=0xffff => {
            out.push(0x80 | 126);
            out.extend((payload.len() as u16).to_be_bytes());
        }
        _ => {
            out.push(0x80 | 127);
            out.extend((payload.len() as u64).to_be_bytes());
        }
    }
    out.extend(&key);
    out.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    out
}

fn unhex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b' ').collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// The events of a WebSocket case: the frame's opcode, and its payload or a close's code.
pub fn says(case: &Json) -> Vec<(u8, Vec<u8>)> {
    let one = |said: &Json| match said[0].as_str().unwrap() {
        "text" => (1, bytes(&said[1])),
        "binary" => (2, bytes(&said[1])),
        "ping" => (9, bytes(&said[1])),
        "pong" => (10, bytes(&said[1])),
        "close" => {
            let code = said[1].as_u64().map(|code| (code as u16).to_be_bytes().to_vec());
            (8, code.unwrap_or_default())
        }
        other => panic!("{other}"),
    };
    case["says"].as_array().unwrap().iter().map(one).collect()
}
