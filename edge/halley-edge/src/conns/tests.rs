//! Connections over pairs of sockets that no network knows. Others' tests take them from here.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use clap::Parser;
use mio::Poll;

use halley_link::CloseReason;

use super::*;
use crate::config::Config;
use crate::conns::doom::Doom;
use crate::limits::address::Address;
use crate::outbox::Piece;
use crate::transport::Transport;

impl Hung for u8 {
    fn has_kept(&self) -> bool {
        *self > 0
    }
}

/// Without any connection.
pub fn conns<D: Hung>() -> Conns<D> {
    let config =
        Config::parse_from(["edge", "--public", "[::]:0", "--api", "[::]:0", "--socket-dir", "x"]);
    let certificates = Arc::new(Certificates::load(&config).unwrap());
    let registry = Poll::new().unwrap().registry().try_clone().unwrap();
    let mut conns = Conns::new(registry, certificates, Arc::new(SharedLimits::new(None)));
    conns.clock.look();
    conns
}

/// A connection, and its client's end.
pub fn enter<D: Hung>(conns: &mut Conns<D>) -> (u32, UnixStream) {
    let (socket, client) = UnixStream::pair().unwrap();
    for end in [&socket, &client] {
        end.set_nonblocking(true).unwrap();
    }
    let socket = std::net::TcpStream::from(OwnedFd::from(socket));
    let socket = mio::net::TcpStream::from_std(socket);
    assert!(conns.table.limits.enter(false, 0));
    (conns.insert(socket, false, Address::NONE).unwrap(), client)
}

/// A connection in this phase, of those that a stream goes through.
pub fn enter_as<D: Hung>(conns: &mut Conns<D>, phase: Phase) -> (u32, UnixStream) {
    let (index, client) = enter(conns);
    for next in [Phase::Waiting, Phase::Opening, Phase::Live] {
        if conns.phase(index) != phase {
            conns.become_of(index, next);
        }
    }
    conns.slot(index).unwrap().transport = Transport::SsePlain;
    (index, client)
}

/// What a client can read now, and whether that is the end.
pub fn read(client: &mut UnixStream) -> (String, bool) {
    let (mut all, mut buffer) = (Vec::new(), [0; 4_096]);
    let ended = loop {
        match client.read(&mut buffer) {
            Ok(0) => break true,
            Ok(n) => all.extend_from_slice(&buffer[..n]),
            Err(_) => break false,
        }
    };
    (String::from_utf8(all).unwrap(), ended)
}

fn piece(bytes: usize) -> Piece {
    vec![b'x'; bytes].into()
}

fn waits<D>(conns: &Conns<D>) -> u64 {
    conns.stats.get(Stat::OutboxBytes)
}

/// Ends what is doomed, as the worker does.
fn reap<D: Hung>(conns: &mut Conns<D>) {
    while let Some((index, doom)) = conns.next_doomed() {
        match doom {
            Doom::Drop(_) => conns.remove(index),
            Doom::Finish(_) => conns.close(index, LINGER_MS),
        }
    }
}

/// A slow consumer is doomed by the push that is too much, and the pushing code goes on.
#[test]
fn a_push_that_is_too_much_dooms() {
    let mut conns = conns::<u8>();
    conns.settings.outbox_bytes_max = 2_000_000;
    let (index, mut client) = enter_as(&mut conns, Phase::Live);
    let conn = conns.table.conn(index);
    for _ in 0..9 {
        conns.push(index, piece(1_000_000));
    }
    assert_eq!((conns.stats.get(Stat::SlowConsumers), waits(&conns)), (1, 0));
    assert!(conns.find(conn).is_none() && !conns.is_in(index, Phase::Live) && conns.has_more());
    assert_eq!(conns.stats.get(Stat::Sessions), 1, "it isn't ended yet");
    assert_eq!(conns.next_doomed(), Some((index, Doom::Drop(CloseReason::SlowConsumer))));
    assert_eq!(conns.next_doomed(), None);
    conns.remove(index);
    assert_eq!((conns.stats.get(Stat::Sessions), conns.table.used()), (0, 0));
    assert!(read(&mut client).1);
}

