//! http.md 28.2: the parameters of a stream or a poll in a form.

use std::time::Duration;

use crate::brain::{Brain, Edge, Seen, WINDOW};
use crate::client::{Client, SSE_WELCOME, sse};
use crate::limits::refusal;
use crate::operations::ALL;
use crate::pace::drip;
use crate::replaying::json;

const SUBSCRIPTIONS: (&str, &str) = ("subscriptions_per_session_max", "100");
const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// A request with a form, as bytes.
fn post(target: &str, lines: &str, form: &str) -> String {
    let length = form.len();
    format!("POST {target} HTTP/1.1\r\nHost: h\r\n{lines}Content-Length: {length}\r\n\r\n{form}")
}

/// What the brain is told of one session: its subjects, and OPEN's transport and cursor.
fn told(brain: &mut Brain) -> (u64, Vec<String>, u8, String) {
    let Seen::Subscriptions(conn, rights, subjects) = brain.next() else { panic!("no subjects") };
    assert_eq!(rights, ALL);
    let (opened, transport, cursor) = brain.open_behind();
    assert_eq!(opened, conn);
    (conn, subjects, transport, cursor)
}

fn polled(client: &mut Client, brain: &mut Brain, conn: u64) {
    brain.opened_at(conn, 7, "o1");
    brain.live((1, 1, "l1"), &[conn]);
    let body = format!(r#"{{"events":[{}],"cursor":"l1"}}"#, json(1));
    assert_eq!(client.response().body, body);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 7)]));
}

/// "The parameters of `/v1/stream` and `/v1/poll` may stand in the body of a POST": whole with its
/// head or byte by byte, by length or in chunks, what is in the address beside it, and more
/// requests behind it on the same connection.
#[test]
fn a_poll_by_a_form() {
    let (edge, mut brain) = Edge::start(&[SUBSCRIPTIONS]);
    let form = "subject=room%2F7&subject=a+b&cursor=c1&timeout=20";
    let chunked = format!(
        "POST /v1/poll?user=u HTTP/1.1\r\nHost: h\r\n{FORM}Transfer-Encoding: chunked\r\n\r\n\
         5;x=y\r\nsubje\r\n{:x}\r\n{}\r\n0\r\nA: b\r\n\r\n",
        form.len() - 5,
        &form[5..]
    );
    let mut client = edge.public();
    for (request, by) in [
        (post("/v1/poll?user=u", FORM, form), 1_000),
        (post("/v1/poll?user=u", FORM, form), 1),
        (post("/v1/poll", FORM, &format!("user=u&{form}")), 7),
        (chunked.clone(), 1_000),
        (chunked, 1),
    ] {
        for piece in request.as_bytes().chunks(by) {
            client.send(piece);
            if by == 1 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        let (conn, subjects, transport, cursor) = told(&mut brain);
        assert_eq!((subjects, transport), (vec!["room/7".into(), "a b".into()], 5));
        assert_eq!(cursor, "c1");
        brain.replay(conn, &[]);
        brain.last(conn, "c1", &[1], &[]);
        polled(&mut client, &mut brain, conn);
    }
    // Two at once: the second is another session, whose frames and the first one's CLOSE come in
    // any order.
    let both = post("/v1/poll?user=u", FORM, "subject=a").repeat(2);
    client.send(both);
    let (first, ..) = told(&mut brain);
    brain.opened_at(first, 7, "o1");
    brain.live((1, 1, "l1"), &[first]);
    assert_eq!(client.response().status, 200);
    let seen = [brain.next(), brain.next(), brain.next()];
    assert!(seen.contains(&Seen::Close(vec![(first, 7)])), "{seen:?}");
    let second = seen.iter().find_map(|seen| match seen {
        Seen::Subscriptions(conn, _, subjects) => Some((*conn, subjects.clone())),
        _ => None,
    });
    let (second, subjects) = second.unwrap();
    assert_eq!(subjects, ["a"]);
    assert_ne!(first, second);
    polled(&mut client, &mut brain, second);
    // Without a body it is as with GET.
    client.ask("POST", "/v1/poll?user=u&subject=a", "");
    let (third, ..) = told(&mut brain);
    polled(&mut client, &mut brain, third);
}

/// "A hundred subjects of a hundred bytes", which no address holds, on every transport that takes
/// a form.
#[test]
fn more_subjects_than_an_address_holds() {
    let (edge, mut brain) = Edge::start(&[SUBSCRIPTIONS]);
    let all: Vec<String> = (0..100).map(|n| format!("{n:0>100}")).collect();
    let form = format!("user=u&subjects={}", all.join(","));
    for (target, accept, number) in
        [("/v1/stream", "text/event-stream", 1), ("/v1/stream", "application/x-ndjson", 2)]
    {
        let mut client = edge.public();
        client.send(post(target, &format!("{FORM}Accept: {accept}\r\n"), &form));
        let (conn, subjects, transport, _) = told(&mut brain);
        assert_eq!((&subjects, transport), (&all, number));
        brain.opened(conn, 7);
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains(accept), "{head}");
        if number == 1 {
            client.expect_chunk(SSE_WELCOME);
        }
        drop(client);
        assert_eq!(brain.next(), Seen::Close(vec![(conn, 7)]));
    }
    let mut client = edge.public();
    client.send(post("/v1/poll", FORM, &form));
    let (conn, subjects, ..) = told(&mut brain);
    assert_eq!(subjects, all);
    polled(&mut client, &mut brain, conn);
}

