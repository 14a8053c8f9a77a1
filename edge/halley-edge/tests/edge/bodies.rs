//! 8.3 to 8.5: bodies that travel in pieces.

use halley_link::{FLAG_END, FLAG_EXPECT, Frame};

use crate::brain::{Brain, Edge, Seen};
use crate::client::Client;

/// Reads REQUEST_BODY frames of a connection until END or until `most` bytes are there.
fn body(brain: &mut Brain, conn: u64, most: usize) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    while all.len() < most {
        match brain.next() {
            Seen::Body(of, flags, bytes) => {
                assert_eq!(of, conn);
                all.extend(bytes);
                if flags & FLAG_END != 0 {
                    return (all, true);
                }
            }
            other => panic!("not REQUEST_BODY: {other:?}"),
        }
    }
    (all, false)
}

fn answered(client: &mut Client, brain: &mut Brain, conn: u64) {
    brain.respond(conn, 200, "done");
    assert_eq!(client.response().body, "done");
}

/// 8.3: "The worker sends at most `request_window_bytes` of body ahead of what REQUEST_CREDIT has
/// given back."
#[test]
fn a_body_keeps_to_its_window() {
    let (edge, mut brain) = Edge::start(&[("request_window_bytes", "1000")]);
    let mut client = edge.api();
    let sent: Vec<u8> = (0..2_500u32).map(|i| i as u8).collect();
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2500\r\n\r\n");
    client.send(&sent);
    let request = brain.request();
    assert_eq!((request.flags, request.body.len()), (0, 0));
    let (mut all, _) = body(&mut brain, request.conn, 1_000);
    brain.expect_silence(50);
    brain.send(&Frame::RequestCredit { conn: request.conn, bytes: 300 });
    let (more, _) = body(&mut brain, request.conn, 300);
    all.extend(more);
    brain.expect_silence(50);
    assert_eq!(all.len(), 1_300);
    for _ in 0..2 {
        brain.send(&Frame::RequestCredit { conn: request.conn, bytes: 600 });
        let (more, end) = body(&mut brain, request.conn, 600);
        all.extend(more);
        assert_eq!(end, all.len() == 2_500);
    }
    assert_eq!(all, sent);
    answered(&mut client, &mut brain, request.conn);
    client.ask("GET", "/next", "");
    assert_eq!(brain.request().target, "/next");
}

/// 8.3: "With EXPECT the window is zero until the first REQUEST_CREDIT, which is when the worker
/// writes `100 Continue`."
#[test]
fn expect_continue() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    let request = brain.request();
    assert_eq!(request.flags, FLAG_EXPECT);
    assert!(request.headers.iter().all(|(name, _)| name != "expect"), "8.2");
    client.expect_silence(50);
    brain.send(&Frame::RequestCredit { conn: request.conn, bytes: 1_000 });
    assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    assert_eq!(body(&mut brain, request.conn, 6), (b"hello".to_vec(), true));
    answered(&mut client, &mut brain, request.conn);
}

/// http.md 3.3: "or by the final response at once".
#[test]
fn expect_is_answered_at_once() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    let conn = brain.request().conn;
    brain.respond(conn, 413, "too large");
    let response = client.response();
    assert_eq!((response.status, response.body.as_str()), (413, "too large"));
    client.expect_end();
}

/// http.md 2.6: a chunked body, cut anywhere, arrives as its data alone.
#[test]
fn a_chunked_body_byte_by_byte() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.socket.set_nodelay(true).unwrap();
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let request = brain.request();
    for byte in b"3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: x\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(body(&mut brain, request.conn, 6), (b"abcde".to_vec(), true));
    answered(&mut client, &mut brain, request.conn);
}

/// link.md 8.9: "The bytes that a worker reads of a body at once are one REQUEST_BODY, however
/// small its chunks are."
#[test]
fn small_chunks_travel_together() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let conn = brain.request().conn;
    client.send(format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(5_000)));
    let (mut all, mut frames) = (0, 0);
    loop {
        let Seen::Body(of, flags, bytes) = brain.next() else { panic!("not a body") };
        assert_eq!(of, conn);
        (all, frames) = (all + bytes.len(), frames + 1);
        if flags & FLAG_END != 0 {
            break;
        }
    }
    assert_eq!(all, 5_000);
    // The kernel may give them in some pieces.
    assert!(frames <= 50, "{frames} frames");
    answered(&mut client, &mut brain, conn);
}

