//! Clause 8 and http.md 1 to 6: requests that the brain or the edge itself answers.

use std::thread::sleep;
use std::time::Duration;

use halley_link::{FLAG_CLOSE, FLAG_END, Frame};

use crate::brain::{Edge, Seen};

/// 8.1: "Every HTTP request that the edge doesn't answer itself travels as REQUEST." 8.2: "Header
/// names are lower case. Of a client's headers those travel that the brain reads". 8.3: "With END
/// the body is whole."
#[test]
fn a_request_and_its_answer() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.send(
        "POST /v1/events?a=b HTTP/1.1\r\nHost: h\r\nCONTENT-Type: One\r\nContent-Length: 4\r\n\
         X-Thing: 1\r\nConnection: if-none-match\r\nIf-None-Match: 1\r\n\r\nbody",
    );
    let request = brain.request();
    assert_eq!((request.listener, request.flags), (2, FLAG_END));
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/events?a=b"));
    let headers = [("host".into(), "h".into()), ("content-type".into(), "One".into())];
    assert_eq!((request.headers.as_slice(), request.body.as_slice()), (&headers[..], &b"body"[..]));
    let answer = [("content-type", "text/plain"), ("x-a", "one\r\nx-b: two"), ("bad name", "x")];
    brain.response(request.conn, 201, FLAG_END, 2, &answer, b"ok");
    let response = client.response();
    assert_eq!((response.status, response.body.as_str()), (201, "ok"));
    assert_eq!(response.header("content-type"), Some("text/plain"));
    assert_eq!(response.header("x-a"), Some("one  x-b: two"), "http.md 5.5");
    assert!(response.header("x-b").is_none() && response.header("bad name").is_none());
    client.ask("GET", "/next", "");
    assert_eq!(brain.request().target, "/next", "http.md 3.1: the connection stays");
}

/// 12.6: "Headers whose names begin with `halley-` never travel from clients, from no listener".
#[test]
fn headers_that_only_the_edge_may_say() {
    let (edge, mut brain) = Edge::start(&[]);
    let head = "GET /v1/events HTTP/1.1\r\nHost: h\r\nHalley-User: bob\r\n\
                halley-rights: {\"publish\":[\"*\"]}\r\nX-Halley: 1\r\n\r\n";
    for mut client in [edge.api(), edge.public()] {
        client.send(head);
        let request = brain.request();
        let names: Vec<_> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["host"]);
    }
}

/// 8.2: "Of a client's headers those travel that the brain reads", on each listener its own.
#[test]
fn headers_that_the_brain_reads() {
    let (edge, mut brain) = Edge::start(&[]);
    let head = "GET /v1/x HTTP/1.1\r\nHost: h\r\nContent-Type: t\r\nAuthorization: Bearer k\r\n\
                Origin: o\r\nIf-None-Match: e\r\nX-Halley-Demo: act\r\nAccept: a\r\nCookie: c\r\n\
                ACCEPT-Encoding: gzip\r\nUser-Agent: u\r\nX-Forwarded-For: ::1\r\n\r\n";
    for (mut client, read) in [
        (edge.api(), "host content-type authorization if-none-match accept-encoding"),
        (edge.public(), "host content-type origin x-halley-demo"),
    ] {
        client.send(head);
        let request = brain.request();
        let names: Vec<_> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.join(" "), read);
    }
}

/// http.md 3.2: "Requests may be pipelined; they are answered in their order, one at a time".
#[test]
fn pipelined_requests() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    let preflight = "OPTIONS /p HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: GET\r\n\r\n";
    let get = |path| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.send(format!("{}{preflight}{}{}", get("/1"), get("/2"), get("/3")));
    for path in ["/1", "/2", "/3"] {
        let request = brain.request();
        assert_eq!(request.target, path);
        brain.expect_silence(30);
        brain.respond(request.conn, 200, path);
    }
    assert_eq!(client.response().body, "/1");
    assert_eq!(client.response().status, 204);
    assert_eq!(client.response().body, "/2");
    assert_eq!(client.response().body, "/3");
}