/// "with the same errors": an answer doesn't depend on where the parameters stand, and the
/// connection stays.
#[test]
fn a_form_is_refused_as_an_address_is() {
    let (edge, mut brain) = Edge::start(&[SUBSCRIPTIONS]);
    let (mut by_get, mut by_post) = (edge.public(), edge.public());
    for path in ["/v1/stream", "/v1/poll"] {
        for (query, code) in [
            ("", "user_missing"),
            ("user=", "bad_user"),
            ("user=u&user=v", "duplicate_parameter"),
            ("user=u&subject=", "bad_subject"),
            ("user=u&subjects=a,,b", "bad_subject"),
            ("user=u&subjcts=a", "unknown_parameter"),
            ("user=u&since=1", "unknown_cursor"),
            ("user=u&last=3", "bad_last"),
            ("user=u&subject=%zz", "bad_escape"),
            ("user=u&subject=%ff", "bad_text"),
            ("user=u&presence=", "bad_presence"),
            ("user=u&presence=a", if path == "/v1/poll" { "bad_presence" } else { "presence_off" }),
        ] {
            by_get.ask("GET", &format!("{path}?{query}"), "");
            by_post.send(post(path, FORM, query));
            let (get, post) = (by_get.response(), by_post.response());
            assert_eq!((get.status, &get.body), (post.status, &post.body), "{path} {query}");
            assert!(get.body.contains(&format!("\"{code}\"")), "{query}: {}", get.body);
        }
        // In both of them it is there twice.
        by_post.send(post(&format!("{path}?user=u"), FORM, "user=u"));
        assert!(by_post.response().body.contains("\"duplicate_parameter\""));
    }
    by_post.send(post("/v1/poll", FORM, "user=u&subject=a"));
    let (conn, ..) = told(&mut brain);
    polled(&mut by_post, &mut brain, conn);
}

/// "415 `unsupported_media_type`", "400 `bad_form`", "413 `body_too_large`".
#[test]
fn bodies_that_are_no_form() {
    let (edge, mut brain) = Edge::start(&[SUBSCRIPTIONS]);
    let refused = |request: &str, status: u16, code: &str| {
        let mut client = edge.public();
        client.send(request);
        let response = client.response();
        assert_eq!(response.status, status, "{request:?}: {}", response.body);
        assert!(response.body.contains(&format!("\"{code}\"")), "{}", response.body);
    };
    for lines in ["", "Content-Type: application/json\r\n", "Content-Type: text/plain\r\n"] {
        refused(&post("/v1/poll", lines, "user=u"), 415, "unsupported_media_type");
    }
    for form in ["user=u&subject=a b", "user=u\r\n", "user=ü"] {
        refused(&post("/v1/poll", FORM, form), 400, "bad_form");
    }
    let head = |lines: &str| format!("POST /v1/stream HTTP/1.1\r\nHost: h\r\n{FORM}{lines}\r\n");
    // 16.8: before any of it is read; where the end isn't known, as soon as it is more.
    refused(&head("Content-Length: 131073\r\n"), 413, "body_too_large");
    let chunk = format!("8000\r\n{}\r\n", "a".repeat(32_768));
    let long = format!("{}{}", head("Transfer-Encoding: chunked\r\n"), chunk.repeat(4));
    refused(&format!("{long}1\r\na"), 413, "body_too_large");
    refused(&head("Transfer-Encoding: chunked\r\n\r\nx"), 400, "bad_chunk");
    for path in ["/v1/ws?user=u", "/test/u"] {
        refused(&post(path, FORM, "user=u"), 405, "method_not_allowed");
    }
    brain.expect_silence(50);
}

