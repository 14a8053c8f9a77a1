//! Clause 14: a session's subscriptions are sent before its OPEN, and again to the next brain.

use crate::brain::{Brain, Edge, Seen, WINDOW};
use crate::operations::{ALL, header, heard, refused, say};
use crate::replaying::sse_json;
use crate::token;
use crate::websocket::open;

const NOBODY: u32 = u32::MAX;
const SUBSCRIPTIONS: (&str, &str) = ("subscriptions_per_session_max", "100");

fn subscriptions(conn: u64, rights: &str, subjects: &[&str]) -> Seen {
    let subjects = subjects.iter().map(|subject| (*subject).to_owned()).collect();
    Seen::Subscriptions(conn, rights.to_owned(), subjects)
}

/// The next brain's sync: what it is told before and with OPEN.
fn sync(edge: &Edge, brain: Brain) -> (Brain, Vec<Seen>) {
    sync_with(edge, brain, &[SUBSCRIPTIONS])
}

fn sync_with(edge: &Edge, brain: Brain, settings: &[(&str, &str)]) -> (Brain, Vec<Seen>) {
    drop(brain);
    let mut brain = edge.dial();
    brain.hello(settings, WINDOW);
    let mut told = Vec::new();
    loop {
        match brain.next() {
            Seen::HelloEdge { .. } | Seen::SyncBegin(_) => {}
            Seen::SyncEnd => return (brain, told),
            seen => told.push(seen),
        }
    }
}

/// 14.1: "before the OPEN that names it"; 14.3: "Empty rights mean that a brain has granted the
/// subjects before"; 14.4.
#[test]
fn said_to_each_brain() {
    let (edge, mut brain) = Edge::start(&[SUBSCRIPTIONS]);
    let mut client = edge.public();
    client.ask("GET", "/v1/stream?user=ann&subjects=room/7,a+b&subject=a%2Cb&subject=room/7", "");
    let said = ["room/7", "a b", "a,b"];
    let Seen::Subscriptions(conn, rights, subjects) = brain.next() else { panic!("none") };
    assert_eq!((rights.as_str(), &subjects[..]), (ALL, &said.map(String::from)[..]));
    assert_eq!(brain.open(), (conn, 1, "ann".into()));
    // It isn't opened yet, so this brain has granted nothing.
    let (mut brain, told) = sync(&edge, brain);
    let open = Seen::Open(vec![(conn, 1, "ann".into())]);
    assert_eq!(told, [subscriptions(conn, ALL, &said), open.clone()]);
    brain.opened(conn, 7);
    client.head();
    client.expect_chunk(crate::client::SSE_WELCOME);
    let (mut brain, told) = sync(&edge, brain);
    assert_eq!(told, [subscriptions(conn, "", &said), open]);
    brain.opened(conn, 8);
    brain.live((1, 3, "l3"), &[conn]);
    client.expect_chunk(&sse_json(3, "l3"));
    drop(client);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, 8)]));
    let (_brain, told) = sync(&edge, brain);
    assert_eq!(told, []);
}

