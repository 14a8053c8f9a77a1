//! http.md 14.7: a WebSocket that goes on with another token.

use std::time::{Duration, Instant};

use halley_link::CloseReason;

use crate::brain::{Brain, Edge};
use crate::client::{Client, stream};
use crate::operations::{ALL, header, heard, refused, say};
use crate::token;
use crate::tokens::expect_close as closed;
use crate::websocket::{UPGRADE, expect_close, expect_text, open};

fn with_token(edge: &Edge, brain: &mut Brain, token: &str) -> (Client, u64) {
    let (client, conn, head) = stream(edge, brain, &format!("/v1/ws?token={token}"), UPGRADE);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    (client, conn)
}

/// 14.7: "A good one of the same user takes the last one's place: the session ends with it, and
/// operations that haven't been passed on yet have its rights."
#[test]
fn another_token_takes_the_place() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let begin = Instant::now();
    let (mut client, conn) = with_token(&edge, &mut brain, &token::for_s("ann", 6));
    say(&mut client, r#"{"op":"follow","subject":"a"}"#);
    assert_eq!(header(&brain.request(), "halley-rights"), "{}");
    say(&mut client, r#"{"op":"follow","subject":"b"}"#);
    let rights = r#"{"follow":["*"]}"#;
    let new = token::with_rights("ann", rights);
    say(&mut client, &format!(r#"{{"op":"token","token":"{new}","ref":"t"}}"#));
    let told = heard(&mut client);
    let expires: u64 = told
        .strip_prefix(r#"{"ref":"t","ok":{"expires":"#)
        .and_then(|rest| rest.strip_suffix("}}"))
        .and_then(|number| number.parse().ok())
        .unwrap();
    assert!((3_590..=3_600).contains(&(expires - token::now_s())), "{told}");
    brain.respond(conn, 200, "{}");
    expect_text(&mut client, r#"{"ok":{}}"#);
    assert_eq!(header(&brain.request(), "halley-rights"), rights);
    brain.respond(conn, 200, "{}");
    expect_text(&mut client, r#"{"ok":{}}"#);
    std::thread::sleep(Duration::from_millis(6_500).saturating_sub(begin.elapsed()));
    let event = brain.deliver("", "1", &[conn]);
    expect_text(&mut client, &event);
    brain.stat_becomes("tokens_renewed_total", 1);
    // Fewer rights count as well, and so does an earlier end.
    say(&mut client, &format!(r#"{{"op":"token","token":"{}"}}"#, token::for_s("ann", 6)));
    assert!(heard(&mut client).starts_with(r#"{"ok":{"expires":"#));
    say(&mut client, r#"{"op":"follow","subject":"c"}"#);
    assert_eq!(header(&brain.request(), "halley-rights"), "{}");
    brain.respond(conn, 200, "{}");
    expect_text(&mut client, r#"{"ok":{}}"#);
    expect_text(&mut client, r#"{"end":{"reason":"token_expired"}}"#);
    assert_eq!(expect_close(&mut client, 4_401), "token_expired");
    closed(&mut brain, conn, CloseReason::Expired);
}

/// 14.7: "One that is refused, with the codes of 14.4 or `other_user`, changes nothing: a session
/// is never another user's."
#[test]
fn a_session_is_never_another_users() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let rights = r#"{"publish":["a"]}"#;
    let (mut client, conn) = with_token(&edge, &mut brain, &token::with_rights("ann", rights));
    let forged =
        token::signed("another secret of 32 bytes or so", r#"{"sub":"ann","exp":9999999999}"#);
    for (token, code) in [
        (token::with_rights("bob", ALL), "other_user"),
        (token::for_s("ann", -5), "token_expired"),
        (forged, "token_signature"),
        (String::new(), "token_malformed"),
    ] {
        say(&mut client, &format!(r#"{{"op":"token","token":"{token}","ref":1}}"#));
        let (refused, text) = refused(&mut client);
        assert_eq!(refused, code);
        assert!(text.starts_with("{\"ref\":1,\"error\":"), "{text}");
    }
    say(&mut client, r#"{"op":"publish","subject":"a","data":1}"#);
    let request = brain.request();
    assert_eq!(
        (header(&request, "halley-user"), header(&request, "halley-rights")),
        ("ann", rights)
    );
    brain.respond(conn, 200, "{}");
    brain.stat_becomes("tokens_renewed_total", 0);
}

/// 14.7: "With `auth_mode` `none` it is not looked at, and the answer has `null`."
#[test]
fn without_tokens_there_is_nothing_to_renew() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut client, _) = open(&edge, &mut brain, "ann");
    say(&mut client, r#"{"op":"token","token":"abc","ref":1}"#);
    expect_text(&mut client, r#"{"ref":1,"ok":{"expires":null}}"#);
}