/// http.md 12.1: the room that was left in a socket is filled at the first check, and isn't taken
/// for a client that reads at the last.
#[test]
fn who_takes_nothing_has_no_time_twice() {
    let mut conns = conns::<u8>();
    (conns.settings.outbox_bytes_max, conns.settings.outbox_ms_max) = (usize::MAX, 9_000);
    let (index, mut client) = enter_as(&mut conns, Phase::Live);
    (0..20).for_each(|_| conns.push(index, piece(100_000)));
    (conns.clock.now_ms, conns.clock.heard_ms) = (1_000, 1_000);
    conns.flush_dirty();
    let before = waits(&conns);
    assert_eq!(client.read(&mut [0; 100_000]).unwrap(), 100_000, "what nobody tells of");
    let mut check = |ms: u64| {
        (conns.clock.now_ms, conns.clock.heard_ms) = (ms, ms);
        conns.check_outbox(index);
        (conns.stats.get(Stat::SlowConsumers), waits(&conns))
    };
    let (slow, waits) = check(5_000);
    assert!(slow == 0 && waits < before, "{waits} of {before}");
    assert_eq!(check(10_000), (0, waits));
    assert_eq!(check(13_999), (0, waits));
    assert_eq!(check(14_000), (1, 0));
}

/// All outboxes together: the fullest go at once, down to seven eighths, and the one that is pushed
/// to may be among them.
#[test]
fn the_bound_of_all_outboxes_is_exact() {
    let mut conns = conns::<u8>();
    conns.settings.outboxes_bytes_max = 8_000_000;
    let mut clients = Vec::new();
    for n in 1..=4 {
        let (index, client) = enter_as(&mut conns, Phase::Live);
        conns.settings.outbox_bytes_max = usize::MAX;
        conns.push(index, piece(500_000 * n));
        clients.push((index, client));
    }
    conns.flush_dirty();
    let mut most = 0;
    for _ in 0..40 {
        conns.push(clients[0].0, piece(100_000));
        most = most.max(waits(&conns));
    }
    assert!(most <= 8_000_000 && waits(&conns) <= 7_000_000, "{most}, {}", waits(&conns));
    let doomed: Vec<u32> = std::iter::from_fn(|| conns.next_doomed()).map(|(n, _)| n).collect();
    assert!(!doomed.is_empty() && doomed.len() as u64 == conns.stats.get(Stat::OutboxFull));
}

/// A doomed connection that was ended meanwhile doesn't end the next one in its slot.
#[test]
fn a_doom_concerns_one_connection() {
    let mut conns = conns::<u8>();
    let (first, _client) = enter(&mut conns);
    conns.doom(first, CloseReason::Vanished);
    conns.doom(first, CloseReason::Client);
    conns.remove(first);
    let mut clients = Vec::new();
    while clients.last().is_none_or(|(index, _)| *index != first) {
        clients.push(enter(&mut conns));
    }
    assert_eq!(conns.next_doomed(), None);
    conns.doom(first, CloseReason::Client);
    assert_eq!(conns.next_doomed(), Some((first, Doom::Drop(CloseReason::Client))));
}

/// A connection that is to finish: its outbox is written, later pushes aren't, then comes the end.
#[test]
fn who_finishes_gets_what_waits() {
    let mut conns = conns::<u8>();
    let (index, mut client) = enter(&mut conns);
    conns.push(index, b"answer"[..].into());
    conns.doom_gently(index, CloseReason::Client);
    conns.push(index, b"more"[..].into());
    conns.flush_dirty();
    assert_eq!(read(&mut client), (String::new(), false));
    reap(&mut conns);
    assert_eq!(conns.phase(index), Phase::Closing);
    conns.flush_dirty();
    assert_eq!(read(&mut client), ("answer".into(), true));
    drop(client);
    conns.discard(index);
    reap(&mut conns);
    assert_eq!((conns.table.used(), waits(&conns)), (0, 0));
}