/// http.md 3.4, 5.2: a bad request behind an answered HEAD gets its error, with a body.
#[test]
fn a_bad_request_behind_a_good_one() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.send("HEAD /1 HTTP/1.1\r\nHost: h\r\n\r\nGET  /2 HTTP/1.1\r\n\r\n");
    let conn = brain.request().conn;
    brain.respond(conn, 200, "body of HEAD");
    assert!(client.head().contains("\r\nContent-Length: 12\r\n"));
    let response = client.response();
    assert_eq!(response.status, 400);
    assert!(response.body.starts_with(r#"{"error":{"code":"#), "{}", response.body);
    client.expect_end();
}

/// 8.4: "RESPONSE and, without END, RESPONSE_BODY frames. `body_bytes` is the length of the whole
/// body."
#[test]
fn an_answer_in_several_frames() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.ask("GET", "/large", "");
    let conn = brain.request().conn;
    brain.response(conn, 200, 0, 9, &[], b"abc");
    brain.send(&Frame::ResponseBody { conn, flags: 0, body: b"def" });
    brain.send(&Frame::ResponseBody { conn, flags: FLAG_END, body: b"ghi" });
    assert_eq!(client.response().body, "abcdefghi");
    client.ask("GET", "/next", "");
    assert_eq!(brain.request().target, "/next");
}

/// 8.4: a body that is not as long as it says can't be told from its beginning by the client, but
/// by the connection's end.
#[test]
fn an_answer_of_another_length() {
    let (edge, mut brain) = Edge::start(&[]);
    for (flags, body) in [(FLAG_END, &b"de"[..]), (0, &b"defgh"[..])] {
        let mut client = edge.api();
        client.ask("GET", "/large", "");
        let conn = brain.request().conn;
        brain.response(conn, 200, 0, 6, &[], b"abc");
        brain.send(&Frame::ResponseBody { conn, flags, body });
        assert_eq!(brain.next(), Seen::Gone(conn));
        let rest = String::from_utf8(client.rest()).unwrap();
        assert!(rest.is_empty() || rest.ends_with("abc"), "{rest}");
    }
    brain.stat_becomes("requests_in_flight", 0);
}

/// 8.4: "For HEAD the edge drops the body." http.md 5.1: 204 and 304 have none.
#[test]
fn answers_without_a_body() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304)] {
        client.ask(method, "/x", "");
        let conn = brain.request().conn;
        brain.response(conn, status, 0, 8, &[], b"drop");
        brain.send(&Frame::ResponseBody { conn, flags: FLAG_END, body: b"this" });
        let head = client.head();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert_eq!(head.contains("Content-Length: 8"), status == 200, "{head}");
    }
    client.expect_silence(50);
}

/// A client of keep-alive asks again when it has the head of an answer that has no body for it,
/// before the edge has the end of it.
#[test]
fn asked_again_before_the_end_of_what_has_no_body() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.ask("HEAD", "/x", "");
    for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304), ("GET", 200)] {
        let conn = brain.request().conn;
        if status == 200 && method == "GET" {
            brain.respond(conn, status, "ok");
            break;
        }
        brain.response(conn, status, 0, 8, &[], b"drop");
        client.head();
        client.ask("GET", "/x", "");
        sleep(Duration::from_millis(50));
        brain.send(&Frame::ResponseBody { conn, flags: FLAG_END, body: b"this" });
    }
    assert_eq!(client.response().body, "ok");
}

/// 2.6: "bit 1 CLOSE (RESPONSE: close the connection after it)". http.md 3.1: "it says so".
#[test]
fn the_brain_may_close() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.ask("GET", "/x", "");
    let conn = brain.request().conn;
    brain.response(conn, 200, FLAG_END | FLAG_CLOSE, 1, &[], b"x");
    assert_eq!(client.response().header("connection"), Some("close"));
    client.expect_end();
}

