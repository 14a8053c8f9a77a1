//! Workers' frames for the brain.

use std::sync::Arc;
use std::sync::mpsc::channel;

use halley_link::Frame;
use halley_link::trunk::{Outbound, Sleeper};

fn request_body(worker: u16, body: &[u8]) -> Vec<u8> {
    let (mut inner, mut out) = (Vec::new(), Vec::new());
    Frame::RequestBody { conn: 1, flags: 0, body }.encode(&mut inner);
    Frame::FromWorker { worker, kind: inner[4], payload: &inner[5..] }.encode(&mut out);
    out
}

/// Whole frames in order, and nothing of an earlier place (13.7).
#[test]
fn what_a_worker_has_to_say_is_of_its_place() {
    let outbound = Outbound::default();
    let frames: Vec<_> = (0..10).map(|n| request_body(3, &[n; 100])).collect();
    let mut taken = Vec::new();
    outbound.begin(1);
    outbound.send(1, &mut frames.concat());
    assert_eq!(outbound.bytes(), frames.concat().len());
    outbound.take(1, |frame| taken.push(frame.to_vec()));
    outbound.take(frames[0].len() + 1, |frame| taken.push(frame.to_vec()));
    assert_eq!(taken, frames[..3]);
    outbound.take(usize::MAX, |frame| taken.push(frame.to_vec()));
    assert_eq!((taken, outbound.bytes()), (frames.clone(), 0));
    outbound.send(1, &mut frames[0].clone());
    outbound.begin(2);
    let mut late = frames[1].clone();
    outbound.send(1, &mut late);
    assert!(late.is_empty() && outbound.bytes() == 0);
    outbound.send(2, &mut frames[2].clone());
    let mut rest = Vec::new();
    outbound.take(usize::MAX, |frame| rest.push(frame.to_vec()));
    assert_eq!(rest, frames[2..3]);
}

/// Several workers send while the owner takes and sleeps.
#[test]
fn the_owner_gets_what_all_workers_send() {
    const FRAMES: usize = 500;
    let all: Arc<Vec<Outbound>> = Arc::new((0..4).map(|_| Outbound::default()).collect());
    let (sleeper, (ring_it, bell)) = (Arc::new(Sleeper::default()), channel());
    let workers: Vec<_> = (0..4u16)
        .map(|worker| {
            let (all, sleeper, ring_it) = (Arc::clone(&all), Arc::clone(&sleeper), ring_it.clone());
            std::thread::spawn(move || {
                for n in 0..FRAMES {
                    let mut frame = request_body(worker, &(n as u32).to_be_bytes());
                    all[usize::from(worker)].send(0, &mut frame);
                    if sleeper.must_be_woken() {
                        ring_it.send(()).unwrap();
                    }
                }
            })
        })
        .collect();
    let mut seen = vec![Vec::new(); 4];
    loop {
        for (worker, outbound) in all.iter().enumerate() {
            outbound.take(200, |frame| seen[worker].push(frame.to_vec()));
        }
        if seen.iter().map(Vec::len).sum::<usize>() == 4 * FRAMES {
            break;
        }
        if sleeper.may_sleep(|| all.iter().any(|outbound| outbound.bytes() > 0)) {
            bell.recv().unwrap();
            sleeper.awake();
        }
    }
    workers.into_iter().for_each(|thread| thread.join().unwrap());
    for (worker, frames) in seen.iter().enumerate() {
        for (n, frame) in frames.iter().enumerate() {
            assert_eq!(*frame, request_body(worker as u16, &(n as u32).to_be_bytes()));
        }
    }
}
