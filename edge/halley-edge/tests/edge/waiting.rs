//! http.md 13.7, 13.8: streams that come while the brain is away, and how many it opens at once.

use std::time::{Duration, Instant};

use crate::brain::{Brain, Edge, Seen, WINDOW};
use crate::client::{Client, header, sse, sse_event};
use crate::drain::{chunk, retry};

const NDJSON: &str = "Accept: application/x-ndjson\r\n";

/// Asks for so many streams, one after the other.
fn ask(edge: &Edge, count: usize, lines: &str) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| edge.public()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.ask("GET", &format!("/v1/stream?user=u{i}"), lines);
        is_read(edge);
    }
    clients
}

/// The edge has read what was sent before: it answers a request that comes later.
fn is_read(edge: &Edge) {
    let mut later = edge.public();
    later.ask("OPTIONS", "/v1/stream", "");
    later.response();
}

/// A brain that takes the edge over, up to the hellos.
fn next_brain(edge: &Edge, settings: &[(&str, &str)]) -> Brain {
    let mut brain = edge.dial();
    brain.hello(settings, WINDOW);
    assert!(matches!(brain.next(), Seen::HelloEdge { .. }));
    brain
}

/// The users of the next so many sessions, and their connections.
fn opens(brain: &mut Brain, count: usize) -> Vec<(u64, String)> {
    let mut users = Vec::new();
    while users.len() < count {
        match brain.next() {
            Seen::Open(sessions) => {
                users.extend(sessions.into_iter().map(|(conn, _, user)| (conn, user)));
            }
            other => panic!("not OPEN: {other:?}"),
        }
    }
    assert_eq!(users.len(), count);
    users
}

/// 13.7: "A stream or poll that comes while the brain is away, or while the worker's sync runs,
/// waits in the order of 13.1": behind the sync, which has the sessions that are there, and a
/// session that was to be opened when the brain died.
#[test]
fn those_that_are_there_come_first() {
    let (edge, mut brain) = Edge::start(&[]);
    let (mut live, conn) = sse(&edge, &mut brain, "live");
    let mut opening = edge.public();
    opening.ask("GET", "/v1/stream?user=opening", "");
    let (first, ..) = brain.open();
    drop(brain);
    let mut waiting = ask(&edge, 3, "");
    let mut websocket = edge.public();
    websocket.ask("GET", "/v1/ws?user=w", crate::websocket::UPGRADE);
    let mut poll = edge.public();
    poll.ask("GET", "/v1/poll?user=p&timeout=20", "");
    is_read(&edge);
    let mut brain = next_brain(&edge, &[]);
    assert_eq!(brain.next(), Seen::SyncBegin(2));
    let known: Vec<u64> = opens(&mut brain, 2).into_iter().map(|(conn, _)| conn).collect();
    assert_eq!(known, [conn, first]);
    assert_eq!(brain.next(), Seen::SyncEnd);
    let newcomers = opens(&mut brain, 5);
    let users: Vec<&str> = newcomers.iter().map(|(_, user)| &**user).collect();
    assert_eq!(users, ["u0", "u1", "u2", "w", "p"]);
    known.iter().chain(newcomers.iter().map(|(conn, _)| conn)).for_each(|c| brain.opened(*c, 1));
    for client in waiting.iter_mut().chain([&mut opening]) {
        assert!(client.head().starts_with("HTTP/1.1 200 "));
    }
    assert!(websocket.head().starts_with("HTTP/1.1 101 "));
    let event = brain.deliver("c", "1", &[conn]);
    live.expect_chunk(&sse_event("c", &event));
    brain.stat_becomes("brain_away_waits_total", 5);
    brain.stat_becomes("waiting", 0);
}

