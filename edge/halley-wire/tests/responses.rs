//! Responses, origins and streams byte by byte, and `protocol/http.md` sections 5 to 7.

#![allow(clippy::unwrap_used)]

use halley_wire::http1::body::Framing;
use halley_wire::http1::cors::{self, Cors, Origins, is_same_origin};
use halley_wire::http1::date::HttpDate;
use halley_wire::http1::head::Version;
use halley_wire::http1::headers::stays_at_edge;
use halley_wire::http1::response::{self, ResponseOptions};
use halley_wire::websocket::encode;
use halley_wire::{Gap, HttpError, article, ndjson, poll, sse};

const KEEP: ResponseOptions<'static> = ResponseOptions {
    version: Version::Http11,
    keep_alive: true,
    head_only: false,
    retry_after_s: None,
    allow: None,
    challenge: None,
    cors: Cors { allow_origin: None, vary: false, refused: None },
    date: None,
};

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

/// RFC 6454 section 5: scheme, host and port. http.md 6.4: "https where the listener speaks TLS".
#[test]
fn the_same_origin() {
    let same = |origin: &str, host: &str, tls| {
        is_same_origin(origin.as_bytes(), Some(host.as_bytes()), tls)
    };
    for (origin, host) in [
        ("http://a.example", "a.example"),
        ("http://a.example", "A.Example:80"),
        ("http://a.example:8080", "a.example:8080"),
        ("http://[::1]:8080", "[::1]:8080"),
    ] {
        assert!(same(origin, host, false) && !same(origin, host, true), "{origin} {host}");
    }
    for (origin, host) in
        [("https://a.example", "a.example"), ("https://a.example", "a.example:443")]
    {
        assert!(same(origin, host, false) && same(origin, host, true), "{origin} {host}");
    }
    for (origin, host) in [
        ("http://a.example", "a.example:443"),
        ("http://a.example:81", "a.example"),
        ("http://a.example.evil", "a.example"),
        ("http://a.example/", "a.example"),
        ("ftp://a.example", "a.example"),
        ("a.example", "a.example"),
        ("null", "null"),
        ("http://", ""),
        ("", ""),
    ] {
        assert!(!same(origin, host, false), "{origin} {host}");
    }
    assert!(!is_same_origin(b"http://a.example", None, false));
}

