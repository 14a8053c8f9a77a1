//! Request heads against RFC 9112 and RFC 9110, and `protocol/http.md` sections 1 to 3.

#![allow(clippy::unwrap_used)]

use halley_wire::HttpError;
use halley_wire::http1::head::{BodyFraming, HeadLimits, Request, Version, parse_request};
use halley_wire::target;

fn parse(head: &str) -> Result<Option<Request<'_>>, HttpError> {
    parse_request(head.as_bytes(), &HeadLimits::default())
}

fn accepted(head: &str) -> Request<'_> {
    parse(head).unwrap_or_else(|error| panic!("{head:?}: {error}")).unwrap()
}

/// The status and the code with which `head` is refused, or 0.
fn refusal(head: &str) -> (u16, &'static str) {
    parse(head).map_or_else(|error| (error.status, error.code), |_| (0, ""))
}

#[test]
fn a_request_is_read_in_all_its_parts() {
    let text = "GET /v1/stream?user=ann HTTP/1.1\r\nHost: localhost:8080\r\n\
                Accept:text/event-stream \t\r\nX-Empty:\r\n\r\nrest";
    let request = accepted(text);
    assert_eq!(request.method, "GET");
    assert_eq!(request.target, "/v1/stream?user=ann");
    assert_eq!(request.version, Version::Http11);
    assert_eq!(&text[request.head_bytes..], "rest");
    assert_eq!(request.body, BodyFraming::None);
    assert!(request.keep_alive && !request.expect_continue && !request.upgrade_websocket);
    assert_eq!(request.header("ACCEPT"), Some(b"text/event-stream".as_slice()));
    assert_eq!(request.header("x-empty"), Some(b"".as_slice()));
    assert_eq!(request.header("cookie"), None);
    let names: Vec<_> = request.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Host", "Accept", "X-Empty"]);
}

/// RFC 9112 11.2: "Request smuggling is a technique that exploits differences in protocol parsing
/// among various recipients to hide additional requests". Each of these has a reading in which the
/// body is another request.
#[test]
fn two_readings_of_the_framing_are_refused() {
    let table = [
        // 6.3 item 5: invalid Content-Length "the recipient MUST treat it as an unrecoverable
        // error"; here also where the values agree.
        ("Content-Length: 5\r\nContent-Length: 6", 400, "bad_content_length"),
        ("Content-Length: 5\r\nContent-Length: 5", 400, "bad_content_length"),
        ("Content-Length: 0\r\nContent-Length: 5", 400, "bad_content_length"),
        ("Content-Length: 5, 5", 400, "bad_content_length"),
        ("Content-Length: 5 5", 400, "bad_content_length"),
        ("Content-Length: +5", 400, "bad_content_length"),
        ("Content-Length: -5", 400, "bad_content_length"),
        ("Content-Length: 0x5", 400, "bad_content_length"),
        ("Content-Length: 5e0", 400, "bad_content_length"),
        ("Content-Length: \u{b2}", 400, "bad_content_length"),
        ("Content-Length:", 400, "bad_content_length"),
        ("Content-Length: 18446744073709551616", 413, "body_too_large"),
        // 6.1: "A server MAY reject a request that contains both Content-Length and
        // Transfer-Encoding".
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400, "ambiguous_framing"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0", 400, "ambiguous_framing"),
        // 6.1: "A server that receives a request message with a transfer coding it does not
        // understand SHOULD respond with 501".
        ("Transfer-Encoding: gzip, chunked", 501, "transfer_coding_unknown"),
        ("Transfer-Encoding: identity", 501, "transfer_coding_unknown"),
        ("Transfer-Encoding: xchunked", 501, "transfer_coding_unknown"),
        ("Transfer-Encoding: chunked;a=b", 501, "transfer_coding_unknown"),
        ("Transfer-Encoding: \"chunked\"", 501, "transfer_coding_unknown"),
        ("Transfer-Encoding: \u{a0}chunked", 501, "transfer_coding_unknown"),
        // 6.1: "A sender MUST NOT apply the chunked transfer coding more than once".
        ("Transfer-Encoding: chunked, chunked", 400, "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400, "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x", 501, "transfer_coding_unknown"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding:", 400, "bad_transfer_encoding"),
        ("Transfer-Encoding:", 400, "bad_transfer_encoding"),
        // RFC 9110 15.5.16 and 5.3: "a sender MUST NOT generate multiple field lines".
        ("Content-Length: 5\r\nContent-Encoding: gzip", 415, "content_coding_unknown"),
        ("Content-Encoding: identity, br\r\nContent-Length: 5", 415, "content_coding_unknown"),
        ("Content-Type: a/b\r\nContent-Type: a/b", 400, "bad_content_type"),
        ("Transfer-Encoding: ,", 400, "bad_transfer_encoding"),
        ("Transfer-Encoding: , chunked", 400, "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked,", 400, "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked, ,", 400, "bad_transfer_encoding"),
    ];
    all_refused(&table);
}

