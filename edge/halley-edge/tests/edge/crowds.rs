//! Clause 11.4 and http.md 12: many large events for a group at once, and members that take their
//! time over them, or take nothing.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use halley_link::{CloseReason, Event, Frame, List};

use crate::brain::{Brain, Edge, Seen, conn_items};
use crate::client::{Client, sse, sse_event};

const GROUP: u32 = 7;
const EVENT_BYTES: usize = 60_000;
/// Together more than `outbox_bytes_max` and what kernels hold.
const EVENTS: u64 = 64;
/// Less than a burst. A third of it is in flight at most, which is what each member has to read
/// within the worker's patience of 200 ms: three events, so that the members do on a machine that
/// has much else to do.
const OUTBOX: (&str, &str) = ("outbox_bytes_max", "600000");
/// How long a client thinks about each event.
const PAUSE: Duration = Duration::from_millis(2);

/// These tests are about fractions of a second in which members read. So no two of them run beside
/// each other, in copies neither: as long as this is held.
fn alone() -> UnixListener {
    let name = SocketAddr::from_abstract_name("halley-edge-crowds").unwrap();
    loop {
        match UnixListener::bind_addr(&name) {
            Ok(held) => return held,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn json(seq: u64) -> String {
    let head = format!(r#"{{"id":"{seq}","subject":"s","at":{seq},"data":""#);
    format!("{head}{}\"}}", "x".repeat(EVENT_BYTES))
}

fn sse_json(seq: u64) -> String {
    sse_event("c", &json(seq))
}

/// Members whose kernels hold little for them: what they have offered already, and no more. If it
/// were less, what is on its way would be thrown away, and sent again 200 ms later: a member that
/// reads would seem slow.
fn members(edge: &Edge, brain: &mut Brain, count: usize) -> (Vec<Client>, Vec<u64>) {
    let (clients, conns): (Vec<_>, Vec<_>) =
        (0..count).map(|n| sse(edge, brain, &format!("u{n}"))).unzip();
    for client in &clients {
        socket2::SockRef::from(&client.socket).set_recv_buffer_size(65_536).unwrap();
    }
    let items = conn_items(&conns);
    let list = List::from_items(conns.len() as u16, &items);
    brain.send(&Frame::GroupJoin { group: GROUP, conns: list });
    (clients, conns)
}

/// All at once, as far as the edge reads.
fn burst(brain: &mut Brain) {
    let texts: Vec<String> = (1..=EVENTS).map(json).collect();
    let frames: Vec<Frame<'_>> = (1..=EVENTS)
        .zip(&texts)
        .map(|(seq, text)| Frame::GroupDeliver {
            group: GROUP,
            event: Event {
                shard: 1,
                seq,
                at: seq,
                data_offset: (text.len() - EVENT_BYTES - 3) as u32,
                subject_offset: text.find(r#"s","at"#).unwrap() as u16,
                subject_bytes: 1,
                cursor: b"c",
                json: text.as_bytes(),
            },
        })
        .collect();
    brain.send_together(&frames);
}

/// Clients that read all events, each at its own slow pace.
fn readers(clients: Vec<Client>) -> Vec<JoinHandle<Client>> {
    let read = |mut client: Client| {
        for seq in 1..=EVENTS {
            client.expect_chunk(&sse_json(seq));
            std::thread::sleep(PAUSE);
        }
        client
    };
    clients.into_iter().map(|client| std::thread::spawn(move || read(client))).collect()
}

/// When they have read everything; they stay connected.
fn join(readers: Vec<JoinHandle<Client>>) -> Vec<Client> {
    readers.into_iter().map(|reader| reader.join().unwrap()).collect()
}

/// How long it takes them to read all of a burst.
fn read_a_burst(brain: &mut Brain, clients: Vec<Client>) -> (Duration, Vec<Client>) {
    let began = Instant::now();
    let readers = readers(clients);
    burst(brain);
    let all = join(readers);
    (began.elapsed(), all)
}

fn expect_slow(brain: &mut Brain, mut conns: Vec<u64>) {
    while !conns.is_empty() {
        match brain.next() {
            Seen::Close(sessions) => {
                for (conn, _) in sessions {
                    assert_eq!(brain.reasons[&conn], CloseReason::SlowConsumer);
                    let place = conns.iter().position(|c| *c == conn);
                    conns.remove(place.expect("who reads stays"));
                }
            }
            other => panic!("not CLOSE: {other:?}"),
        }
    }
}

/// http.md 12.1 is about slow clients: that a group's events come together is not their doing.
#[test]
fn who_reads_gets_a_burst_whole() {
    let _alone = alone();
    let (edge, mut brain) = Edge::start(&[OUTBOX]);
    let (clients, _) = members(&edge, &mut brain, 12);
    let readers = readers(clients);
    burst(&mut brain);
    let all = join(readers);
    brain.stat_becomes("group_delivered_total", 12 * EVENTS);
    brain.stat_becomes("slow_consumers_total", 0);
    brain.stat_becomes("outbox_bytes", 0);
    drop(all);
}

/// http.md 12.1: who takes nothing is a slow consumer as ever, and those beside it get everything.
#[test]
fn who_reads_nothing_is_closed() {
    let _alone = alone();
    let (edge, mut brain) = Edge::start(&[OUTBOX]);
    let (mut clients, mut conns) = members(&edge, &mut brain, 6);
    let (stalled, slow) = (clients.split_off(4), conns.split_off(4));
    let readers = readers(clients);
    burst(&mut brain);
    let all = join(readers);
    expect_slow(&mut brain, slow);
    brain.stat_becomes("slow_consumers_total", 2);
    brain.stat_becomes("group_events_in_flight", 0);
    drop((all, stalled));
}

/// http.md 12.3: who may stay though it takes nothing holds the others up once, not at each event.
#[test]
fn who_reads_nothing_and_stays_is_waited_for_once() {
    let _alone = alone();
    // What it takes on this machine where everybody reads.
    let (edge, mut brain) = Edge::start(&[OUTBOX]);
    let (clients, _) = members(&edge, &mut brain, 3);
    let (alone, _) = read_a_burst(&mut brain, clients);
    let (edge, mut brain) = Edge::start(&[OUTBOX, ("slow_consumer", "drop_oldest")]);
    let (mut clients, _) = members(&edge, &mut brain, 4);
    let stalled = clients.split_off(3);
    let (beside, all) = read_a_burst(&mut brain, clients);
    // The edge waits for 400 ms at most; it would be 21 times where a third of an outbox is full.
    let most = alone + alone / 2 + Duration::from_secs(3);
    assert!(beside < most, "{alone:?} without, {beside:?} beside one that takes nothing");
    brain.stat_becomes("slow_consumers_total", 0);
    brain.stat_becomes("group_delivered_total", 4 * EVENTS);
    drop((all, stalled));
}

/// link.md 5: `outboxes_bytes_max` holds for groups' events as well; the fullest go, and those
/// are who doesn't read.
#[test]
fn all_outboxes_together_are_bounded() {
    let _alone = alone();
    let (edge, mut brain) =
        Edge::start(&[("outbox_bytes_max", "100000000"), ("outboxes_bytes_max", "2000000")]);
    let (mut clients, mut conns) = members(&edge, &mut brain, 8);
    let (stalled, slow) = (clients.split_off(3), conns.split_off(3));
    let readers = readers(clients);
    burst(&mut brain);
    let all = join(readers);
    // 3.8 MB for each of the five are more than there is room for.
    expect_slow(&mut brain, slow);
    brain.stat_becomes("outboxes_full_total", 5);
    brain.stat_becomes("outbox_bytes", 0);
    drop((all, stalled));
}