/// 14.5: what was answered well is said again; what was refused, or never answered, isn't.
#[test]
fn changes_that_were_answered() {
    let (edge, mut brain) = Edge::start(&[SUBSCRIPTIONS]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    for (op, subject, method, status) in [
        ("subscribe", "a", "PUT", 200),
        ("subscribe", "b", "PUT", 403),
        ("subscribe", "c", "PUT", 200),
        ("unsubscribe", "a", "DELETE", 200),
        ("unsubscribe", "c", "DELETE", 503),
    ] {
        say(&mut client, &format!(r#"{{"op":"{op}","subject":"{subject}"}}"#));
        let request = brain.request();
        assert_eq!((request.conn, request.method.as_str()), (conn, method));
        assert_eq!(request.target, format!("/v1/me/subscriptions/{subject}"));
        brain.respond(conn, status, r#"{"added":1}"#);
        heard(&mut client);
    }
    say(&mut client, r#"{"op":"subscribe","subject":"d"}"#);
    brain.request();
    let (_brain, told) = sync(&edge, brain);
    let open = Seen::Open(vec![(conn, 3, "ann".into())]);
    assert_eq!(told, [subscriptions(conn, "", &["c"]), open]);
    assert_eq!(refused(&mut client).0, "brain_away");
}

/// 19.1, 19.2: whom a session may see is said with what it asks, and again to each brain that knows
/// of it; to one of a build before nothing is said that would have it tell more.
#[test]
fn whom_a_session_may_see() {
    let settings = [SUBSCRIPTIONS, ("presence", "on"), ("presence_views", "on")];
    let (edge, mut brain) = Edge::start_jwt(&settings);
    let rights = r#"{"presence":["room/*"]}"#;
    let token = token::with_rights("ann", rights);
    let mut client = edge.public();
    client.ask("GET", &format!("/v1/stream?presence=*&token={token}"), "");
    let said = ["\u{1}*", "\u{4}\u{0}\u{6}room/*"];
    let Seen::Subscriptions(conn, told, subjects) = brain.next() else { panic!("none") };
    assert_eq!((told.as_str(), &subjects[..]), (rights, &said.map(String::from)[..]));
    assert_eq!(brain.open(), (conn, 1, "ann".into()));
    brain.opened(conn, 7);
    client.head();
    let open = Seen::Open(vec![(conn, 1, "ann".into())]);
    let jwt = ("auth_mode", "jwt");
    let (brain, told) = sync_with(&edge, brain, &[jwt, settings[0], settings[1], settings[2]]);
    assert_eq!(told, [subscriptions(conn, "", &said), open.clone()]);
    let (_brain, told) = sync_with(&edge, brain, &[jwt, settings[0], settings[1]]);
    assert_eq!(told, [subscriptions(conn, "", &[]), open]);
}

/// 14.2; http.md 21.6: a stream of nobody says its subjects, a WebSocket may do so later.
#[test]
fn visitors() {
    let (edge, mut brain) = Edge::start(&[SUBSCRIPTIONS]);
    let mut client = edge.public();
    client.ask("GET", "/v1/stream", "");
    assert_eq!(client.response().status, 400);
    client.ask("GET", "/v1/stream?subjects=news", "");
    let Seen::Subscriptions(conn, ..) = brain.next() else { panic!("none") };
    assert_eq!(brain.open(), (conn, 1, String::new()));
    brain.opened(conn, NOBODY);
    client.head();
    drop(client);
    assert_eq!(brain.next(), Seen::Close(vec![(conn, NOBODY)]));
    let mut client = edge.public();
    client.ask("GET", "/v1/ws", crate::websocket::UPGRADE);
    let seen = brain.next();
    let Seen::Subscriptions(conn, ..) = &seen else { panic!("{seen:?}") };
    assert_eq!(seen, subscriptions(*conn, ALL, &[]));
    let conn = *conn;
    brain.open();
    brain.opened(conn, NOBODY);
    client.head();
    say(&mut client, r#"{"op":"subscribe","subject":"news"}"#);
    let request = brain.request();
    assert_eq!((header(&request, "halley-user"), header(&request, "halley-rights")), ("", ALL));
    brain.close_sessions("enough", &[conn]);
    assert_eq!(brain.reasons.get(&conn), None);
}

/// 14.4: a brain of a build before is asked for nothing that it doesn't know.
#[test]
fn a_brain_that_knows_none() {
    let (edge, _brain) = Edge::start(&[]);
    for (target, status) in [("/v1/stream?subjects=a", 400), ("/v1/stream?user=u&subject=a", 503)] {
        let mut client = edge.public();
        client.ask("GET", target, "");
        assert_eq!(client.response().status, status, "{target}");
    }
}

/// 16.1 to 16.3; http.md 23: a state that was answered well is said again, in pieces beside the
/// subjects, and to no brain of a build before.
#[test]
fn states_that_were_answered() {
    let (edge, mut brain) = Edge::start(&[SUBSCRIPTIONS]);
    let (mut client, conn) = open(&edge, &mut brain, "ann");
    for (data, status) in [("{\"mood\":\n1}", 200), ("\"no\"", 413)] {
        say(&mut client, &format!(r#"{{"op":"state","data":{data}}}"#));
        let request = brain.request();
        assert_eq!((request.conn, request.method.as_str()), (conn, "PUT"));
        assert_eq!(request.target, "/v1/me/state");
        assert_eq!(header(&request, "halley-user"), "ann");
        brain.respond(conn, status, "{}");
        heard(&mut client);
    }
    let open = Seen::Open(vec![(conn, 3, "ann".into())]);
    let states = [SUBSCRIPTIONS, ("session_state_bytes_max", "1024")];
    let (mut brain, told) = sync_with(&edge, brain, &states);
    let Seen::Subscriptions(_, rights, pieces) = &told[0] else { panic!("{told:?}") };
    assert_eq!((rights.as_str(), pieces.len(), &told[1..]), ("", 1, &[open.clone()][..]));
    assert!(pieces[0].starts_with("\u{2}\0") && pieces[0].ends_with("{\"mood\":1}"), "{pieces:?}");
    brain.opened(conn, 7);
    let (mut brain, told) = sync(&edge, brain);
    assert_eq!(told, [subscriptions(conn, "", &[]), open.clone()]);
    brain.opened(conn, 7);
    say(&mut client, r#"{"op":"state","data":null}"#);
    brain.request();
    brain.respond(conn, 200, "{}");
    heard(&mut client);
    let (_brain, told) = sync_with(&edge, brain, &states);
    assert_eq!(told, [open]);
}