/// RFC 9112 11.2 again, by header lines that some reader repairs, joins or splits.
#[test]
fn two_readings_of_a_line_are_refused() {
    let table = [
        // 5.1: "A server MUST reject, with a response status code of 400, any received request
        // message that contains whitespace between a header field name and colon".
        ("Content-Length : 5", 400, "bad_header_name"),
        ("Transfer-Encoding\t: chunked", 400, "bad_header_name"),
        // 5.2: a server "that receives an obs-fold in a request message" rejects with 400.
        ("X: a\r\n b", 400, "bad_header_name"),
        ("X: a\r\n\tTransfer-Encoding: chunked", 400, "bad_header_name"),
        (" X: a", 400, "bad_header_name"),
        // 2.2: "a recipient of such a bare CR MUST consider that element to be invalid"; a bare LF
        // is what it MAY accept and what we don't.
        ("X: a\rTransfer-Encoding: chunked", 400, "bad_header_value"),
        ("X: a\nTransfer-Encoding: chunked", 400, "bad_line_end"),
        ("X: a\r\r\nY: b", 400, "bad_header_value"),
        // RFC 9110 5.5: "Field values containing CR, LF, or NUL characters are invalid and
        // dangerous".
        ("X: a\0b", 400, "bad_header_value"),
        ("X: a\u{b}b", 400, "bad_header_value"),
        ("X: a\u{7f}b", 400, "bad_header_value"),
        ("X\0: a", 400, "bad_header_name"),
        (": a", 400, "bad_header_name"),
        ("no colon", 400, "bad_header_name"),
        ("X(y): a", 400, "bad_header_name"),
    ];
    all_refused(&table);
}

fn all_refused(table: &[(&str, u16, &'static str)]) {
    for &(fields, status, code) in table {
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
        assert_eq!(refusal(&head), (status, code), "{head:?}");
    }
}

#[test]
fn framing_is_what_the_head_says() {
    let table = [
        ("", BodyFraming::None),
        ("Content-Length: 0\r\n", BodyFraming::None),
        ("content-length: 007\r\n", BodyFraming::Length(7)),
        ("Content-Length:18446744073709551615 \r\n", BodyFraming::Length(u64::MAX)),
        ("Transfer-Encoding: chunked\r\n", BodyFraming::Chunked),
        ("transfer-encoding:\tCHUNKED \r\n", BodyFraming::Chunked),
    ];
    for (fields, framing) in table {
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        assert_eq!(accepted(&head).body, framing, "{head:?}");
    }
}

/// RFC 9112 6.1: "A server or client that receives an HTTP/1.0 message containing a
/// Transfer-Encoding header field MUST treat the message as if the framing is faulty".
#[test]
fn http10_has_no_transfer_encoding() {
    let head = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refusal(head), (400, "bad_transfer_encoding"));
}

/// RFC 9112 3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1
/// request message that lacks a Host header field and to any request message that contains more
/// than one Host header field line or a Host header field with an invalid field value."
#[test]
fn host_is_there_once() {
    let table = [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: \u{e9}\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 0),
        ("GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", 0),
        ("GET / HTTP/1.0\r\n\r\n", 0),
    ];
    for (head, status) in table {
        let code = if status == 0 { "" } else { "bad_host" };
        assert_eq!(refusal(head), (status, code), "{head:?}");
    }
}

