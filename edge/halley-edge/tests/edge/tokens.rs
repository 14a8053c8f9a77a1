//! http.md 14 and link.md 12: the user of a request, by a token. `halley-token` decides which
//! tokens are good.

use halley_link::CloseReason;

use crate::brain::{Brain, Edge, Seen, WINDOW};
use crate::client::{Client, Response, SSE_WELCOME, stream};
use crate::token::{self, SECRET, set, signed};
use crate::websocket::UPGRADE;

const SSE: &str = "/v1/stream";
const OTHER_SECRET: &str = "fedcba9876543210fedcba9876543210";

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn ask(edge: &Edge, target: &str, lines: &str) -> Response {
    let mut client = edge.public();
    client.ask("GET", target, lines);
    client.response()
}

fn code(response: &Response) -> (u16, &str) {
    let code = response.body.split("\"code\":\"").nth(1).and_then(|rest| rest.split('"').next());
    (response.status, code.unwrap_or_default())
}

/// A stream that `token` opens.
fn open(edge: &Edge, brain: &mut Brain, token: &str) -> (Client, u64) {
    let (mut client, conn, _) = stream(edge, brain, SSE, &bearer(token));
    client.expect_chunk(SSE_WELCOME);
    (client, conn)
}

/// 14.1, 14.2: the header or the parameter, for every kind of stream, and whose it is.
#[test]
fn a_token_says_who_it_is() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let token = token::of("ann");
    for (target, lines, transport) in [
        ("/v1/stream", String::new(), 1),
        ("/v1/stream", "Accept: application/x-ndjson\r\n".to_owned(), 2),
        ("/v1/ws", UPGRADE.to_owned(), 3),
        ("/v1/poll", String::new(), 5),
    ] {
        for (target, lines) in [
            (target.to_owned(), format!("{lines}{}", bearer(&token))),
            (target.to_owned(), format!("{lines}authorization: BEARER  {token}\r\n")),
            (format!("{target}?token={token}"), lines.clone()),
            (format!("{target}?user=ann&token={token}"), lines),
        ] {
            let mut client = edge.public();
            client.ask("GET", &target, &lines);
            let Seen::Open(sessions) = brain.next() else { panic!("no OPEN") };
            let (conn, kind, user) = sessions.into_iter().next().unwrap();
            assert_eq!((kind, user.as_str()), (transport, "ann"));
            brain.opened(conn, 7);
            drop(client);
            assert_eq!(brain.next(), Seen::Close(vec![(conn, 7)]));
        }
    }
    brain.stat_becomes("tokens_total", 16);
}

/// 14.4: "Without a token the answer is 401 `token_missing`, with `WWW-Authenticate: Bearer
/// realm="halley"`"; none of it reaches the brain.
#[test]
fn who_shows_no_token_is_refused() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let basic = "Authorization: Basic YTpi\r\n";
    for (target, lines) in [
        ("/v1/stream", ""),
        ("/v1/stream?user=ann", ""),
        ("/v1/stream", basic),
        ("/v1/ws", UPGRADE),
        ("/v1/poll?timeout=0", ""),
        ("/v1/me/follows", ""),
        ("/v1/me/follows?user=ann", "halley-user: ann\r\n"),
        ("/v1/%6de/follows", ""),
    ] {
        let response = ask(&edge, target, lines);
        assert_eq!(code(&response), (401, "token_missing"), "{target}");
        assert_eq!(response.header("www-authenticate"), Some("Bearer realm=\"halley\""));
    }
    let mut client = edge.public();
    client.ask("HEAD", "/v1/stream", "");
    assert!(client.head().starts_with("HTTP/1.1 401 "));
    brain.stat_becomes("tokens_missing_total", 9);
}