#[test]
fn errors_are_the_contracts_json() {
    let error = HttpError::new(404, "not_found", "There is nothing at this path.");
    let body = r#"{"error":{"code":"not_found","message":"There is nothing at this path."}}"#;
    let expected = format!(
        "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let get = written(|out| response::http_error(out, &error, &KEEP));
    assert_eq!(get, format!("{expected}{body}"));
    // RFC 9110 9.3.2: HEAD has the same headers and no content.
    let head_only = ResponseOptions { head_only: true, ..KEEP };
    assert_eq!(written(|out| response::http_error(out, &error, &head_only)), expected);
}

#[test]
fn error_texts_are_escaped() {
    let text = written(|out| response::json_error(out, 400, "a", "say \"é\"\n\u{1}\\", &KEEP));
    assert!(text.ends_with(r#"{"error":{"code":"a","message":"say \"é\"\n\u0001\\"}}"#), "{text}");
}

/// http.md 5.4, and RFC 9110 15.5.6, 15.5.22.
#[test]
fn statuses_that_need_a_header_have_it() {
    let options = ResponseOptions {
        version: Version::Http10,
        keep_alive: false,
        retry_after_s: Some(1),
        allow: Some("GET, HEAD"),
        date: Some(HttpDate::from_unix_s(784_111_777)),
        ..KEEP
    };
    let text = written(|out| response::json_error(out, 426, "a", "b", &options));
    for line in [
        "Date: Sun, 06 Nov 1994 08:49:37 GMT",
        "Connection: close",
        "Retry-After: 1",
        "Allow: GET, HEAD",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
    ] {
        assert!(text.contains(&format!("\r\n{line}\r\n")), "{line} in {text}");
    }
    let old = ResponseOptions { version: Version::Http10, ..KEEP };
    let text = written(|out| response::full(out, 200, "text/plain", b"x", &old));
    assert!(text.contains("\r\nConnection: keep-alive\r\n"), "http.md 3.1: {text}");
}

/// http.md 5.1; RFC 9110 8.6: no Content-Length in 1xx and 204.
#[test]
fn bodies_are_where_the_status_has_one() {
    let text = written(|out| response::full(out, 204, "text/plain", b"x", &KEEP));
    assert_eq!(text, "HTTP/1.1 204 No Content\r\n\r\n");
    let text = written(|out| response::full(out, 200, "text/plain", b"x", &KEEP));
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\n";
    assert_eq!(text, format!("{head}x"));
    let text = written(|out| response::full(out, 299, "text/plain", b"", &KEEP));
    assert!(text.starts_with("HTTP/1.1 299 \r\n"), "RFC 9112 4: the reason may be empty");
}

/// http.md 5.5.
#[test]
fn a_value_never_becomes_a_header() {
    let text = written(|out| {
        let mut head = response::Head::begin(out, 200, &KEEP);
        head.header("X", b"a\r\nSet-Cookie: b\0\x7f\tc");
        head.length(u64::MAX);
    });
    let expected = "HTTP/1.1 200 OK\r\nX: a  Set-Cookie: b   c\r\n\
                    Content-Length: 18446744073709551615\r\n\r\n";
    assert_eq!(text, expected);
}

#[test]
fn fields_of_the_connection_are_known() {
    assert!(stays_at_edge("Transfer-Encoding") && stays_at_edge("content-length"));
    assert!(!stays_at_edge("content-type"));
}

/// http.md 6.1 and 6.2.
#[test]
fn origins_are_granted_as_set() {
    let grant = |setting: &str, origin: &str| {
        let cors = Origins::parse(setting).unwrap().grant(Some(origin.as_bytes())).allow_origin;
        cors.map(|origin| String::from_utf8(origin.to_vec()).unwrap())
    };
    let local =
        ["http://localhost", "https://localhost:8080", "http://127.0.0.1:1", "http://[::1]"];
    let foreign = [
        "http://localhost.evil.example",
        "http://localhost:",
        "http://localhost:80a",
        "http://localhost:123456",
        "http://localhost:80/",
        "http://127.0.0.10",
        "http://evil.example/http://localhost",
        "file://localhost",
        "localhost",
        "null",
        "",
    ];
    for origin in local {
        assert_eq!(grant("localhost", origin).as_deref(), Some(origin));
        assert_eq!(grant("https://a.example", origin), None);
    }
    for origin in foreign {
        assert_eq!(grant("localhost", origin), None, "{origin}");
        assert_eq!(grant("*", origin).as_deref(), Some("*"));
    }
    let list = " https://A.example , localhost,";
    assert_eq!(grant(list, "https://a.example").as_deref(), Some("https://a.example"));
    assert_eq!(grant(list, "https://a.example:444"), None);
    assert_eq!(grant(list, "http://localhost").as_deref(), Some("http://localhost"));
    assert_eq!(grant("", "http://localhost"), None);

    assert!(Origins::parse(list).unwrap().grant(None).vary, "caches must know, asked or not");
    assert!(!Origins::parse("*").unwrap().grant(None).vary);
    assert!(!Origins::parse("").unwrap().grant(None).vary);
    for bad in ["null", "a.example", "http://", "https://a.example/", "https://*", "http://a b"] {
        assert!(Origins::parse(bad).is_err(), "{bad}");
    }
}

/// http.md 6.1: "as browsers and web views send them".
#[test]
fn origins_are_taken_as_clients_send_them() {
    let table: serde_json::Value =
        serde_json::from_str(include_str!("../../../protocol/origins.json")).unwrap();
    for (written, sent) in table["accepted"].as_object().unwrap() {
        let (origins, sent) = (Origins::parse(written).unwrap(), sent.as_str().unwrap());
        assert_eq!(Origins::parse(sent).unwrap(), origins, "{written} is {sent}");
        assert!(origins.allows(sent.as_bytes()), "{written} is {sent}");
        for other in ["null", "https://evil.example", "http://evil.example", "evil://localhost"] {
            assert!(!origins.allows(other.as_bytes()), "{written} isn't {other}");
        }
    }
    for written in table["refused"].as_array().unwrap() {
        assert!(Origins::parse(written.as_str().unwrap()).is_err(), "{written}");
    }
    let https = Origins::parse("https://app.example.org").unwrap();
    assert!(https.allows(b"https://app.example.org:443"), "not all clients leave it out");
    assert!(!https.allows(b"https://app.example.org:80"));
    assert!(!https.allows(b"https://app.example.org:443:443"));
}

/// http.md 6.3.
#[test]
fn options_answers_preflights() {
    let cors = Cors { allow_origin: Some(b"http://localhost:3000"), vary: true, refused: None };
    let options = ResponseOptions { cors, ..KEEP };
    let text = written(|out| cors::preflight(out, "GET, HEAD, OPTIONS", &options));
    let expected = "HTTP/1.1 204 No Content\r\n\
                    Access-Control-Allow-Origin: http://localhost:3000\r\n\
                    Access-Control-Expose-Headers: retry-after\r\nVary: Origin\r\n\
                    Allow: GET, HEAD, OPTIONS\r\n\
                    Access-Control-Allow-Methods: GET, HEAD, OPTIONS\r\n\
                    Access-Control-Allow-Headers: \
                    accept, authorization, cache-control, content-type, last-event-id\r\n\
                    Access-Control-Max-Age: 7200\r\n\r\n";
    assert_eq!(text, expected);
    let text = written(|out| cors::preflight(out, "GET", &KEEP));
    assert_eq!(text, "HTTP/1.1 204 No Content\r\nAllow: GET\r\n\r\n");
}

/// http.md 6.5.
#[test]
fn a_refused_origin_is_named_if_a_person_can_read_it() {
    let head = |origin: &[u8]| {
        let cors = Cors { refused: Some(origin), ..Cors::default() };
        written(|out| sse::head(out, &ResponseOptions { cors, ..KEEP }))
    };
    for (origin, named) in [
        ("http://a", "http://a"),
        ("", "this page's origin"),
        ("http://a\tb", "this page's origin"),
    ] {
        let lines = format!("\r\nHalley-Refused: cors.origins lacks {named}\r\nVary: Origin\r\n");
        assert!(head(origin.as_bytes()).contains(&lines), "{origin}");
    }
    assert!(!head(&[b'a'; 256]).contains("aaa"));
}

/// http.md 7.1 to 7.3.
#[test]
fn sse_byte_by_byte() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                Cache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    assert_eq!(written(|out| sse::head(out, &KEEP)), head);
    let old = ResponseOptions { version: Version::Http10, ..KEEP };
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\
                Cache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\n\r\n";
    assert_eq!(written(|out| sse::head(out, &old)), head);
    let body = |framing| {
        written(|out| {
            sse::welcome(out, framing, 3_000, b"");
            sse::encode_event(out, framing, b"c1", b"{\"id\":1}");
            sse::encode_event(out, framing, b"", b"{\"id\":2}");
            sse::heartbeat(out, framing, b"");
            sse::end(out, framing);
        })
    };
    assert_eq!(
        body(Framing::Plain),
        ": welcome\nretry: 3000\n\nid: c1\ndata: {\"id\":1}\n\ndata: {\"id\":2}\n\n:\n\n"
    );
    assert_eq!(
        body(Framing::Chunked),
        "17\r\n: welcome\nretry: 3000\n\n\r\n17\r\nid: c1\ndata: {\"id\":1}\n\n\r\n\
         10\r\ndata: {\"id\":2}\n\n\r\n3\r\n:\n\n\r\n0\r\n\r\n"
    );
}

/// http.md 7.3, 10.3: the cursor is an `id:` of its own in welcome and heartbeat, which a browser
/// takes note of without an event.
#[test]
fn sse_with_cursors_and_gaps() {
    let gap = Gap { reason: "too_old", from: 1, to: 2 }.object();
    let json = r#"{"gap":{"from":1,"to":2,"reason":"too_old"}}"#;
    let body = written(|out| {
        sse::welcome(out, Framing::Plain, 1_500, b"c-0");
        sse::heartbeat(out, Framing::Plain, b"c-1");
        sse::encode_gap(out, Framing::Plain, b"c-2", &gap);
        sse::encode_gap(out, Framing::Plain, b"", &gap);
    });
    assert_eq!(
        body,
        format!(
            ": welcome\nretry: 1500\nid: c-0\n\nid: c-1\n\n\
             event: gap\nid: c-2\ndata: {json}\n\nevent: gap\ndata: {json}\n\n"
        )
    );
    let chunk = written(|out| sse::heartbeat(out, Framing::Chunked, b"c-1"));
    assert_eq!(chunk, "9\r\nid: c-1\n\n\r\n");
}

/// http.md 7.4, 9.6, 10.3: the object of a welcome or a heartbeat has the cursor alone; a gap's has
/// it first.
#[test]
fn lines_and_messages_with_cursors_and_gaps() {
    let gap = Gap { reason: "damaged", from: 0, to: 2 }.object();
    let body = written(|out| {
        ndjson::heartbeat(out, Framing::Plain, b"c-0");
        ndjson::encode_event(out, Framing::Plain, b"c-1", &gap);
        ndjson::encode_event(out, Framing::Plain, b"", &gap);
    });
    let inner = r#""gap":{"from":null,"to":2,"reason":"damaged"}}"#;
    let expected = format!("{}\n{{\"cursor\":\"c-1\",{inner}\n{{{inner}\n", r#"{"cursor":"c-0"}"#);
    assert_eq!(body, expected);
    let mut message = Vec::new();
    encode::event(&mut message, b"c-0", b"{}");
    assert_eq!(message, b"\x81\x10{\"cursor\":\"c-0\"}");
}

/// http.md 11.1, 11.4: a whole answer; HEAD's has no length, as none is known before the events.
#[test]
fn a_polls_answer() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n";
    let events = [r#"{"id":"1"}"#];
    let answer = poll::Answer { gap: None, events: &events, cursor: b"c", more: false, end: None };
    let text = written(|out| poll::answer(out, &answer, &KEEP));
    let body = r#"{"events":[{"id":"1"}],"cursor":"c"}"#;
    assert_eq!(text, format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
    let head_only = ResponseOptions { head_only: true, ..KEEP };
    assert_eq!(written(|out| poll::answer(out, &answer, &head_only)), format!("{head}\r\n"));
}

/// http.md 7.4.
#[test]
fn ndjson_byte_by_byte() {
    let head = written(|out| ndjson::head(out, &KEEP));
    assert!(head.contains("\r\nContent-Type: application/x-ndjson\r\n"), "{head}");
    let body = |framing| {
        written(|out| {
            ndjson::heartbeat(out, framing, b"");
            ndjson::encode_event(out, framing, b"c1", b"{\"id\":1}");
            ndjson::encode_event(out, framing, b"", b"{\"id\":2}");
            ndjson::heartbeat(out, framing, b"");
            ndjson::end(out, framing);
        })
    };
    assert_eq!(body(Framing::Plain), "\n{\"cursor\":\"c1\",\"id\":1}\n{\"id\":2}\n\n");
    assert_eq!(
        body(Framing::Chunked),
        "1\r\n\n\r\n17\r\n{\"cursor\":\"c1\",\"id\":1}\n\r\n9\r\n{\"id\":2}\n\r\n\
         1\r\n\n\r\n0\r\n\r\n"
    );
}

/// http.md 7.5, and the article's own words.
#[test]
fn the_articles_stream() {
    let head = written(|out| article::head(out, &KEEP));
    assert!(head.contains("\r\nContent-Type: text/html; charset=utf-8\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; sandbox\r\n"));
    let chunk = written(|out| article::welcome(out, Framing::Chunked, "/test/123", "123"));
    assert_eq!(chunk, "22\r\nWelcome, Url: '/test/123' Id: 123\n\r\n");
    let evil = written(|out| article::welcome(out, Framing::Plain, "/test/'&\"", "<b>"));
    assert_eq!(evil, "Welcome, Url: '/test/&#39;&amp;&quot;' Id: &lt;b&gt;\n");
    let json = br#"{"id":"1","subject":"s","at":1,"data":{"a":[1]}}"#;
    let offset = json.len() - br#"{"a":[1]}}"#.len();
    assert_eq!(article::data_of(json, offset), Some(br#"{"a":[1]}"#.as_slice()));
    assert_eq!(article::data_of(json, json.len()), None);
    assert_eq!(article::data_of(b"", 0), None);
    let chunk = written(|out| article::encode_event(out, Framing::Chunked, b"\"hi\""));
    assert_eq!(chunk, "4\r\n\"hi\"\r\n");
    assert_eq!(written(|out| article::heartbeat(out, Framing::Plain)), "\n");
}