#[test]
fn request_lines_are_strict() {
    let table = [
        // http.md 1.1; RFC 9110 15.6.6.
        ("GET / HTTP/2.0\r\n", 505, "version_not_supported"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "version_not_supported"),
        ("GET / HTTP/3", 505, "version_not_supported"),
        ("GET / HTTP/1.2\r\n", 505, "version_not_supported"),
        ("GET / HTTP/0.9\r\n", 505, "version_not_supported"),
        // RFC 9112 2.3: the name is case-sensitive.
        ("GET / http/1.1\r\n", 400, "bad_request_line"),
        ("GET / HTTP/x.1\r\n", 400, "bad_request_line"),
        ("GET / HTTP/1.1 \r\n", 400, "bad_line_end"),
        ("GET / HTTP/1.10\r\n", 400, "bad_line_end"),
        // 3: single spaces, and no HTTP/0.9.
        ("GET /\r\n", 400, "bad_request_line"),
        ("GET  / HTTP/1.1\r\n", 400, "bad_request_line"),
        ("GET /a b HTTP/1.1\r\n", 400, "bad_request_line"),
        ("GET\t/ HTTP/1.1\r\n", 400, "bad_request_line"),
        (" GET / HTTP/1.1\r\n", 400, "bad_request_line"),
        ("G{T / HTTP/1.1\r\n", 400, "bad_request_line"),
        ("GET / HTTP/1.1\n", 400, "bad_line_end"),
        // A TLS handshake on the wrong port.
        ("\u{16}\u{3}\u{1}", 400, "bad_request_line"),
        ("\n", 400, "bad_line_end"),
        ("\rGET", 400, "bad_line_end"),
    ];
    for (head, status, code) in table {
        assert_eq!(refusal(head), (status, code), "{head:?}");
    }
}

/// RFC 9112 3.2, http.md 1.5 and 1.6.
#[test]
fn targets_are_reduced_to_path_and_query() {
    let table = [
        ("GET", "/a?b=%20", Ok("/a?b=%20")),
        ("GET", "//a", Ok("//a")),
        ("GET", "http://h/a?b", Ok("/a?b")),
        ("GET", "HTTPS://H:443/", Ok("/")),
        ("GET", "http://h:80/", Ok("/")),
        // Not the Host's.
        ("GET", "http://h:443/", Err((400, "bad_host"))),
        ("GET", "http://i/", Err((400, "bad_host"))),
        ("GET", "http://h@h/", Err((400, "bad_target"))),
        ("GET", "http://h", Ok("/")),
        ("OPTIONS", "*", Ok("*")),
        ("GET", "*", Err((400, "bad_target"))),
        ("GET", "a", Err((400, "bad_target"))),
        ("GET", "h:80", Err((400, "bad_target"))),
        ("GET", "http:///a", Err((400, "bad_target"))),
        // RFC 9110 4.2.3: "an empty path component is equivalent to an absolute path of "/"".
        ("GET", "http://h?a", Ok("/?a")),
        ("GET", "http://h?a/b", Ok("/?a/b")),
        ("GET", "http://?a", Err((400, "bad_target"))),
        ("GET", "?a", Err((400, "bad_target"))),
        ("GET", "ftp://h/a", Err((400, "bad_target"))),
        ("GET", "/a#b", Err((400, "bad_target"))),
        ("GET", "/\u{e9}", Err((400, "bad_target"))),
        ("GET", "h\u{e9}tp://h/", Err((400, "bad_target"))),
        ("CONNECT", "h:80", Err((501, "connect_unsupported"))),
        ("ABCDEFGHIJKLMNOPQRSTUVWXY", "/", Err((501, "method_unknown"))),
        ("ABCDEFGHIJKLMNOPQRSTUVWX", "/", Ok("/")),
    ];
    for (method, target, result) in table {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        match result {
            Ok(path) => assert_eq!(target::with_path(accepted(&head).target), path),
            Err(refused) => assert_eq!(refusal(&head), refused, "{head:?}"),
        }
    }
}

/// RFC 9112 2.2: a server "SHOULD ignore at least one empty line (CRLF) received prior to the
/// request-line".
#[test]
fn empty_lines_before_the_request_are_skipped() {
    let request = accepted("\r\n\r\nGET /a HTTP/1.0\r\nA: b\r\n\r\n");
    assert_eq!((request.target, request.header("a")), ("/a", Some(b"b".as_slice())));
    assert_eq!(parse("\r\n"), Ok(None));
}