/// 3.3: "answered by `100 Continue` when the body is wanted, or by the final response at once".
#[test]
fn a_form_that_waits_for_continue() {
    let (edge, mut brain) = Edge::start(&[SUBSCRIPTIONS]);
    let head = |length: usize| {
        format!(
            "POST /v1/poll?user=u HTTP/1.1\r\nHost: h\r\n{FORM}Expect: 100-continue\r\n\
             Content-Length: {length}\r\n\r\n"
        )
    };
    let mut client = edge.public();
    client.send(head(9));
    assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("subject=a");
    let (conn, subjects, ..) = told(&mut brain);
    assert_eq!(subjects, ["a"]);
    polled(&mut client, &mut brain, conn);
    client.send(head(1_000_000));
    assert_eq!(client.response().status, 413);
}

/// 16.6: "Else 408 `body_too_slow`", and a client that leaves in the middle leaves nothing.
#[test]
fn a_form_that_does_not_end() {
    let settings = [("pace_grace_ms", "500"), ("pace_bytes_per_s_min", "1000"), SUBSCRIPTIONS];
    let (edge, mut brain) = Edge::start(&settings);
    let begun = post("/v1/poll?user=u", FORM, "subject=a").replace("Length: 9", "Length: 10");
    let mut client = edge.public();
    client.send(&begun);
    let response = client.response();
    assert_eq!(response.status, 408);
    assert!(response.body.contains("\"body_too_slow\""), "{}", response.body);
    brain.stat_becomes("slow_bodies_total", 1);
    assert_eq!(brain.stat("form_bytes"), 0);
    // "and being fast is not saved up": a byte now and then is not the pace.
    let mut client = edge.public();
    client.send(begun.replace("Length: 10", "Length: 1000"));
    let mut reader = Client::of(client.socket.try_clone().unwrap());
    let dripping = std::thread::spawn(move || drip(&mut client, 20, 20_000));
    assert_eq!(reader.response().status, 408);
    drop(reader);
    dripping.join().unwrap();
    let mut client = edge.public();
    client.send(&begun);
    drop(client);
    brain.expect_silence(100);
}

/// 28.2: "Forms that wait for their rest have 16 MiB together in each worker": one more is refused,
/// one that comes whole isn't, and there is room again for each that ends, in whatever way.
#[test]
fn forms_that_wait_have_a_bound() {
    let (edge, mut brain) = Edge::start(&[("pace_grace_ms", "600000"), SUBSCRIPTIONS]);
    // Whole it is refused: its user is there twice.
    let form = format!("user={}", "a".repeat(131_067));
    let whole = post("/v1/poll?user=u", FORM, &form);
    let bytes = whole.len() as u64;
    let begin = || {
        let mut client = edge.public();
        client.send(&whole[..whole.len() - 1]);
        client
    };
    let mut waiting: Vec<Client> = (0..127).map(|_| begin()).collect();
    brain.stat_becomes("form_bytes", 127 * bytes);
    for refused in 1..=3 {
        let response = refusal(&mut begin(), 503, "forms_bytes_max");
        assert!(response.body.contains("name the subjects in the address"), "{}", response.body);
        brain.stat_becomes("forms_refused_total", refused);
        assert_eq!(brain.stat("form_bytes"), 127 * bytes);
    }
    let mut other = edge.public();
    other.send(post("/v1/poll?user=u", FORM, "subject=a"));
    let (conn, ..) = told(&mut brain);
    polled(&mut other, &mut brain, conn);
    // Less than a step of places is left: who asks first is answered before any of it comes.
    let head = whole.len() - form.len();
    let left = 16_777_216 - 127 * whole.len() - head;
    let mut filler = edge.public();
    filler.send(&whole[..head + left / 1_024 * 1_024]);
    brain.stat_becomes("form_bytes", 127 * bytes + (head + left / 1_024 * 1_024) as u64);
    let mut asking = edge.public();
    let lines = format!("{FORM}Expect: 100-continue\r\nPadding: {}\r\n", "a".repeat(1_024));
    asking.send(post("/v1/poll?user=u", &lines, "subject=a").strip_suffix("subject=a").unwrap());
    refusal(&mut asking, 503, "forms_bytes_max");
    filler.reset();
    brain.stat_becomes("form_bytes", 127 * bytes);
    // One is whole, one leaves, and the others' connections are reset.
    let mut last = waiting.pop().unwrap();
    last.send("a");
    assert_eq!(last.response().status, 400);
    brain.stat_becomes("form_bytes", 126 * bytes);
    drop(waiting.pop());
    brain.stat_becomes("form_bytes", 125 * bytes);
    waiting.drain(..100).for_each(Client::reset);
    brain.stat_becomes("form_bytes", 25 * bytes);
    waiting.extend((0..102).map(|_| begin()));
    brain.stat_becomes("form_bytes", 127 * bytes);
    refusal(&mut begin(), 503, "forms_bytes_max");
    waiting.into_iter().for_each(Client::reset);
    brain.stat_becomes("form_bytes", 0);
    assert_eq!(brain.stat("forms_refused_total"), 5);
}