/// 14.4: "With a bad one it is 401, the code is the reason, and the header has
/// `error="invalid_token"` and the message as well (RFC 6750 3)." A storm of them doesn't reach the
/// brain.
#[test]
fn a_token_that_is_refused_stays_outside() {
    let (edge, mut brain) = Edge::start_jwt(&[("auth_issuer", "me"), ("token_bytes_max", "300")]);
    let exp = token::now_s() + 60;
    let foreign = signed(OTHER_SECRET, &format!(r#"{{"sub":"ann","exp":{exp},"iss":"me"}}"#));
    let others = signed(SECRET, &format!(r#"{{"sub":"ann","exp":{exp},"iss":"you"}}"#));
    let long = "x".repeat(301);
    for (token, expected) in [
        (foreign.as_str(), "token_signature"),
        (&token::for_s("ann", -1), "token_expired"),
        (&others, "token_issuer"),
        ("abc", "token_malformed"),
        ("", "token_malformed"),
        (&long, "token_too_large"),
    ] {
        for target in ["/v1/stream", "/v1/poll", "/v1/me/follows"] {
            let response = ask(&edge, target, &bearer(token));
            assert_eq!(code(&response), (401, expected));
            let challenge = response.header("www-authenticate").unwrap();
            let start = "Bearer realm=\"halley\", error=\"invalid_token\", error_description=\"";
            assert!(challenge.starts_with(start), "{challenge}");
        }
    }
    brain.stat_becomes("tokens_unsigned_total", 3);
    brain.stat_becomes("tokens_out_of_time_total", 3);
    brain.stat_becomes("tokens_of_others_total", 3);
    brain.stat_becomes("tokens_malformed_total", 9);
    brain.stat_becomes("requests_passed_on_total", 0);
}

/// 14.2: "Two of them, in whichever of these places, are refused with 400 `token_twice`"; "if it
/// names another user than the token, that is 403 `other_user`".
#[test]
fn one_token_and_one_user() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let (ann, bob) = (token::of("ann"), token::of("bob"));
    for (target, lines) in [
        (format!("/v1/stream?token={ann}"), bearer(&ann)),
        ("/v1/stream".to_owned(), bearer(&ann) + &bearer(&bob)),
        (format!("/v1/me/follows?token={ann}"), bearer(&ann)),
    ] {
        let response = ask(&edge, &target, &lines);
        assert_eq!(code(&response), (400, "token_twice"));
        let challenge = response.header("www-authenticate").unwrap();
        assert!(challenge.contains("error=\"invalid_request\""), "{challenge}");
    }
    let twice = ask(&edge, &format!("/v1/stream?token={ann}&token={ann}"), "");
    assert_eq!(code(&twice), (400, "duplicate_parameter"));
    let other = ask(&edge, "/v1/stream?user=bob", &bearer(&ann));
    assert_eq!(code(&other), (403, "other_user"));
    // 14.2: "`Authorization` with another scheme counts as no token."
    let basic = "Authorization: Basic YTpi\r\n";
    let (_client, ..) = stream(&edge, &mut brain, &format!("/v1/stream?token={ann}"), basic);
}

/// 14.1: "`/test/<user>` has no place for a token and is refused with 403"; what else there is
/// asks nobody.
#[test]
fn paths_without_a_place_for_tokens() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let article = ask(&edge, "/test/ann", &bearer(&token::of("ann")));
    assert_eq!(code(&article), (403, "article_without_tokens"));
    let mut client = edge.public();
    client.ask("GET", "/elsewhere", "");
    let request = brain.request();
    assert!(request.headers.iter().all(|(name, _)| !name.starts_with("halley-")));
    brain.respond(request.conn, 404, "");
    assert_eq!(client.response().status, 404);
}

/// 12.6: "REQUEST from the public listener names its user"; 12.9: "The proof that a client of the
/// public listener showed to enter doesn't travel".
#[test]
fn the_brain_is_told_who_asks_and_sees_no_token() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let rights = r#"{"publish":["room/*"]}"#;
    let token = token::with_rights("ann", rights);
    let cases = [
        ("/v1/me/events?x=1".to_owned(), bearer(&token), "/v1/me/events?x=1"),
        (format!("/v1/me/events?token={token}&x=1"), String::new(), "/v1/me/events?x=1"),
        (format!("/v1/%6de/events?%74oken={token}"), String::new(), "/v1/%6de/events"),
    ];
    for (target, lines, travels) in cases {
        let mut client = edge.public();
        let own = "Halley-User: bob\r\nHalley-Rights: all\r\n";
        client.ask("GET", &target, &format!("{lines}{own}"));
        let request = brain.request();
        assert_eq!(request.target, travels);
        let headers: Vec<_> =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(headers, [("halley-user", "ann"), ("halley-rights", rights), ("host", "h")]);
    }
    // Nor where nobody asked for it; a server's key does travel, on its own listener.
    for (mut client, travels) in [(edge.public(), false), (edge.api(), true)] {
        client.ask("GET", &format!("/v1/x?token={token}"), &bearer(&token));
        let request = brain.request();
        assert_eq!(request.target.contains(&token), travels);
        let shown = request.headers.iter().any(|(name, _)| name == "authorization");
        assert_eq!(shown, travels);
    }
}

/// 12.6: "With `auth_mode` `none`, for paths under `/v1/me/`, they are the user of `?user=`" and
/// all rights; a token is no matter then, and travels no more than otherwise.
#[test]
fn without_tokens_the_user_is_believed() {
    let (edge, mut brain) = Edge::start(&[]);
    assert_eq!(code(&ask(&edge, "/v1/me/follows", "")), (400, "user_missing"));
    assert_eq!(code(&ask(&edge, "/v1/me/follows?user=", "")), (400, "bad_user"));
    let mut client = edge.public();
    client.ask("PUT", "/v1/me/follows/bob?user=ann+x&token=secret", &bearer("secret"));
    let request = brain.request();
    assert_eq!(request.target, "/v1/me/follows/bob?user=ann+x");
    let all = crate::operations::ALL;
    let expected = [("halley-user", "ann x"), ("halley-rights", all), ("host", "h")];
    let headers: Vec<_> =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, expected);
}

