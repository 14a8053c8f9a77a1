//! http.md 16.12: a user has its part of the requests that wait for the brain, and servers have
//! theirs. 16.13: servers have places for connections.

use std::cell::RefCell;

use crate::brain::{Brain, Edge, Seen, WINDOW};
use crate::client::{Client, sse};
use crate::limits::{from, refusal};
use crate::operations::{heard, refused, say};
use crate::token;
use crate::websocket::open;

/// 2 places for one user, 18 for users together.
const PARTS: [(&str, &str); 3] = [
    ("requests_in_flight_max", "20"),
    ("user_share_percent_max", "10"),
    ("servers_share_percent", "10"),
];

fn settings(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    PARTS.iter().chain(more).copied().collect()
}

/// A user's request whose body is yet to come.
fn begin_as(mut client: Client, query: &str, lines: &str) -> Client {
    client.send(format!(
        "POST /v1/me/events{query} HTTP/1.1\r\nHost: h\r\n{lines}Content-Length: 1000\r\n\r\n"
    ));
    client
}

/// The same, by a token.
fn begin(client: Client, token: &str) -> Client {
    begin_as(client, "", &format!("Authorization: Bearer {token}\r\n"))
}

/// Takes both places of a user by slow bodies. Its next request is refused.
fn take_both(brain: &mut Brain, begin: impl Fn() -> Client) -> Vec<Client> {
    let taken = (0..2).map(|_| {
        let client = begin();
        brain.request();
        client
    });
    let taken = taken.collect();
    refusal(&mut begin(), 429, "too_many_in_flight");
    taken
}

/// 16.12: "One user has at most `user_share_percent_max` percent of them [...] beyond it 429
/// `too_many_in_flight`", from its head until its answer, "also while its body comes". Users
/// together get 503 before the servers' part.
#[test]
fn slow_bodies_of_one_user() {
    let (edge, mut brain) = Edge::start_jwt(&settings(&[]));
    let mallory = token::of("mallory");
    let slow = || begin(edge.public(), &mallory);
    let mut own = take_both(&mut brain, slow);
    // Others get through, until all users together have their part. Then servers alone do.
    let mut others = Vec::new();
    for n in 0..8 {
        let bearer = token::of(&format!("one-of-many{n}"));
        others.extend(take_both(&mut brain, || begin(edge.public(), &bearer)));
    }
    let bob = token::of("bob");
    refusal(&mut begin(edge.public(), &bob), 503, "requests_in_flight_max");
    for _ in 0..2 {
        let mut server = edge.api();
        server.ask("GET", "/v1/history", "");
        let conn = brain.request().conn;
        brain.respond(conn, 200, "{}");
        assert_eq!(server.response().status, 200);
    }
    // A place is free again however its request ends.
    let gone = own.remove(0);
    gone.reset();
    assert!(matches!(brain.next(), Seen::Gone(_)));
    own.push(slow());
    let conn = brain.request().conn;
    brain.respond(conn, 400, "{}");
    assert_eq!(own.last_mut().unwrap().response().status, 400);
    drop(others);
    drop(own);
    let mut left = 17;
    while left > 0 {
        match brain.next() {
            Seen::Gone(_) => left -= 1,
            other => panic!("not REQUEST_GONE: {other:?}"),
        }
    }
    brain.stat_becomes("requests_in_flight", 0);
    brain.stat_becomes("in_flight_by_user_total", 9);
}

/// 16.12: "An operation of a WebSocket is one of these requests."
#[test]
fn operations_of_one_user() {
    let (edge, mut brain) = Edge::start(&settings(&[("limits_exempt", "127.0.0.0/8")]));
    let follow = r#"{"op":"follow","subject":"a","ref":1}"#;
    let mut open_of = |user: &str| open(&edge, &mut brain, user);
    let mut own: Vec<_> = (0..3).map(|_| open_of("mallory")).collect();
    let mut bob = open_of("bob");
    for (client, conn) in &mut own[..2] {
        say(client, follow);
        assert_eq!(brain.request().conn, *conn);
    }
    say(&mut own[2].0, follow);
    let (code, text) = refused(&mut own[2].0);
    assert_eq!(code, "too_many_in_flight");
    assert!(text.contains(r#""retry_after_s":1"#) && text.contains(r#""ref":1"#), "{text}");
    say(&mut bob.0, follow);
    assert_eq!(brain.request().conn, bob.1);
    // The connection stays, and its next operation has the place that an answer gave back.
    brain.respond(own[0].1, 200, "{}");
    heard(&mut own[0].0);
    say(&mut own[2].0, follow);
    assert_eq!(brain.request().conn, own[2].1);
    brain.stat_becomes("in_flight_by_user_total", 1);
}

/// 16.12: "Where the user isn't proven, its address counts in its place, and where that is exempt
/// the user that the request names."
#[test]
fn users_that_anybody_can_name() {
    let (edge, mut brain) = Edge::start(&settings(&[("limits_exempt", "127.0.0.9")]));
    let named = |ip: &str, user: &str| begin_as(from(&edge, ip), &format!("?user={user}"), "");
    let names = RefCell::new(["ann", "bob", "eve"].into_iter());
    let next = || names.borrow_mut().next().unwrap();
    let _of_many_names = take_both(&mut brain, || named("127.0.0.10", next()));
    let _of_exempt = take_both(&mut brain, || named("127.0.0.9", "ann"));
    let _other = named("127.0.0.9", "eve");
    brain.request();
}

/// 16.13: "The last `servers_share_percent` percent of the places [...], 1,000 at most, are for
/// connections to the API listener." 16.5: "Those to the API listener make no room for others."
#[test]
fn connections_of_servers() {
    let settings = [("servers_share_percent", "10")];
    let (edge, mut brain) = Edge::start_with(&["--connections-max", "20"], &settings, WINDOW);
    // One that says nothing yet is there before the clients come.
    let mut first = edge.api();
    brain.stat_becomes("pending_connections", 1);
    let user = |n: usize| format!("user{n}");
    let mut streams: Vec<_> = (0..18).map(|n| sse(&edge, &mut brain, &user(n))).collect();
    for _ in 0..3 {
        refusal(&mut edge.public(), 503, "connections_max");
    }
    brain.stat_becomes("refused_connections_total", 3);
    let mut asks = |client: &mut Client| {
        client.ask("GET", "/v1/history", "");
        let conn = brain.request().conn;
        brain.respond(conn, 200, "{}");
        assert_eq!(client.response().status, 200);
    };
    asks(&mut first);
    let mut second = edge.api();
    asks(&mut second);
    refusal(&mut edge.api(), 503, "connections_max");
    // A server's place is a server's again.
    drop(second);
    brain.stat_becomes("connections", 19);
    refusal(&mut edge.public(), 503, "connections_max");
    let (stream, conn) = streams.remove(0);
    drop(stream);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 1_000)]));
    sse(&edge, &mut brain, "another");
    brain.stat_becomes("pending_connections_dropped_total", 0);
}
