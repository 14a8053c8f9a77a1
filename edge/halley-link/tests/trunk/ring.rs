//! Entries that wait for a worker, and its wake-up.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use halley_link::Word;
use halley_link::trunk::{Begin, Brought, Demux, End, Handed, Ring, Sleeper, is_left_behind};

use crate::frames::*;

/// What is on its way to a worker of the test: events with these numbers.
fn batches(seqs: std::ops::Range<u64>) -> Vec<Handed> {
    let mut demux = demux(1);
    follow(&mut demux, 0, 1);
    seqs.map(|seq| {
        deliver(&mut demux, seq, &[Word::new(1, 1)]).unwrap();
        let (_, part) = demux.finish().next().unwrap();
        Handed::Batch(part)
    })
    .collect()
}

fn seqs(handed: Handed, seen: &mut Vec<u64>) -> bool {
    match handed {
        Handed::Batch(mut part) => {
            while let Some(brought) = part.next() {
                let Brought::Deliver { event, .. } = brought else { panic!("{brought:?}") };
                seen.push(event.seq);
            }
            true
        }
        Handed::End(end) => {
            seen.push(end.cursor.as_deref().map_or(0, moved));
            false
        }
        Handed::Begin(_) | Handed::Cursor(_) => true,
    }
}

fn end(cursor: Option<&[u8]>) -> End {
    End { cursor: cursor.map(Into::into), why: "a test".into(), left_behind: false }
}

fn begin(place: u64) -> Handed {
    Handed::Begin(Begin { place, hello: [].into(), keys: None })
}

/// A worker of the test: takes all that there is, then sleeps until it is woken; gives back what it
/// saw, and how often it was woken.
fn worker(ring: &Ring, bell: &Receiver<()>) -> (Vec<u64>, u32) {
    let (mut seen, mut woken) = (Vec::new(), 0);
    loop {
        while let Some(handed) = ring.take() {
            if !seqs(handed, &mut seen) {
                return (seen, woken);
            }
        }
        if ring.may_sleep() {
            bell.recv().unwrap();
            woken += 1;
            ring.awake();
        }
    }
}

fn ring_with_bell() -> (Arc<Ring>, Sender<()>, Receiver<()>) {
    let (ring_it, bell) = channel();
    (Arc::new(Ring::default()), ring_it, bell)
}

/// Order is kept, no wake-up is missed, and the end with its token is the last.
#[test]
fn a_worker_gets_all_in_order_and_then_the_end() {
    let (ring, ring_it, bell) = ring_with_bell();
    let thread = std::thread::spawn({
        let ring = Arc::clone(&ring);
        move || worker(&ring, &bell)
    });
    let mut rung = 0;
    for (number, handed) in batches(11..3_011).into_iter().enumerate() {
        if ring.put(handed).wake {
            rung += 1;
            ring_it.send(()).unwrap();
        }
        if number % 100 == 0 {
            std::thread::yield_now();
        }
    }
    if ring.end(end(Some(START))) {
        rung += 1;
        ring_it.send(()).unwrap();
    }
    let (seen, woken) = thread.join().unwrap();
    assert_eq!(seen[..3_000], (11..3_011).collect::<Vec<_>>());
    assert_eq!(seen[3_000..], [10], "the end says where the trunk was");
    assert_eq!(woken, rung);
    assert!(ring.is_empty() && ring.bytes() == 0);
}

/// One wake-up for who sleeps, none for who runs.
#[test]
fn who_sleeps_is_woken_once() {
    let ring = Ring::default();
    let mut handed = batches(11..18).into_iter();
    let mut put = || ring.put(handed.next().unwrap()).wake;
    assert!(!put(), "it runs");
    assert!(!ring.may_sleep(), "something waits");
    assert!(ring.take().is_some() && ring.may_sleep());
    ring.put_cursor(START.into());
    assert!(put() && !put());
    assert!(!ring.may_sleep());
    while ring.take().is_some() {}
    assert!(ring.may_sleep());
    ring.awake();
    assert!(!put(), "it woke by itself");
    assert!(!ring.replace([begin(1)]));
    assert!(ring.take().is_some() && ring.may_sleep() && ring.replace([begin(2)]));
}