/// 12.4: "A worker accepts no client before its first KEYS (as 3.6)."
#[test]
fn no_client_comes_in_before_the_keys() {
    let (edge, mut brain) = Edge::start(&[("auth_mode", "jwt")]);
    let mut client = edge.public();
    client.ask("GET", SSE, &bearer(&token::of("ann")));
    client.expect_silence(150);
    brain.keys(&set(&[SECRET]));
    let (conn, _, user) = brain.open();
    assert_eq!(user, "ann");
    brain.opened(conn, 1);
    assert!(client.head().starts_with("HTTP/1.1 200 "));
}

/// 12.4: "One that has no key refuses every token"; 12.3: "When the text is no JWK Set, there is no
/// key. Neither ends the link." 14.4: "503 `token_keys_missing` with `Retry-After`".
#[test]
fn without_keys_nobody_is_anybody() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    for no_keys in [r#"{"keys":[]}"#, "no JSON", r#"{"keys":[{"kty":"oct","k":"AA"}]}"#] {
        brain.keys(no_keys);
        brain.ping();
        let response = ask(&edge, SSE, &bearer(&token::of("ann")));
        assert_eq!(code(&response), (503, "token_keys_missing"));
        assert_eq!(response.header("retry-after"), Some("1"));
        assert_eq!(code(&ask(&edge, SSE, "")), (401, "token_missing"));
    }
    brain.keys(&set(&[SECRET]));
    brain.ping();
    open(&edge, &mut brain, &token::of("ann"));
}

