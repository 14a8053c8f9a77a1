//! WebSocket against RFC 6455, and `protocol/http.md` sections 8 and 9.

#![allow(clippy::unwrap_used)]

use halley_wire::http1::head::{HeadLimits, parse_request};
use halley_wire::http1::response::ResponseOptions;
use halley_wire::websocket::{
    Decoder, Event, Rules, Sender, client, close_code, encode, handshake,
};

const RULES: Rules = Rules { sender: Sender::Client, message_bytes_max: 1_000 };

/// Frames from `first byte, payload`, masked as a client must.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let key = [0x37, 0xfa, 0x21, 0x3d];
    let mut bytes = vec![first];
    match payload.len() {
        0..=125 => bytes.push(0x80 | payload.len() as u8),
        _ => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&key);
    bytes.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

/// All events in `input` as text, the last one a failure's code if there is one; read once as a
/// whole and once byte by byte, which must not differ.
fn events(input: &[u8]) -> Vec<String> {
    let whole = read(&mut input.to_vec(), input.len(), &RULES);
    let split = read(&mut input.to_vec(), 1, &RULES);
    assert_eq!(whole, split, "{input:02x?}");
    whole
}

fn read(input: &mut [u8], step: usize, rules: &Rules) -> Vec<String> {
    let mut decoder = Decoder::new();
    let mut said = Vec::new();
    for piece in input.chunks_mut(step.max(1)) {
        let mut at = 0;
        while at < piece.len() {
            match decoder.decode(&mut piece[at..], rules) {
                Err(failure) => {
                    said.push(failure.code.to_string());
                    return said;
                }
                Ok(decoded) => {
                    at += decoded.consumed;
                    let Some(event) = decoded.event else { break };
                    said.push(match &event {
                        Event::Text(text) => format!("text {text}"),
                        Event::Binary(bytes) => format!("binary {bytes:?}"),
                        Event::Ping(bytes) => format!("ping {}", bytes.escape_ascii()),
                        Event::Pong(bytes) => format!("pong {}", bytes.escape_ascii()),
                        Event::Close(code) => format!("close {}", code.unwrap_or(0)),
                    });
                    if matches!(event, Event::Close(_)) {
                        return said;
                    }
                }
            }
        }
    }
    said
}