/// The client closed its side: a request still gets its answer, a stream is over.
#[test]
fn who_says_all_still_reads() {
    for (phase, waits, ended) in [
        (Phase::Http, true, Doom::Finish(CloseReason::Client)),
        (Phase::Http, false, Doom::Drop(CloseReason::Client)),
        (Phase::Live, true, Doom::Drop(CloseReason::Client)),
    ] {
        let mut conns = conns::<u8>();
        let (index, client) = enter_as(&mut conns, phase);
        if waits {
            conns.push(index, b"answer"[..].into());
        }
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut buffer = [0; 100];
        assert_eq!(conns.read(index, &mut buffer, 100), None);
        assert_eq!(conns.next_doomed(), Some((index, ended)), "{phase:?}");
    }
}

/// Gauges are what phases are, whatever happens.
#[test]
fn gauges_follow_phases() {
    let mut conns = conns::<u8>();
    let gauges = |conns: &Conns<u8>| {
        [Stat::Waiting, Stat::Opening, Stat::Sessions].map(|stat| conns.stats.get(stat))
    };
    let (waiting, _a) = enter_as(&mut conns, Phase::Waiting);
    let (opening, _b) = enter_as(&mut conns, Phase::Opening);
    let (live, _c) = enter_as(&mut conns, Phase::Live);
    assert_eq!(gauges(&conns), [1, 1, 1]);
    conns.become_of(live, Phase::Http);
    assert_eq!(gauges(&conns), [1, 1, 0]);
    conns.close(waiting, 1);
    conns.slot(opening).unwrap().set(flag::ANNOUNCED);
    conns.remove(opening);
    assert_eq!((gauges(&conns), conns.phase(opening)), ([0, 0, 0], Phase::Left));
    conns.forget_left(opening);
    assert_eq!((conns.phase(opening), conns.table.used()), (Phase::Free, 2));
}

/// Nobody comes back from the end, and a session has one way.
#[test]
fn phases_have_their_order() {
    const ALL: [Phase; 9] = [
        Phase::Free,
        Phase::Proxy,
        Phase::Handshake,
        Phase::Http,
        Phase::Waiting,
        Phase::Opening,
        Phase::Live,
        Phase::Closing,
        Phase::Left,
    ];
    let before = |next: Phase| ALL.into_iter().filter(|phase| phase.may_become(next)).count();
    assert_eq!([Phase::Waiting, Phase::Opening, Phase::Live].map(before), [1, 1, 1]);
    for phase in ALL {
        assert!(!Phase::Left.may_become(phase) || phase == Phase::Free);
        let may = Phase::Closing.may_become(phase);
        assert_eq!(may, matches!(phase, Phase::Closing | Phase::Left | Phase::Free), "{phase:?}");
    }
}

/// A deadline is looked at when it has come and not before, and a lower one is kept.
#[test]
fn deadlines_are_looked_at() {
    let mut conns = conns::<u8>();
    let (index, _client) = enter(&mut conns);
    conns.clock.now_ms = 0;
    conns.set_deadline(index, 10 * TICK_MS);
    conns.lower_deadline(index, 20 * TICK_MS);
    conns.lower_deadline(index, 5 * TICK_MS);
    let late = |conns: &mut Conns<u8>, tick: u64| {
        let mut late = 0;
        while let Some((bucket, checks)) = conns.checks_due(tick) {
            for index in checks {
                late += u32::from(conns.is_late(index, bucket, tick as u32));
            }
        }
        late
    };
    assert_eq!((1..=5).map(|tick| late(&mut conns, tick)).collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
    conns.set_deadline(index, 10 * TICK_MS);
    conns.set_deadline(index, 30 * TICK_MS);
    assert_eq!(late(&mut conns, 29), 0, "it was moved on");
    conns.doom(index, CloseReason::Client);
    assert_eq!(late(&mut conns, 30), 0, "who is doomed is not late");
}

/// Who asks is told whose outbox became empty.
#[test]
fn an_empty_outbox_is_told_of_on_request() {
    let mut conns = conns::<u8>();
    let (index, _client) = enter_as(&mut conns, Phase::Live);
    for tells in [false, true] {
        conns.tell_emptied(tells);
        conns.push(index, b"event"[..].into());
        conns.flush_dirty();
        assert_eq!(conns.next_emptied(), tells.then_some(index));
    }
    assert!(conns.ready.is_empty());
    conns.table.set_detail(index, 1);
    conns.push(index, b"event"[..].into());
    conns.flush_dirty();
    assert_eq!(conns.ready, [index], "bytes that are kept are gone on with");
}