/// Only one of several who have something wakes the sleeper.
#[test]
fn one_of_many_wakes_the_sleeper() {
    let sleeper = Arc::new(Sleeper::default());
    for _ in 0..200 {
        assert!(sleeper.may_sleep(|| false));
        let wakers: Vec<_> = (0..4)
            .map(|_| {
                let sleeper = Arc::clone(&sleeper);
                std::thread::spawn(move || u32::from(sleeper.must_be_woken()))
            })
            .collect();
        assert_eq!(wakers.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>(), 1);
        assert!(!sleeper.may_sleep(|| true) && !sleeper.must_be_woken());
    }
}

/// A cursor that is alone takes the place of one before it, so that a worker which takes nothing
/// has one.
#[test]
fn cursors_do_not_pile_up() {
    let ring = Ring::default();
    ring.put_cursor([1].into());
    ring.put_cursor([2].into());
    let _ = ring.put(batches(11..12).pop().unwrap());
    ring.put_cursor([3].into());
    let all: Vec<_> = std::iter::from_fn(|| ring.take()).collect();
    let kinds: Vec<_> = all
        .iter()
        .map(|handed| match handed {
            Handed::Cursor(cursor) => cursor[0],
            _ => 0,
        })
        .collect();
    assert_eq!(kinds, [2, 0, 3]);
}

/// A ring that is emptied for its worker lets go of the batches, and has what it is given instead.
#[test]
fn a_ring_that_is_replaced_lets_go() {
    let (dealt, _) = dealt();
    let mut demux = Demux::new(1, Arc::clone(&dealt));
    follow(&mut demux, 0, 1);
    let ring = Ring::default();
    let mut bytes = 0;
    for seq in 20..30 {
        deliver(&mut demux, seq, &[Word::new(1, 1)]).unwrap();
        for (_, part) in demux.finish() {
            bytes = ring.put(Handed::Batch(part)).bytes;
        }
    }
    assert!(bytes == ring.bytes() && bytes > 10 * 50 && dealt.batches() == 10);
    let _ = ring.replace([Handed::End(end(None)), begin(2)]);
    assert_eq!(dealt.batches(), 0);
    assert!(ring.bytes() < bytes);
    assert!(matches!(ring.take(), Some(Handed::End(End { cursor: None, .. }))));
    assert!(matches!(ring.take(), Some(Handed::Begin(Begin { place: 2, .. }))));
    assert!(ring.take().is_none());
}

/// Trunks come and go while a worker stands still: what it finds is the end of the place that it
/// knows.
#[test]
fn a_place_that_its_worker_never_saw_leaves_nothing() {
    let ring = Ring::default();
    let _ = ring.put(begin(1));
    assert!(ring.take().is_some());
    let _ = ring.put(batches(11..12).pop().unwrap());
    let _ = ring.end(end(Some(START)));
    for place in 2..50 {
        let _ = ring.put(begin(place));
        let _ = ring.put(batches(11..12).pop().unwrap());
        let _ = ring.end(end(None));
    }
    assert!(matches!(ring.take(), Some(Handed::Batch(_))));
    assert!(matches!(ring.take(), Some(Handed::End(End { cursor: Some(_), .. }))));
    assert!(ring.take().is_none() && ring.bytes() == 0);
}

#[test]
fn who_is_left_behind_and_who_is_slow_like_all() {
    let left = |bytes, all: &[usize]| is_left_behind(bytes, 100, all.iter().copied());
    assert!(!left(50, &[50, 0, 0, 0]), "half of the window");
    assert!(left(51, &[51, 0, 25, 0]));
    assert!(left(51, &[51, 0]));
    assert!(!left(51, &[51, 40, 0]), "more than half are slow");
    assert!(!left(51, &[51]), "a worker alone");
}