/// 12.3: "Each KEYS replaces all keys"; http.md 14.8: "A session outlives the key that its token
/// was signed with".
#[test]
fn a_key_that_is_withdrawn_opens_nothing_more() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let (mut client, conn) = open(&edge, &mut brain, &token::of("ann"));
    brain.keys(&set(&[OTHER_SECRET]));
    brain.ping();
    let refused = ask(&edge, SSE, &bearer(&token::of("ann")));
    assert_eq!(code(&refused), (401, "token_signature"));
    let exp = token::now_s() + 60;
    let new = signed(OTHER_SECRET, &format!(r#"{{"sub":"bob","exp":{exp}}}"#));
    open(&edge, &mut brain, &new);
    assert!(matches!(brain.next(), Seen::Close(_)));
    let event = brain.deliver("", "1", &[conn]);
    client.expect_chunk(&format!("data: {event}\n\n"));
}

/// 12.5: "The keys outlive the link, as the sessions do".
#[test]
fn keys_outlive_the_link() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let (mut client, conn) = open(&edge, &mut brain, &token::of("ann"));
    drop(brain);
    let mut waiting = edge.public();
    waiting.ask("GET", SSE, &bearer(&token::of("bob")));
    let bad = ask(&edge, SSE, &bearer("abc"));
    assert_eq!(code(&bad), (401, "token_malformed"));
    let mut brain = edge.dial();
    brain.hello(&[("auth_mode", "jwt")], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    assert_eq!(brain.next(), Seen::SyncBegin(1));
    assert_eq!(brain.open().2, "ann");
    assert_eq!(brain.next(), Seen::SyncEnd);
    assert_eq!(brain.open().2, "bob");
    let event = brain.deliver("", "1", &[conn]);
    client.expect_chunk(&format!("data: {event}\n\n"));
}

/// 12.5: "When a brain sends `jwt` and the last one sent `none`, the sessions and requests that
/// came without a token are closed." And 12.4 meanwhile: no key, so no token proves a user.
#[test]
fn who_came_without_a_token_goes_when_tokens_are_asked_for() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut live, ..) = stream(&edge, &mut brain, "/v1/stream?user=ann", "");
    live.expect_chunk(SSE_WELCOME);
    let mut poll = edge.public();
    poll.ask("GET", "/v1/poll?user=ann", "");
    let (conn, ..) = brain.open();
    brain.opened(conn, 1);
    let mut opening = edge.public();
    opening.ask("GET", "/v1/stream?user=ann", "");
    brain.open();
    let mut asks = edge.public();
    asks.ask("GET", "/v1/me/follows?user=ann", "");
    brain.request();
    drop(brain);
    let mut brain = edge.dial();
    brain.hello(&[("auth_mode", "jwt")], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    assert_eq!(brain.next(), Seen::SyncBegin(0));
    assert_eq!(brain.next(), Seen::SyncEnd);
    live.expect("0\r\n\r\n");
    live.expect_end();
    assert_eq!(code(&opening.response()), (401, "token_missing"));
    assert_eq!(poll.response().body, r#"{"events":[],"cursor":null}"#);
    assert_eq!(asks.response().status, 503);
    let keyless = ask(&edge, SSE, &bearer(&token::of("ann")));
    assert_eq!(code(&keyless), (503, "token_keys_missing"));
    brain.keys(&set(&[SECRET]));
    // The worker has come as far; a pong would be the trunk's.
    assert!(matches!(brain.inspect(1, 0), Seen::Inspected(..)));
    open(&edge, &mut brain, &token::of("ann"));
}

/// And back: a brain that says `none` believes who is there, and nothing expires.
#[test]
fn tokens_are_forgotten_when_nobody_asks_for_them() {
    let (edge, mut brain) = Edge::start_jwt(&[]);
    let (mut client, _) = open(&edge, &mut brain, &token::for_s("ann", 7));
    drop(brain);
    let mut brain = edge.dial();
    brain.hello(&[], WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    assert_eq!(brain.next(), Seen::SyncBegin(1));
    let (conn, ..) = brain.open();
    assert_eq!(brain.next(), Seen::SyncEnd);
    client.expect_silence(7_500);
    brain.opened(conn, 1);
    let event = brain.deliver("", "1", &[conn]);
    client.expect_chunk(&format!("data: {event}\n\n"));
}

/// The edge takes no mode that it doesn't know (3.3).
#[test]
fn an_unknown_mode_is_refused() {
    let edge = Edge::alone(&[]);
    let mut brain = edge.dial();
    brain.hello(&[("auth_mode", "maybe")], WINDOW);
    let Seen::Goodbye(code, reason) = brain.next() else { panic!("no GOODBYE") };
    assert!(code == 3 && reason.contains("auth_mode"), "{code} {reason}");
}

/// http.md 6.3, and Fetch 3.2: a page of an allowed origin may follow and publish with a token.
#[test]
fn a_preflight_allows_what_users_do() {
    let (edge, _brain) = Edge::start_jwt(&[("cors_origins", "https://app.example")]);
    let lines = "Origin: https://app.example\r\nAccess-Control-Request-Method: PUT\r\n\
                 Access-Control-Request-Headers: authorization\r\n";
    let mut client = edge.public();
    client.ask("OPTIONS", "/v1/me/follows/ann", lines);
    let response = client.response();
    assert_eq!(response.status, 204);
    let methods = response.header("access-control-allow-methods").unwrap();
    assert_eq!(methods, "GET, HEAD, POST, PUT, DELETE, OPTIONS");
    let headers = response.header("access-control-allow-headers").unwrap();
    assert!(headers.contains("authorization") && headers.contains("content-type"), "{headers}");
    client.ask("OPTIONS", "/v1/stream", lines);
    let methods = client.response();
    let methods = methods.header("access-control-allow-methods");
    assert_eq!(methods, Some("GET, HEAD, POST, OPTIONS"));
    let refused = ask(&edge, "/v1/me/follows", "Origin: https://app.example\r\n");
    assert_eq!(refused.header("access-control-allow-origin"), Some("https://app.example"));
}

/// A CLOSE with this reason, of this connection.
pub fn expect_close(brain: &mut Brain, conn: u64, reason: CloseReason) {
    let Seen::Close(closed) = brain.next() else { panic!("no CLOSE") };
    assert_eq!(closed.iter().map(|(conn, _)| *conn).collect::<Vec<_>>(), [conn]);
    assert_eq!(brain.reasons[&conn], reason);
}
