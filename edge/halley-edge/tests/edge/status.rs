//! Clause 17: sessions of the API listener that follow the brain's status.

use crate::brain::{Edge, Seen, WINDOW};
use crate::replaying::sse_json;

const STATUS: (&str, &str) = ("status_readers_max", "256");
const SETTINGS: [(&str, &str); 3] =
    [("subscriptions_per_session_max", "100"), ("last_events_max", "100"), STATUS];
const TARGET: &str = "/v1/status/stream";
const SUBJECT: &str = "\u{3}status";

/// 17.1, 17.2: a session without a user, with the server key in place of rights, and without it in
/// the sync with the next brain.
#[test]
fn a_server_key_stands_for_rights() {
    let (edge, mut brain) = Edge::start(&SETTINGS);
    for (lines, key) in [
        ("", ""),
        ("Authorization: Bearer hk_1\r\n", "Bearer hk_1"),
        ("Authorization: Bearer hk_1\r\nAuthorization: Bearer hk_2\r\n", ""),
    ] {
        let mut client = edge.api();
        client.ask("GET", TARGET, lines);
        let Seen::Subscriptions(conn, rights, subjects) = brain.next() else { panic!("none") };
        assert_eq!(rights, format!("\u{3}{key}"));
        assert_eq!(subjects, [SUBJECT]);
        assert_eq!(brain.open(), (conn, 1, String::new()));
        brain.refused(conn, 401);
        assert_eq!(client.response().status, 401);
    }
    let mut client = edge.api();
    client.ask("GET", TARGET, "Authorization: Bearer hk_1\r\n");
    let Seen::Subscriptions(conn, ..) = brain.next() else { panic!("none") };
    brain.open();
    brain.opened(conn, u32::MAX);
    client.head();
    client.expect_chunk(crate::client::SSE_WELCOME);
    brain.live((1, 3, "l3"), &[conn]);
    client.expect_chunk(&sse_json(3, "l3"));
    drop(brain);
    let mut brain = edge.dial();
    brain.hello(&SETTINGS, WINDOW);
    loop {
        match brain.next() {
            Seen::HelloEdge { .. } | Seen::SyncBegin(_) => {}
            seen => {
                let said = Seen::Subscriptions(conn, String::new(), vec![SUBJECT.into()]);
                break assert_eq!(seen, said);
            }
        }
    }
}

/// 17.3, and what a brain before would answer; another method is the brain's to judge, and the
/// public listener has no such path.
#[test]
fn what_is_a_request_of_the_api() {
    for (settings, method) in [(&SETTINGS[..2], "GET"), (&SETTINGS[..], "POST")] {
        let (edge, mut brain) = Edge::start(settings);
        let mut client = edge.api();
        client.ask(method, TARGET, "");
        let request = brain.request();
        assert_eq!((request.method.as_str(), request.target.as_str()), (method, TARGET));
    }
    let (edge, mut brain) = Edge::start(&SETTINGS);
    let mut client = edge.public();
    client.ask("GET", TARGET, "");
    assert_eq!(brain.request().target, TARGET);
}

/// 14.7: with `last=` it begins with the newest; with a cursor it goes on there.
#[test]
fn it_is_held_as_any_other() {
    let (edge, mut brain) = Edge::start(&SETTINGS);
    for (lines, cursor) in [("", "last-5"), ("Last-Event-ID: c7\r\n", "c7")] {
        let mut client = edge.api();
        client.ask("GET", &format!("{TARGET}?last=5"), lines);
        brain.next();
        let (conn, ..) = brain.open();
        assert_eq!(brain.cursors[&conn], cursor);
    }
}