/// RFC 6455 5.7 "Examples".
#[test]
fn section_5_7_examples() {
    let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(events(&masked), ["text Hello"]);
    let mut out = Vec::new();
    encode::text(&mut out, "Hello");
    assert_eq!(out, [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
    out.clear();
    encode::ping(&mut out, b"Hello");
    assert_eq!(out, [0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
    out.clear();
    client::pong(&mut out, b"Hello", [0x37, 0xfa, 0x21, 0x3d]);
    assert_eq!(out, [0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
    out.clear();
    encode::binary(&mut out, &[0; 256]);
    assert_eq!(out[..4], [0x82, 0x7e, 0x01, 0x00]);
    out.clear();
    encode::binary(&mut out, &[0; 65_536]);
    assert_eq!(out[..10], [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]);
}

/// RFC 6455 5.1, 5.2, 5.4 and 5.5: what fails with 1002, by its first bytes alone.
#[test]
fn bad_frames_fail_with_1002_before_their_payload() {
    let table: [(&str, &[u8]); 21] = [
        ("5.1 a server MUST close upon receiving a frame that is not masked", &[0x81, 0x05]),
        ("5.2 RSV1 MUST be 0 unless an extension is negotiated", &[0xc1]),
        ("5.2 RSV2", &[0xa1]),
        ("5.2 RSV3", &[0x91]),
        ("5.2 opcode 3 is reserved", &[0x83]),
        ("5.2 opcode 7", &[0x87]),
        ("5.2 opcode b", &[0x8b]),
        ("5.2 opcode f", &[0x8f]),
        ("5.2 the minimal number of bytes MUST be used", &[0x82, 0xfe, 0, 125]),
        ("5.2 minimal, 64 bits", &[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff]),
        ("5.2 the most significant bit MUST be 0", &[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("5.4 continuation of nothing", &[0x00]),
        ("5.4 last continuation of nothing", &[0x80]),
        ("5.5 control frames MUST NOT be fragmented: close", &[0x08]),
        ("5.5 fragmented ping", &[0x09]),
        ("5.5 fragmented pong", &[0x0a]),
        ("5.5 control frames have 125 bytes or less: ping", &[0x89, 0xfe]),
        ("5.5 close of 64-bit length", &[0x88, 0xff]),
        ("5.4 text inside of a text", &[0x01, 0x80, 0, 0, 0, 0, 0x81]),
        ("5.4 binary inside of a text", &[0x01, 0x80, 0, 0, 0, 0, 0x02]),
        ("5.1 unmasked after masked", &[0x81, 0x80, 0, 0, 0, 0, 0x81, 0x00]),
    ];
    for (section, input) in table {
        let said = events(input);
        assert_eq!(said.last().map(String::as_str), Some("1002"), "{section}");
    }
}

/// RFC 6455 5.4: "Control frames MAY be injected in the middle of a fragmented message."
#[test]
fn section_5_4_fragments_and_control_frames_between() {
    let input = [
        frame(0x01, b"a"),
        frame(0x89, b"p"),
        frame(0x00, b""),
        frame(0x8a, b""),
        frame(0x80, b"b"),
        frame(0x81, b"c"),
        frame(0x02, &[1]),
        frame(0x80, &[2]),
    ];
    let said = events(&input.concat());
    assert_eq!(said, ["ping p", "pong ", "text ab", "text c", "binary [1, 2]"]);
    assert_eq!(events(&frame(0x81, b"")), ["text "]);
    assert_eq!(events(&frame(0x89, &[b'x'; 125])), [format!("ping {}", "x".repeat(125))]);
}

/// RFC 6455 8.1: "When an endpoint is to interpret a byte stream as UTF-8 but finds that the byte
/// stream is not, in fact, a valid UTF-8 stream, that endpoint MUST _Fail the WebSocket
/// Connection_."
#[test]
fn section_8_1_text_is_utf8() {
    assert_eq!(events(&frame(0x81, "κόσμε".as_bytes())), ["text κόσμε"]);
    // Overlong, surrogate, above U+10FFFF, cut off, a lone continuation.
    let bad: [&[u8]; 5] = [b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xce", b"\x80"];
    for text in bad {
        assert_eq!(events(&frame(0x81, text)), ["1007"], "{text:02x?}");
        assert_eq!(events(&frame(0x82, text)), [format!("binary {text:?}")]);
    }
    // A character may be cut by fragments, not by the end of the message.
    let cut = [frame(0x01, b"\xce"), frame(0x00, b""), frame(0x80, b"\xba")];
    assert_eq!(events(&cut.concat()), ["text κ"]);
    let cut = [frame(0x01, b"\xce"), frame(0x80, b"")];
    assert_eq!(events(&cut.concat()), ["1007"]);
}

/// http.md 9.3: the first byte that can't be UTF-8 fails, not the end of the message or frame.
#[test]
fn bad_utf8_fails_fast() {
    let first = [frame(0x01, b"a\xce"), frame(0x00, b"\xce")];
    assert_eq!(events(&first.concat()), ["1007"]);
    let announced = frame(0x81, b"\xf4\x90aaaaaaaa");
    assert_eq!(events(&announced[..8]), ["1007"]);
    assert!(events(&announced[..7]).is_empty());
}

/// RFC 6455 5.5.1 and 7.4.
#[test]
fn section_7_4_close_codes() {
    assert_eq!(events(&frame(0x88, b"")), ["close 0"]);
    assert_eq!(events(&frame(0x88, b"\x03")), ["1002"]);
    assert_eq!(events(&frame(0x88, b"\x03\xe8bye")), ["close 1000"]);
    assert_eq!(events(&frame(0x88, b"\x03\xe8\xff")), ["1007"]);
    let good = [1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 3999, 4000, 4999];
    let bad = [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535];
    for code in good {
        assert_eq!(events(&frame(0x88, &u16::to_be_bytes(code))), [format!("close {code}")]);
    }
    for code in bad {
        assert_eq!(events(&frame(0x88, &u16::to_be_bytes(code))), ["1002"], "{code}");
    }
}

/// RFC 6455 10.4: "Implementations that have implementation- and/or platform-specific limitations
/// regarding the frame size or total message size after reassembly from multiple frames MUST
/// protect themselves against exceeding those limits."
#[test]
fn section_10_4_messages_are_bounded() {
    assert_eq!(events(&frame(0x82, &[0; 1_000])).len(), 1);
    // By the announced length, without its payload.
    assert_eq!(events(&frame(0x82, &[0; 1_001])[..4]), ["1009"]);
    let huge = [0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(events(&huge), ["1009"]);
    let sum = [frame(0x02, &[0; 600]), frame(0x89, &[b'p'; 100]), frame(0x80, &[0; 401])];
    assert_eq!(events(&sum.concat()).last().unwrap(), "1009");
    // What control frames carry between the fragments does not count.
    let sum = [frame(0x02, &[0; 950]), frame(0x89, &[b'p'; 100]), frame(0x80, &[0; 50])];
    assert!(events(&sum.concat())[1].starts_with("binary"));
}

/// http.md 9.7, and that what is announced is not allocated.
#[test]
fn nothing_is_held_between_messages() {
    assert_eq!(size_of::<Decoder>(), size_of::<usize>());
    let mut decoder = Decoder::new();
    let mut input = frame(0x81, b"hello");
    let (first, second) = input.split_at_mut(8);
    assert!(decoder.decode(first, &RULES).unwrap().event.is_none());
    assert!(!decoder.is_idle());
    assert!(decoder.decode(second, &RULES).unwrap().event.is_some());
    assert!(decoder.is_idle());
    let mut input = [frame(0x01, b"a"), frame(0x89, b"p"), frame(0x80, b"b")].concat();
    let consumed = decoder.decode(&mut input, &RULES).unwrap().consumed;
    assert!(!decoder.is_idle(), "a message is incomplete");
    assert!(decoder.decode(&mut input[consumed..], &RULES).unwrap().event.is_some());
    assert!(decoder.is_idle());
}

/// RFC 6455 5.1: "A client MUST close a connection if it detects a masked frame."
#[test]
fn section_5_1_the_client_side() {
    let rules = Rules { sender: Sender::Server, message_bytes_max: 100_000 };
    let mut frames = Vec::new();
    encode::event(&mut frames, b"c1", b"{\"id\":1}");
    encode::event(&mut frames, b"", b"{\"id\":2}");
    encode::ping(&mut frames, &[b'x'; 200]);
    encode::close(&mut frames, Some(close_code::GOING_AWAY), &"é".repeat(100));
    let said = read(&mut frames.clone(), 1, &rules);
    assert_eq!(said[0], "text {\"cursor\":\"c1\",\"id\":1}");
    assert_eq!(said[1], "text {\"id\":2}");
    assert_eq!(said[2], format!("ping {}", "x".repeat(125)));
    assert_eq!(said[3], "close 1001");
    assert_eq!(read(&mut frame(0x81, b"x"), 9, &rules), ["1002"]);
    let mut empty = Vec::new();
    encode::close(&mut empty, Some(1005), "never travels");
    encode::close(&mut empty, None, "");
    assert_eq!(empty, [0x88, 0, 0x88, 0]);
}

fn open(head: &str) -> Result<String, (u16, &'static str)> {
    let request = parse_request(head.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
    let accept = handshake::accept(&request).map_err(|error| (error.status, error.code))?;
    let mut out = Vec::new();
    handshake::response(&mut out, &accept, &ResponseOptions::of(&request));
    Ok(String::from_utf8(out).unwrap())
}

const UPGRADE: &str = "Host: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
const VERSION: &str = "Sec-WebSocket-Version: 13\r\n";
const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// RFC 6455 1.3: the example's key and accept.
#[test]
fn section_4_2_handshake() {
    let answer = open(&format!("GET / HTTP/1.1\r\n{UPGRADE}{VERSION}{KEY}\r\n"));
    let expected = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                    Connection: Upgrade\r\n\
                    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    assert_eq!(answer.as_deref(), Ok(expected));
    let mut request = Vec::new();
    client::request(&mut request, "h", "/v1/ws", "dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(open(std::str::from_utf8(&request).unwrap()).as_deref(), Ok(expected));
    let accept = client::expected_accept("dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(accept.as_bytes(), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

/// http.md 8.4, 14.2: the answer names one of the offers, and never a token.
#[test]
fn section_4_2_2_subprotocols() {
    for (lines, tokens, agreed) in [
        (&[][..], &[][..], Ok(false)),
        (&["chat, superchat"], &[], Ok(false)),
        (&["halley"], &[], Ok(true)),
        (&["Halley"], &[], Ok(false)),
        (&["halley, halley.token.a.b-_"], &["a.b-_"], Ok(true)),
        (&["halley.token.a", "chat,halley"], &["a"], Ok(true)),
        (&["halley.token.a,halley.token.b", "halley"], &["a", "b"], Ok(true)),
        (&["halley.token."], &[""], Err("bad_subprotocol")),
        (&["chat, halley.token.a"], &["a"], Err("bad_subprotocol")),
    ] {
        let offers = lines.iter().map(|line| format!("Sec-WebSocket-Protocol: {line}\r\n"));
        let offers: String = offers.collect();
        let head = format!("GET / HTTP/1.1\r\n{UPGRADE}{VERSION}{KEY}{offers}\r\n");
        let request = parse_request(head.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
        let found: Vec<_> = handshake::tokens(&request).collect();
        assert_eq!(found, tokens.iter().map(|t| t.as_bytes()).collect::<Vec<_>>(), "{lines:?}");
        let protocol = handshake::protocol(&request).map_err(|error| error.code);
        assert_eq!(protocol, agreed, "{lines:?}");
        let agreed = handshake::Agreed { deflate: None, protocol: protocol == Ok(true) };
        let accept = handshake::accept(&request).unwrap();
        let mut out = Vec::new();
        handshake::response_with(&mut out, &accept, agreed, &ResponseOptions::of(&request));
        let answer = String::from_utf8(out).unwrap();
        let said = answer.contains("Sec-WebSocket-Protocol: halley\r\n");
        assert_eq!(said, agreed.protocol, "{answer}");
        assert!(!answer.contains("token"), "{answer}");
    }
    let plain = "GET / HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Protocol: halley.token.a\r\n\r\n";
    let request = parse_request(plain.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
    assert_eq!(handshake::tokens(&request).count(), 0, "it opens no WebSocket");
}

/// RFC 6455 4.2.1 and 4.4, http.md 8.1 to 8.3.
#[test]
fn section_4_2_1_what_opens_nothing() {
    let get = "GET / HTTP/1.1\r\n";
    let version8 = "Sec-WebSocket-Version: 8\r\n";
    let short = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=\r\n";
    let bytes15 = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAA\r\n";
    let no_base64 = "Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!==\r\n";
    let bytes17 = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAAA=\r\n";
    let bytes18 = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAAAA\r\n";
    let no_upgrade = "Host: h\r\nUpgrade: websocket\r\n";
    let length = "Content-Length: 1\r\n";
    let table = [
        (format!("POST / HTTP/1.1\r\n{UPGRADE}{VERSION}{KEY}"), 405),
        (format!("GET / HTTP/1.0\r\n{UPGRADE}{VERSION}{KEY}"), 426),
        (format!("{get}{no_upgrade}{VERSION}{KEY}"), 426),
        (format!("{get}{UPGRADE}{KEY}"), 426),
        (format!("{get}{UPGRADE}{version8}{KEY}"), 426),
        (format!("{get}{UPGRADE}{VERSION}{VERSION}{KEY}"), 426),
        (format!("{get}{UPGRADE}{VERSION}"), 400),
        (format!("{get}{UPGRADE}{VERSION}{KEY}{KEY}"), 400),
        (format!("{get}{UPGRADE}{VERSION}{short}"), 400),
        (format!("{get}{UPGRADE}{VERSION}{bytes15}"), 400),
        (format!("{get}{UPGRADE}{VERSION}{bytes17}"), 400),
        (format!("{get}{UPGRADE}{VERSION}{bytes18}"), 400),
        (format!("{get}{UPGRADE}{VERSION}{no_base64}"), 400),
        (format!("{get}{UPGRADE}{VERSION}{KEY}{length}"), 400),
    ];
    for (head, status) in table {
        let refused = open(&format!("{head}\r\n")).map_err(|(status, _)| status);
        assert_eq!(refused, Err(status), "{head:?}");
    }
}
