//! http.md 16: how many connections and requests come from one address, and from one user.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::brain::{Edge, Seen, WAIT, WINDOW};
use crate::client::{Client, Response, sse, sse_event};
use crate::drain::chunk;

/// A client of the public listener that comes from this address.
pub fn from(edge: &Edge, ip: &str) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let ip: IpAddr = ip.parse().unwrap();
    socket.bind(&SocketAddr::new(ip, 0).into()).unwrap();
    socket.connect_timeout(&edge.public.into(), WAIT).unwrap();
    Client::of(socket.into())
}

pub fn refusal(client: &mut Client, status: u16, code: &str) -> Response {
    let response = client.response();
    assert_eq!(response.status, status, "{response:?}");
    assert!(response.body.contains(&format!("\"{code}\"")), "{response:?}");
    assert!(response.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    response
}

/// The stream's next event is this.
fn hears(stream: &mut Client, event: &str) {
    let mut next = chunk(stream);
    while next.starts_with(':') {
        next = chunk(stream);
    }
    assert_eq!(next, event);
}

pub const PREFLIGHT: &str =
    "OPTIONS /v1/stream HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: GET\r\n\r\n";

pub fn preflight(client: &mut Client) {
    client.send(PREFLIGHT);
}

/// Asks so often in one write that one of these is too many, whatever the clock gives back.
pub fn asks_too_often(client: &mut Client) {
    const TIMES: usize = 30;
    client.send(PREFLIGHT.repeat(TIMES));
    let refused = (0..TIMES).map(|_| client.response()).filter(|response| response.status != 204);
    let refused: Vec<Response> = refused.collect();
    assert!(!refused.is_empty());
    for response in refused {
        assert_eq!(response.status, 429);
        assert!(response.body.contains("\"too_many_requests\""), "{response:?}");
    }
}

/// 16.1: "`connections_per_address_max` connections may come from one address [...] A close
/// subtracts what the opening added." 16.2: "429 `too_many_connections`".
#[test]
fn connections_of_an_address() {
    let (edge, mut brain) = Edge::start(&[("connections_per_address_max", "3")]);
    let mut ours: Vec<Client> = (0..3).map(|_| from(&edge, "127.0.0.9")).collect();
    // One that asks for something has been accepted.
    ours.iter_mut().for_each(|client| {
        preflight(client);
        assert_eq!(client.response().status, 204);
    });
    let mut fourth = from(&edge, "127.0.0.9");
    refusal(&mut fourth, 429, "too_many_connections");
    fourth.expect_end();
    let mut other = from(&edge, "127.0.0.10");
    preflight(&mut other);
    assert_eq!(other.response().status, 204, "another address");
    brain.stat_becomes("refused_by_address_total", 1);
    // However it ends: closed, reset, refused, or by the edge.
    ours.remove(0).reset();
    drop(ours.remove(0));
    ours[0].send("nonsense\r\n\r\n");
    assert_eq!(ours[0].response().status, 400);
    drop(ours);
    brain.stat_becomes("connections", 1);
    let mut again: Vec<Client> = (0..3).map(|_| from(&edge, "127.0.0.9")).collect();
    again.iter_mut().for_each(|client| {
        preflight(client);
        assert_eq!(client.response().status, 204);
    });
}

/// 16.1: "Addresses in `limits.exempt` [...] are only counted in all."
#[test]
fn exempt_addresses() {
    let settings = [
        ("connections_per_address_max", "1"),
        ("requests_per_address_per_s_max", "1"),
        ("requests_burst_ms", "1000"),
        ("limits_exempt", "10.0.0.0/8, 127.0.0.9"),
    ];
    let (edge, _brain) = Edge::start(&settings);
    let mut exempt: Vec<Client> = (0..5).map(|_| from(&edge, "127.0.0.9")).collect();
    for client in exempt.iter_mut() {
        preflight(client);
        assert_eq!(client.response().status, 204);
    }
    let mut counted = from(&edge, "127.0.0.10");
    preflight(&mut counted);
    assert_eq!(counted.response().status, 204);
    asks_too_often(&mut counted);
    refusal(&mut from(&edge, "127.0.0.10"), 429, "too_many_connections");
}

/// 16.1: "both hold for all workers together".
#[test]
fn workers_count_together() {
    let settings = [("connections_per_address_max", "5")];
    let arguments = ["--workers", "3", "--connections-max", "8"];
    let (edge, _brain) = Edge::start_with(&arguments, &settings, WINDOW);
    let answers = |ip: &str, count: usize| -> (Vec<Client>, Vec<u16>) {
        let one = |_| {
            let mut client = from(&edge, ip);
            preflight(&mut client);
            let status = client.response().status;
            (client, status)
        };
        (0..count).map(one).unzip()
    };
    let count = |statuses: &[u16], wanted: u16| statuses.iter().filter(|s| **s == wanted).count();
    let (ours, statuses) = answers("127.0.0.9", 9);
    assert_eq!((count(&statuses, 204), count(&statuses, 429)), (5, 4));
    let (theirs, statuses) = answers("127.0.0.10", 6);
    assert_eq!((count(&statuses, 204), count(&statuses, 503)), (3, 3));
    drop((ours, theirs));
    let end = Instant::now() + WAIT;
    while count(&answers("127.0.0.9", 5).1, 204) < 5 {
        assert!(Instant::now() < end, "places that are free again");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// 16.2: "A worker answers 500 of them in a second; more are closed without a word", and who is
/// there doesn't notice.
#[test]
fn a_flood_of_refused_connections() {
    let (edge, mut brain) = Edge::start(&[("connections_per_address_max", "1")]);
    let (mut stream, conn) = sse(&edge, &mut brain, "ann");
    let began = Instant::now();
    let mut clients: Vec<Client> = (0..3_000).map(|_| edge.public()).collect();
    let event = brain.deliver("c1", "1", &[conn]);
    hears(&mut stream, &sse_event("c1", &event));
    let answered = clients.iter_mut().filter_map(|client| {
        let text = client.rest();
        (!text.is_empty()).then(|| assert!(text.starts_with(b"HTTP/1.1 429 ")))
    });
    let answered = answered.count();
    // So many of the worker's seconds it may have been, of which one may begin late and be short.
    let seconds = began.elapsed().as_secs() as usize + 3;
    assert!((1..=500 * seconds).contains(&answered), "{answered} in {seconds} s");
    brain.stat_becomes("refused_by_address_total", 3_000);
}

/// 16.3: "A request too many gets 429 `too_many_requests`, counts for nothing, and `Retry-After`
/// has the time until one more passes, in whole seconds. The connection stays".
#[test]
fn requests_of_an_address() {
    let settings = [("requests_per_address_per_s_max", "1"), ("requests_burst_ms", "3000")];
    let (edge, mut brain) = Edge::start(&settings);
    // Whatever is asked for, also what the brain would answer. All in one write, as the clock gives
    // back one in a second.
    let targets = ["/v1/stream?user=a", "/v1/poll?user=a", "/v1/me/follows?user=a", "/x"];
    for (target, ip) in targets.iter().zip(["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]) {
        let mut client = from(&edge, ip);
        let asked = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        client.send(format!("{}{asked}", PREFLIGHT.repeat(3)));
        (0..3).for_each(|_| assert_eq!(client.response().status, 204));
        assert_eq!(refusal(&mut client, 429, "too_many_requests").header("retry-after"), Some("1"));
    }
    brain.stat_becomes("rate_by_address_total", 4);
    // On any connection.
    let mut clients: Vec<Client> = (0..40).map(|_| from(&edge, "127.0.0.9")).collect();
    let began = Instant::now();
    clients.iter_mut().for_each(preflight);
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.response().status).collect();
    let passed = statuses.iter().filter(|status| **status == 204).count() as u64;
    let most = 3 + began.elapsed().as_secs() + 1;
    assert!((3..=most).contains(&passed), "{passed} of {statuses:?}");
    let mut client = clients.remove(0);
    let mut other = from(&edge, "127.0.0.10");
    preflight(&mut other);
    assert_eq!(other.response().status, 204);
    std::thread::sleep(Duration::from_millis(1_050));
    preflight(&mut client);
    assert_eq!(client.response().status, 204, "as Retry-After said");
    // The API counts by key, in the brain.
    let mut api = edge.api();
    for _ in 0..9 {
        api.ask("OPTIONS", "/v1/events", "Access-Control-Request-Method: GET\r\n");
        assert_eq!(api.response().status, 204);
    }
}

/// 16.3: "where a stream, a poll or an operation names or proves its user, by user".
#[test]
fn requests_of_a_user() {
    let settings = [("requests_per_user_per_s_max", "1"), ("requests_burst_ms", "2000")];
    let (edge, mut brain) = Edge::start(&settings);
    // Each of them is one, so two have used up what may come at once: all in one write, as the
    // clock gives back one in a second.
    let targets = ["/v1/poll?user=ann", "/v1/stream?user=bea", "/test/cid"];
    for target in targets {
        let ask = |method| format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let mut client = from(&edge, "127.0.0.10");
        client.send(format!("{}{}", ask("HEAD").repeat(2), ask("GET")));
        (0..2).for_each(|_| assert!(client.head().starts_with("HTTP/1.1 200 ")));
        refusal(&mut client, 429, "too_many_requests");
        // Another user, on the same connection.
        preflight(&mut client);
        assert_eq!(client.response().status, 204);
    }
    brain.stat_becomes("rate_by_user_total", 3);
    // From wherever, and of whatever kind.
    let ips: Vec<String> = (20..60).map(|n| format!("127.0.0.{n}")).collect();
    let mut clients: Vec<Client> = ips.iter().map(|ip| from(&edge, ip)).collect();
    let began = Instant::now();
    for (client, path) in clients.iter_mut().zip(["/v1/poll?user=dan", "/test/dan"].iter().cycle())
    {
        client.ask("HEAD", path, "");
    }
    let heads: Vec<String> = clients.iter_mut().map(Client::head).collect();
    let passed = heads.iter().filter(|head| head.starts_with("HTTP/1.1 200 ")).count() as u64;
    let most = 2 + began.elapsed().as_secs() + 1;
    assert!((2..=most).contains(&passed), "{passed} in {:?}", began.elapsed());
    sse(&edge, &mut brain, "bob");
}

/// 16.5: "Beyond it, and when there is no place left, pending connections are closed without a
/// word, the oldest first."
#[test]
fn pending_connections_make_room() {
    let settings = [("pending_connections_percent_max", "50")];
    let (edge, mut brain) = Edge::start_with(&["--connections-max", "8"], &settings, WINDOW);
    let mut slow: Vec<Client> = (0..4).map(|_| edge.public()).collect();
    for client in &mut slow {
        client.send("GET /v1/stream?user=sl");
    }
    brain.stat_becomes("pending_connections", 4);
    let (_ann, _) = sse(&edge, &mut brain, "ann");
    slow.remove(0).expect_end();
    brain.stat_becomes("pending_connections_dropped_total", 1);
    // The others have their time, and three more that ask fill the table.
    let _more: Vec<Client> = ["b", "c", "d"].map(|user| sse(&edge, &mut brain, user).0).into();
    brain.stat_becomes("pending_connections", 3);
    brain.stat_becomes("connections", 7);
    let _last: Vec<Client> = ["e", "f", "g", "h"].map(|user| sse(&edge, &mut brain, user).0).into();
    slow.iter_mut().for_each(Client::expect_end);
    let mut ninth = edge.public();
    refusal(&mut ninth, 503, "connections_max");
    brain.stat_becomes("pending_connections", 0);
    brain.stat_becomes("pending_connections_dropped_total", 4);
}

/// 16.5: "They make room for clients that may come in, not for those that 16.1 or 16.4 refuses."
/// 16.2: where both bounds are met "it is 429".
#[test]
fn pending_connections_make_no_room_for_who_is_refused() {
    let settings = [
        ("connections_per_address_max", "2"),
        // The name from a brain of a build before (link.md 5).
        ("newcomers_percent_max", "100"),
        // Only for others they go.
        ("first_byte_ms_max", "600000"),
    ];
    let (edge, mut brain) = Edge::start_with(&["--connections-max", "4"], &settings, WINDOW);
    let mut slow: Vec<Client> =
        ["127.0.0.9", "127.0.0.9", "127.0.0.10", "127.0.0.10"].map(|ip| from(&edge, ip)).into();
    brain.stat_becomes("pending_connections", 4);
    for _ in 0..3 {
        refusal(&mut from(&edge, "127.0.0.9"), 429, "too_many_connections");
    }
    brain.stat_becomes("refused_by_address_total", 3);
    assert_eq!(
        (brain.stat("pending_connections"), brain.stat("pending_connections_dropped_total")),
        (4, 0)
    );
    let mut other = from(&edge, "127.0.0.11");
    preflight(&mut other);
    assert_eq!(other.response().status, 204);
    slow.remove(0).expect_end();
    brain.stat_becomes("pending_connections_dropped_total", 1);
}

/// http.md 3.5: "one that has sent nothing at all after `first_byte_ms_max`".
#[test]
fn a_connection_that_says_nothing() {
    let (edge, mut brain) = Edge::start(&[("first_byte_ms_max", "4000")]);
    let mut silent = edge.public();
    let mut slow = edge.public();
    slow.send("GET /v1/stream?u");
    silent.expect_end();
    brain.stat_becomes("timeouts_total", 1);
    slow.expect_silence(600);
    slow.send("ser=ann HTTP/1.1\r\nHost: h\r\n\r\n");
    let (conn, ..) = brain.open();
    brain.opened(conn, 1);
    assert!(slow.head().starts_with("HTTP/1.1 200 "));
}

/// 16.4: "new streams and polls get 503 `memory_low` with `Retry-After`; below
/// `memory_free_connections_percent_min` new connections to the public listener do. Connections
/// that are there stay."
#[test]
fn memory_is_short() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut stream, conn) = sse(&edge, &mut brain, "ann");
    let mut there = edge.public();
    preflight(&mut there);
    assert_eq!(there.response().status, 204);
    // Never is all of it available.
    let handshake = |settings: &[(&str, &str)]| {
        let mut brain = edge.dial();
        brain.hello(settings, WINDOW);
        while brain.next() != Seen::SyncEnd {}
        brain
    };
    let mut brain = handshake(&[("memory_free_streams_percent_min", "100")]);
    for target in ["/v1/stream?user=b", "/v1/poll?user=b", "/test/b"] {
        there.ask("GET", target, "");
        refusal(&mut there, 503, "memory_low");
    }
    brain.stat_becomes("memory_low_total", 3);
    assert!(brain.stat("memory_available_bytes") > 1_000_000);
    let event = brain.deliver("c1", "1", &[conn]);
    hears(&mut stream, &sse_event("c1", &event));
    preflight(&mut edge.public());
    let mut brain = handshake(&[("memory_free_connections_percent_min", "100")]);
    refusal(&mut edge.public(), 503, "memory_low");
    let mut api = edge.api();
    api.ask("GET", "/x", "");
    let request = brain.request().conn;
    brain.respond(request, 200, "x");
    assert_eq!(api.response().body, "x", "who runs this must get in");
    let event = brain.deliver("c2", "2", &[conn]);
    hears(&mut stream, &sse_event("c2", &event));
    let mut brain = handshake(&[]);
    sse(&edge, &mut brain, "b");
}