/// RFC 9112 9.3, http.md 3.1.
#[test]
fn persistence_follows_version_and_connection() {
    let table = [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x, CLOSE\r\n", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ];
    for (version, fields, keep_alive) in table {
        let head = format!("GET / HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
        assert_eq!(accepted(&head).keep_alive, keep_alive, "{head:?}");
    }
}

/// RFC 9110 10.1.1, http.md 3.3.
#[test]
fn expectations() {
    let expects = |version: &str, fields: &str| {
        let head = format!("POST / HTTP/{version}\r\nHost: h\r\n{fields}\r\n\r\n");
        parse(&head).map(|request| request.unwrap().expect_continue).map_err(|e| e.status)
    };
    assert_eq!(expects("1.1", "Expect: 100-Continue\r\nContent-Length: 1"), Ok(true));
    assert_eq!(expects("1.1", "Content-Length: 1"), Ok(false));
    assert_eq!(expects("1.1", "Expect: 100-continue"), Ok(false), "no body to wait for");
    assert_eq!(expects("1.0", "Expect: 100-continue\r\nContent-Length: 1"), Ok(false));
    assert_eq!(expects("1.1", "Expect: 200-ok"), Err(417));
}

/// RFC 9110 7.8: "A server MUST ignore an Upgrade header field that is received in an HTTP/1.0
/// request", and one that `Connection` does not name.
#[test]
fn upgrades() {
    let upgrades = |version: &str, fields: &str| {
        let head = format!("GET / HTTP/{version}\r\nHost: h\r\n{fields}\r\n\r\n");
        accepted(&head).upgrade_websocket
    };
    assert!(upgrades("1.1", "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket"));
    assert!(!upgrades("1.1", "Upgrade: websocket"));
    assert!(!upgrades("1.1", "Connection: Upgrade\r\nUpgrade: h2c"));
    assert!(!upgrades("1.0", "Connection: Upgrade\r\nUpgrade: websocket"));
}

/// RFC 9110 7.6.1: "Intermediaries MUST parse a received Connection header field before a message
/// is forwarded and, for each connection-option in this field, remove any header or trailer
/// field(s) from the message with the same name". http.md 3.6.
#[test]
fn fields_of_the_connection_stay_at_the_edge() {
    let request = accepted(
        "POST / HTTP/1.1\r\nHost: h\r\nConnection: x-hop , close\r\nX-Hop: 1\r\nX-End: 2\r\n\
         Content-Length: 1\r\nExpect: 100-continue\r\nTE: trailers\r\nUpgrade: a\r\n\
         Keep-Alive: 5\r\nTrailer: x\r\nProxy-Authorization: x\r\n\r\n",
    );
    let end_to_end: Vec<_> = request.headers.end_to_end().map(|(name, _)| name).collect();
    assert_eq!(end_to_end, ["Host", "X-End"]);
    let options = |count| {
        let options = "a,".repeat(count);
        format!("GET / HTTP/1.1\r\nHost: h\r\nConnection: a\r\nConnection: {options}\r\n\r\n")
    };
    assert_eq!(refusal(&options(15)), (0, ""));
    assert_eq!(refusal(&options(16)), (400, "bad_connection"));
}

/// http.md 1.3, 1.4, 1.8: the limits hold at their very byte, and before the head is complete.
#[test]
fn limits_hold_exactly_and_early() {
    let limits = HeadLimits { request_line_bytes_max: 20, header_bytes_max: 30, headers_max: 2 };
    let status = |head: &str| match parse_request(head.as_bytes(), &limits) {
        Ok(Some(_)) => 200,
        Ok(None) => 0,
        Err(error) => error.status,
    };
    let line = format!("GET /{} HTTP/1.1", "a".repeat(6));
    assert_eq!(line.len(), 20);
    assert_eq!(status(&format!("{line}\r\nHost: h\r\n\r\n")), 200);
    assert_eq!(status(&format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(7))), 414);
    assert_eq!(status(&format!("\r\n{line}\r\nHost: h\r\n\r\n")), 414);
    assert_eq!(status(&"\r\n".repeat(11)), 414);
    assert_eq!(status(&"a".repeat(21)), 0);
    assert_eq!(status(&"a".repeat(22)), 414);
    // "Host: h\r\n" is 9 bytes, "X: \r\n" 5, the last line 2: there is room for 14 more.
    let fields = |bytes| format!("{line}\r\nHost: h\r\nX: {}\r\n\r\n", "b".repeat(bytes));
    assert_eq!(status(&fields(14)), 200);
    assert_eq!(status(&fields(15)), 431);
    assert_eq!(status(&format!("{line}\r\n{}", "b".repeat(29))), 0);
    assert_eq!(status(&format!("{line}\r\n{}", "b".repeat(30))), 431);
    assert_eq!(status(&format!("{line}\r\nHost: h\r\nX: 1\r\n\r\n")), 200);
    assert_eq!(status(&format!("{line}\r\nHost: h\r\nX: 1\r\nY: 2\r\n")), 431);
    assert_eq!(limits.head_bytes_max(), 52);
}

/// http.md 1.10.
#[test]
fn the_first_error_counts() {
    let late = format!("GET / HTTP/1.1\r\nA b\r\nX: {}", "x".repeat(99_999));
    assert_eq!(refusal(&late), (400, "bad_header_name"));
    let early = format!("GET / HTTP/1.1\r\nX: {}\r\nA b\r\n", "x".repeat(99_999));
    assert_eq!(refusal(&early), (431, "headers_too_large"));
}