/// 8.6: "REQUEST_GONE reports that the client left; the brain sends nothing more for it, and frames
/// on their way are skipped."
#[test]
fn a_client_that_leaves_before_the_answer() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.ask("GET", "/x", "");
    let conn = brain.request().conn;
    client.reset();
    assert_eq!(brain.next(), Seen::Gone(conn));
    brain.respond(conn, 200, "late");
    brain.stat_becomes("requests_in_flight", 0);
    brain.stat_becomes("connections", 0);
}

/// http.md 3.4: a client that closes its side after the request still gets its answer.
#[test]
fn a_client_that_has_said_all() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.ask("GET", "/x", "");
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    let conn = brain.request().conn;
    brain.respond(conn, 200, "answer");
    assert_eq!(client.response().body, "answer");
    client.expect_end();
}

/// 5, `response_ms_max`: "how long the brain may take for an answer before 504".
#[test]
fn a_brain_that_does_not_answer() {
    let (edge, mut brain) = Edge::start(&[("response_ms_max", "150")]);
    let mut client = edge.api();
    client.ask("GET", "/x", "");
    let conn = brain.request().conn;
    assert_eq!(client.response().status, 504);
    client.expect_end();
    assert_eq!(brain.next(), Seen::Gone(conn));
}

/// 5, `requests_in_flight_max`: "beyond it 503". http.md 5.4: "503 has `Retry-After`".
#[test]
fn too_many_requests_in_flight() {
    let (edge, mut brain) = Edge::start(&[("requests_in_flight_max", "1")]);
    let (mut one, mut two) = (edge.api(), edge.api());
    one.ask("GET", "/1", "");
    let conn = brain.request().conn;
    two.ask("GET", "/2", "");
    let response = two.response();
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    brain.respond(conn, 200, "1");
    assert_eq!(one.response().body, "1");
    two.ask("GET", "/3", "");
    assert_eq!(brain.request().target, "/3");
}