/// 13.7: "The wait is over after `brain_away_ms_max` [...]; the client is sent away as in 13.2,
/// with the code `brain_away`". One that the brain was to open has as long, from the link's end.
#[test]
fn a_brain_that_stays_away() {
    let limits = [("brain_away_ms_max", "1500"), ("stream_open_ms_max", "60000")];
    let (edge, mut brain) = Edge::start(&limits);
    let mut opening = edge.public();
    opening.ask("GET", "/v1/stream?user=opening", "");
    brain.open();
    let began = Instant::now();
    drop(brain);
    let mut sse = ask(&edge, 1, "").remove(0);
    let mut others = ask(&edge, 8, NDJSON);
    for client in [&mut sse, &mut opening] {
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let busy = chunk(client);
        assert_eq!(busy, format!(": busy\nretry: {}\n\n", retry(&busy)));
        client.expect("0\r\n\r\n");
        client.expect_end();
    }
    let mut times = Vec::new();
    for client in &mut others {
        let response = client.response();
        assert_eq!(response.status, 503);
        assert!(response.body.contains("\"code\":\"brain_away\""), "{}", response.body);
        times.push(header(&response.head, "retry-after").unwrap().parse::<u64>().unwrap());
        client.expect_end();
    }
    assert!(began.elapsed() >= Duration::from_millis(1_500), "{:?}", began.elapsed());
    assert!(times.iter().all(|s| (1..=6).contains(s)), "{times:?}");
    assert!(times.iter().any(|s| *s != times[0]), "spread: {times:?}");
    let mut brain = next_brain(&edge, &[]);
    assert_eq!([brain.next(), brain.next()], [Seen::SyncBegin(0), Seen::SyncEnd]);
    brain.stat_becomes("brain_away_total", 10);
    brain.stat_becomes("busy_total", 0);
    brain.stat_becomes("waiting", 0);
}

/// 13.7: "Once the brain is back, those that wait have `admission_wait_ms_max` more for their
/// turn": a brain that comes at the last moment finds them all, though they come one by one.
#[test]
fn a_brain_that_comes_late() {
    let limits = [
        ("brain_away_ms_max", "3000"),
        ("admission_wait_ms_max", "20000"),
        ("admission_per_s_max", "5"),
    ];
    let (edge, brain) = Edge::start(&limits);
    let began = Instant::now();
    drop(brain);
    let mut clients = ask(&edge, 12, NDJSON);
    std::thread::sleep(Duration::from_millis(2_000).saturating_sub(began.elapsed()));
    let mut brain = next_brain(&edge, &limits);
    assert!(began.elapsed() < Duration::from_millis(2_900), "the test was held up");
    assert_eq!([brain.next(), brain.next()], [Seen::SyncBegin(0), Seen::SyncEnd]);
    for (conn, _) in opens(&mut brain, 12) {
        brain.opened(conn, 1);
    }
    assert!(began.elapsed() > Duration::from_millis(3_100), "{:?}", began.elapsed());
    for client in &mut clients {
        assert!(client.head().starts_with("HTTP/1.1 200 "));
    }
}

/// 13.1, 13.7: "At most as many wait as 13.2 allows", whether or not there is a brain.
#[test]
fn few_wait_for_a_brain() {
    let limits = [("admission_per_s_max", "10"), ("admission_wait_ms_max", "1000")];
    let (edge, brain) = Edge::start(&limits);
    drop(brain);
    let mut clients = ask(&edge, 14, NDJSON);
    for client in &mut clients[10..] {
        let response = client.response();
        assert_eq!(response.status, 503);
        assert!(response.body.contains("\"busy\""), "{}", response.body);
    }
    let mut brain = next_brain(&edge, &[]);
    assert_eq!([brain.next(), brain.next()], [Seen::SyncBegin(0), Seen::SyncEnd]);
    opens(&mut brain, 10);
    brain.stat_becomes("busy_total", 4);
}