/// The window counts a body's bytes, not those of its chunks' sizes.
#[test]
fn small_chunks_keep_to_the_window() {
    let (edge, mut brain) = Edge::start(&[("request_window_bytes", "100")]);
    let mut client = edge.api();
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let conn = brain.request().conn;
    client.send(format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(250)));
    for round in 0..3 {
        let most = [100, 100, 51][round];
        let (bytes, end) = body(&mut brain, conn, most);
        assert_eq!((bytes.len(), end), ([100, 100, 50][round], round == 2));
        if round < 2 {
            brain.expect_silence(50);
            brain.send(&Frame::RequestCredit { conn, bytes: 100 });
        }
    }
    answered(&mut client, &mut brain, conn);
}

/// http.md 2.6: "else 400 `bad_chunk`"; 8.6.
#[test]
fn a_bad_chunk() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n");
    let conn = brain.request().conn;
    assert_eq!(brain.next(), Seen::Gone(conn));
    let response = client.response();
    assert_eq!(response.status, 400);
    assert!(response.body.contains("bad_chunk"));
    client.expect_end();
}

/// 8.5: "An answer before the end of the body ends the reading: the worker closes the connection
/// after the answer." Also when the answer itself comes in pieces.
#[test]
fn an_answer_before_the_end_of_the_body() {
    let (edge, mut brain) = Edge::start(&[]);
    for pieces in [1, 2] {
        let mut client = edge.api();
        client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\npart");
        let conn = brain.request().conn;
        assert_eq!(body(&mut brain, conn, 4).0, b"part");
        if pieces == 1 {
            brain.respond(conn, 400, "stop it");
        } else {
            brain.response(conn, 400, 0, 7, &[], b"stop");
            client.peek();
            client.send("more");
            brain.expect_silence(50);
            brain.send(&Frame::ResponseBody { conn, flags: FLAG_END, body: b" it" });
        }
        let response = client.response();
        assert_eq!((response.status, response.body.as_str()), (400, "stop it"));
        assert_eq!(response.header("connection"), Some("close"));
        client.expect_end();
    }
    brain.expect_silence(50);
}

/// 8.6, in the middle of a body.
#[test]
fn a_client_that_leaves_in_its_body() {
    let (edge, mut brain) = Edge::start(&[]);
    let mut client = edge.api();
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n");
    let conn = brain.request().conn;
    drop(client);
    assert_eq!(brain.next(), Seen::Gone(conn));
    brain.stat_becomes("requests_in_flight", 0);
}

/// 5, `response_ms_max` and `pace_grace_ms`: who lets the other wait in a body is blamed, 504 the
/// brain, 408 the client.
#[test]
fn a_body_that_stops() {
    let limits = [("request_window_bytes", "10"), ("pace_grace_ms", "150")];
    let (edge, mut brain) = Edge::start(&[limits[0], limits[1], ("response_ms_max", "400")]);
    for (sent, status) in [("hello", 408), ("hello world", 504)] {
        let mut client = edge.api();
        // In one write: the body has begun when its time begins.
        let head = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n";
        client.send(format!("{head}{sent}"));
        let conn = brain.request().conn;
        body(&mut brain, conn, sent.len().min(10));
        assert_eq!(client.response().status, status);
        assert_eq!(brain.next(), Seen::Gone(conn));
    }
}

/// 4.4, 8.3: a large upload passes through a small window.
#[test]
fn a_large_upload() {
    let (edge, mut brain) = Edge::start(&[("request_window_bytes", "30000")]);
    let mut client = edge.api();
    let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    let expected = sent.clone();
    let upload = std::thread::spawn(move || {
        client.send("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        for part in sent.chunks(10_007) {
            client.send(format!("{:x}\r\n", part.len()));
            client.send(part);
            client.send("\r\n");
        }
        client.send("0\r\n\r\n");
        client
    });
    let conn = brain.request().conn;
    let mut all = Vec::new();
    loop {
        let Seen::Body(_, flags, bytes) = brain.next() else { panic!("not a body") };
        brain.send(&Frame::RequestCredit { conn, bytes: bytes.len() as u32 });
        all.extend(bytes);
        if flags & FLAG_END != 0 {
            break;
        }
    }
    assert!(all == expected);
    answered(&mut upload.join().unwrap(), &mut brain, conn);
}