/// http.md 5.4: "405 has `Allow`". An unknown path is the brain's to answer.
#[test]
fn wrong_methods_and_unknown_paths() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.public();
    for path in ["/v1/ws?user=u", "/test/u"] {
        client.ask("DELETE", path, "");
        let response = client.response();
        assert_eq!((response.status, response.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    }
    client.ask("GET", "/nowhere", "");
    let request = brain.request();
    assert_eq!((request.listener, request.target.as_str()), (1, "/nowhere"));
    brain.respond(request.conn, 404, "{}");
    assert_eq!(client.response().status, 404);
    let mut client = edge.api();
    client.ask("GET", "/v1/stream?user=u", "");
    assert_eq!(brain.request().target, "/v1/stream?user=u", "streams are for the public listener");
}

/// http.md 5.3, 4.2 and the contract: what a stream's request lacks is said.
#[test]
fn requests_for_streams_that_are_wrong() {
    let (edge, _brain) = Edge::start(&[]);
    let mut client = edge.public();
    let long = format!("/v1/stream?user={}", "x".repeat(256));
    let cases = [
        ("/v1/stream", "", 400, "user_missing"),
        ("/v1/stream?user=", "", 400, "bad_user"),
        (&long, "", 400, "bad_user"),
        ("/test/", "", 400, "bad_user"),
        ("/v1/stream?user=a&user=b", "", 400, "duplicate_parameter"),
        ("/v1/stream?user=%ff", "", 400, "bad_text"),
        ("/v1/stream?user=u", "Accept: image/png\r\n", 406, "not_acceptable"),
    ];
    for (target, lines, status, code) in cases {
        client.ask("GET", target, lines);
        let response = client.response();
        assert_eq!(response.status, status, "{target}");
        assert!(response.body.contains(&format!("\"code\":\"{code}\"")), "{}", response.body);
    }
    client.send("GET /v1/stream?user=u HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(client.response().status, 400);
    client.expect_end();
}

/// http.md 6.2, 6.3: "an origin in it is repeated, another gets no such header"; "OPTIONS gets 204
/// with `Allow` and, for an origin that is allowed, the answer to a preflight".
#[test]
fn origins() {
    let (edge, mut brain) = Edge::start(&[("cors_origins", "https://app.example")]);
    let mut client = edge.api();
    for (origin, allowed) in [("https://app.example", true), ("https://evil.example", false)] {
        let granted = allowed.then_some(origin);
        let refused = (!allowed).then_some("cors.origins lacks https://evil.example");
        let lines = format!("Origin: {origin}\r\nAccess-Control-Request-Method: POST\r\n");
        client.ask("OPTIONS", "/v1/events", &lines);
        let response = client.response();
        assert_eq!(response.status, 204);
        assert_eq!(response.header("access-control-allow-origin"), granted);
        assert_eq!(response.header("access-control-allow-methods").is_some(), allowed);
        assert_eq!(response.header("halley-refused"), refused);
        client.ask("GET", "/x", &format!("Origin: {origin}\r\n"));
        let conn = brain.request().conn;
        let forged = [("access-control-allow-origin", "*")];
        brain.response(conn, 200, FLAG_END, 0, &forged, b"");
        let response = client.response();
        assert_eq!(response.header("access-control-allow-origin"), granted);
        let exposed = allowed.then_some("retry-after");
        assert_eq!(response.header("access-control-expose-headers"), exposed);
        assert_eq!(response.header("halley-refused"), refused);
        assert_eq!(response.header("vary"), Some("Origin"));
    }
}

/// http.md 6.4: "A request with the `Origin` of a page of another origin, which isn't in the list
/// either, is refused with 403 `origin_not_allowed` when it […] has another method than GET, HEAD
/// and OPTIONS"; "`null` and two `Origin` headers are never the same".
#[test]
fn foreign_pages_change_nothing() {
    let (edge, mut brain) = Edge::start(&[("cors_origins", "https://app.example")]);
    for lines in [
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: http://h:81\r\n",
        "Origin: http://h.evil.example\r\n",
        "Origin: \r\n",
        "Origin: http://h\r\nOrigin: http://h\r\n",
    ] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let mut client = edge.api();
            client.ask(method, "/v1/events", lines);
            let response = client.response();
            assert_eq!(response.status, 403, "{method} {lines}");
            assert!(response.body.contains("origin_not_allowed"));
            assert!(response.header("halley-refused").is_some());
        }
    }
    for lines in
        ["Origin: https://app.example\r\n", "Origin: http://h\r\n", "Origin: https://h\r\n", ""]
    {
        let mut client = edge.api();
        client.ask("POST", "/v1/events", lines);
        let conn = brain.request().conn;
        brain.response(conn, 200, FLAG_END, 0, &[], b"");
        let response = client.response();
        assert_eq!((response.status, response.header("halley-refused")), (200, None), "{lines}");
    }
    brain.stat_becomes("origins_refused_total", 24);
}

/// http.md 6.5: "`Halley-Refused: cors.origins lacks <origin>`", on streams, polls and WebSockets,
/// and "one of more than 255 bytes, or with others than visible ASCII, isn't repeated".
#[test]
fn who_looks_is_told_why_a_page_is_not_let_in() {
    let (edge, _brain) = Edge::start(&[]);
    let long = format!("http://{}", "a".repeat(249));
    let fits = &long[..255];
    for (origin, named) in [
        ("http://localhost:3000", "http://localhost:3000"),
        ("null", "null"),
        (fits, fits),
        (&long, "this page's origin"),
        ("http://a\u{e9}", "this page's origin"),
        ("http://a b", "this page's origin"),
    ] {
        for path in ["/v1/stream?user=a", "/v1/poll?user=a", "/v1/ws?user=a"] {
            let mut client = edge.public();
            client.ask("HEAD", path, &format!("Origin: {origin}\r\n"));
            let response = client.head();
            let line = format!("\r\nHalley-Refused: cors.origins lacks {named}\r\n");
            assert!(response.contains(&line), "{path}: {response}");
            assert!(response.contains("\r\nVary: Origin\r\n"), "{path}: {response}");
        }
    }
}