/// Clients that give up while they wait cost nothing: no brain hears of them, and their places in
/// the order are free.
#[test]
fn clients_that_give_up() {
    let limits = [("admission_per_s_max", "10"), ("admission_wait_ms_max", "1000")];
    let (edge, brain) = Edge::start(&limits);
    drop(brain);
    let mut clients = ask(&edge, 10, NDJSON);
    let last = clients.pop();
    clients.into_iter().for_each(Client::reset);
    // Those that left make room for as many.
    is_read(&edge);
    let others = ask(&edge, 9, NDJSON);
    let mut brain = next_brain(&edge, &[]);
    assert_eq!([brain.next(), brain.next()], [Seen::SyncBegin(0), Seen::SyncEnd]);
    let users: Vec<String> = opens(&mut brain, 10).into_iter().map(|(_, user)| user).collect();
    assert_eq!(users[0], "u9");
    assert_eq!(users[1..], (0..9).map(|i| format!("u{i}")).collect::<Vec<_>>());
    brain.stat_becomes("busy_total", 0);
    drop((last, others));
}

/// 9.1, http.md 13.4: an edge that is stopped while streams wait for a brain sends them away.
#[test]
fn a_drain_while_they_wait() {
    let (mut edge, brain) = Edge::start_with(&["--drain-ms", "300"], &[], WINDOW);
    drop(brain);
    let mut clients = ask(&edge, 5, NDJSON);
    crate::process::signal(&edge, "-TERM");
    for client in &mut clients {
        let response = client.response();
        assert_eq!((response.status, response.body.contains("\"busy\"")), (503, true));
        client.expect_end();
    }
    drop(clients);
    assert_eq!(edge.exit_code(), Some(0));
}

/// 13.8: "The brain opens at most `opens_in_flight_max` [...] at the same time, each worker an
/// equal part of them, 16 at least: what it has opened or refused makes room for the next."
#[test]
fn the_brain_opens_a_few_at_a_time() {
    let (edge, mut brain) = Edge::start(&[("opens_in_flight_max", "3")]);
    let clients = ask(&edge, 40, "");
    let first = opens(&mut brain, 16);
    brain.expect_silence(200);
    // Requests go on.
    let mut publisher = edge.api();
    publisher.ask("GET", "/x", "");
    let conn = brain.request().conn;
    brain.respond(conn, 200, "x");
    assert_eq!(publisher.response().body, "x");
    brain.opened(first[3].0, 1);
    assert_eq!(brain.open().2, "u16");
    brain.refused(first[4].0, 503);
    assert_eq!(brain.open().2, "u17");
    // One whose client has left is still the brain's business.
    let mut clients = clients;
    clients.swap_remove(0).reset();
    brain.expect_silence(200);
    brain.opened(first[0].0, 1);
    assert_eq!(brain.open().2, "u18");
    assert_eq!(brain.next(), Seen::Close(vec![(first[0].0, 1)]));
    brain.stat_becomes("opening", 16);
    brain.stat_becomes("left", 0);
}

/// 13.8: they are those of all workers, each of which has an equal part.
#[test]
fn each_worker_has_its_part() {
    let mut edge = Edge::alone(&["--workers", "2"]);
    let mut brain = edge.dial_trunk();
    brain.meets_all(&mut edge, 2, &[("opens_in_flight_max", "40")]);
    let clients = ask(&edge, 160, "");
    // The kernel gives each of them some 80.
    let mut opens = [0; 2];
    while opens.iter().sum::<usize>() < 40 {
        match brain.next_of() {
            (worker, Seen::Open(sessions)) => opens[usize::from(worker)] += sessions.len(),
            other => panic!("not OPEN: {other:?}"),
        }
    }
    assert_eq!(opens, [20; 2]);
    brain.expect_silence(100);
    drop(clients);
}

/// 13.7: while they wait no worker spins.
#[test]
fn waiting_for_a_brain_is_idle() {
    let (edge, brain) = Edge::start(&[]);
    drop(brain);
    let clients = ask(&edge, 50, "");
    let cpu = || halley_sys::cpu_ns(edge.child.id()).unwrap();
    let before = cpu();
    std::thread::sleep(Duration::from_millis(600));
    let used = Duration::from_nanos(cpu() - before);
    assert!(used < Duration::from_millis(100), "{used:?} of 600 ms");
    let mut brain = next_brain(&edge, &[]);
    assert_eq!([brain.next(), brain.next()], [Seen::SyncBegin(0), Seen::SyncEnd]);
    opens(&mut brain, 50);
    drop(clients);
}