/// 16.5: "A connection that has not sent a whole request yet is *pending*", and a form is a part of
/// its request.
#[test]
fn who_sends_a_form_is_pending() {
    let settings =
        [("pending_connections_percent_max", "50"), ("pace_grace_ms", "600000"), SUBSCRIPTIONS];
    let (edge, mut brain) = Edge::start_with(&["--connections-max", "8"], &settings, WINDOW);
    let begun = post("/v1/poll?user=u", FORM, "subject=a").replace("Length: 9", "Length: 10");
    let mut slow: Vec<Client> = (0..4).map(|_| edge.public()).collect();
    slow.iter_mut().for_each(|client| client.send(&begun));
    brain.stat_becomes("form_bytes", 4 * (begun.len() as u64 + 1));
    brain.stat_becomes("pending_connections", 4);
    let (_ann, _) = sse(&edge, &mut brain, "ann");
    slow.remove(0).expect_end();
    brain.stat_becomes("pending_connections_dropped_total", 1);
    brain.stat_becomes("pending_connections", 3);
    let mut whole = slow.remove(0);
    whole.send("a");
    let (conn, subjects, ..) = told(&mut brain);
    assert_eq!(subjects, ["aa"]);
    brain.stat_becomes("pending_connections", 2);
    polled(&mut whole, &mut brain, conn);
    slow.into_iter().for_each(Client::reset);
    brain.stat_becomes("pending_connections", 0);
    assert_eq!(brain.stat("form_bytes"), 0);
}

/// 6.3, 6.4: a preflight names POST where there is one, and a page of another origin is refused.
#[test]
fn forms_of_pages() {
    let (edge, mut brain) = Edge::start(&[("cors_origins", "https://app.example"), SUBSCRIPTIONS]);
    let mut client = edge.public();
    let asks = "Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n";
    for (path, methods) in [
        ("/v1/stream", "GET, HEAD, POST, OPTIONS"),
        ("/v1/poll", "GET, HEAD, POST, OPTIONS"),
        ("/v1/ws", "GET, HEAD, OPTIONS"),
        ("/test/u", "GET, HEAD, OPTIONS"),
    ] {
        client.ask("OPTIONS", path, asks);
        let response = client.response();
        assert_eq!(response.header("access-control-allow-methods"), Some(methods), "{path}");
        client.ask("DELETE", path, "");
        let response = client.response();
        assert_eq!((response.status, response.header("allow")), (405, Some(methods)), "{path}");
    }
    let mut other = edge.public();
    let lines = format!("{FORM}Origin: https://evil.example\r\n");
    other.send(post("/v1/poll", &lines, "user=u&subject=a"));
    assert_eq!(other.response().status, 403);
    let lines = format!("{FORM}Origin: https://app.example\r\n");
    client.send(post("/v1/poll", &lines, "user=u&subject=a"));
    let (conn, ..) = told(&mut brain);
    brain.opened_at(conn, 7, "o1");
    brain.live((1, 1, "l1"), &[conn]);
    let response = client.response();
    let allowed = response.header("access-control-allow-origin");
    assert_eq!((response.status, allowed), (200, Some("https://app.example")));
}
