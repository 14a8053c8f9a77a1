//! One client's view of numbered events, and a random test of the rows against sets.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::clients::users::Users;
use crate::rng::Rng;
use std::collections::BTreeSet;

fn tracker(name: &str, lines: &str, connections: u64) -> Tracker {
    let name = format!("halley-load-track-{name}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, lines).unwrap();
    let follows = Follows::read(&path, &Users::parse("1:9").unwrap(), connections).unwrap();
    std::fs::remove_file(&path).unwrap();
    Tracker::new(Arc::new(follows), 0..connections as usize)
}

fn see(tracker: &mut Tracker, slot: usize, subject: &str, number: u32, at_ns: u64) {
    let json = format!(r#"{{"id":"x","subject":"{subject}","data":{{"t":{at_ns},"n":{number}}}}}"#);
    tracker.event(slot, Event { json: json.as_bytes() }, Some(at_ns), at_ns + 1);
}

#[test]
fn numbers_left_out_twice_and_late_are_told_apart() {
    let mut tracker = tracker("places", "1 a\n1 b\n", 1);
    for number in [1, 2, 5, 4, 4, 2, 6] {
        see(&mut tracker, 0, "a", number, 10);
    }
    see(&mut tracker, 0, "b", 1, 10);
    see(&mut tracker, 0, "stranger", 9, 10);
    let expected =
        Found { numbered: 8, duplicates: 2, order_breaks: 1, gaps: 1, ..Found::default() };
    assert_eq!(tracker.found, expected);
}

#[test]
fn who_has_all_that_was_expected_owes_nothing() {
    let mut tracker = tracker("owed", "1 a\n2 a\n2 b\n", 2);
    let (a, b) = (tracker.follows.subject(b"a").unwrap(), tracker.follows.subject(b"b").unwrap());
    let mut numbers = vec![0; 2];
    (numbers[a as usize], numbers[b as usize]) = (3, 1);
    see(&mut tracker, 0, "a", 1, 10);
    see(&mut tracker, 1, "a", 2, 10);
    tracker.owe(numbers.into());
    assert_eq!((tracker.standing.owing, tracker.standing.owed), (2, 2 + 3));
    for (slot, subject, number, at) in
        [(0, "a", 2, 20), (0, "a", 3, 30), (1, "b", 1, 40), (1, "a", 3, 50), (1, "a", 4, 60)]
    {
        see(&mut tracker, slot, subject, number, at);
    }
    assert_eq!((tracker.standing.owing, tracker.standing.owed), (1, 1), "number 1 of a is lost");
    assert_eq!(tracker.standing.last_caught_up_ns, 31);
    see(&mut tracker, 1, "a", 1, 70);
    assert_eq!((tracker.standing.owing, tracker.standing.owed), (0, 0));
    assert_eq!((tracker.standing.last_caught_up_ns, tracker.found.caught_up), (71, 5));
}

#[test]
fn who_comes_back_as_a_stranger_starts_anew() {
    let mut tracker = tracker("forget", "1 a\n", 1);
    tracker.cursor(0, b"c1");
    assert_eq!((tracker.cursor_of(0), tracker.standing.cursors), (Some(&b"c1"[..]), 1));
    tracker.cursor(0, &[b'x'; CURSOR_BYTES_MAX + 1]);
    assert_eq!(tracker.cursor_of(0), Some(&b"c1"[..]));
    see(&mut tracker, 0, "a", 1, 10);
    tracker.owe(Arc::new([9]));
    tracker.forget(0);
    assert_eq!(tracker.standing, Standing::default());
    assert_eq!(tracker.cursor_of(0), None);
    see(&mut tracker, 0, "a", 50, 20);
    see(&mut tracker, 0, "a", 51, 20);
    assert_eq!((tracker.found.gaps, tracker.found.duplicates), (0, 0));
}

#[test]
fn events_from_before_are_no_flow() {
    let mut tracker = tracker("flow", "1 a\n2 a\n", 2);
    tracker.flow(100);
    for (slot, stamp_ns) in [(0, 99), (1, 100), (1, 200), (0, 300)] {
        see(&mut tracker, slot, "a", 1, stamp_ns);
    }
    let Standing { flowing, first_flow_ns, last_flow_ns, .. } = tracker.standing;
    assert_eq!((flowing, first_flow_ns, last_flow_ns), (2, 101, 301));
    tracker.flow(400);
    assert_eq!(tracker.standing.flowing, 0);
}

#[test]
fn rows_agree_with_sets_of_numbers() {
    let mut rng = Rng::new(7);
    for _ in 0..300 {
        let mut row = Row { subject: 0, last: 0, holes: Vec::new() };
        let (mut seen, mut last) = (BTreeSet::new(), 0);
        for _ in 0..40 {
            let number = 1 + rng.below(30) as u32;
            let place = match number {
                _ if !seen.insert(number) => Place::Again,
                _ if number < last => Place::Late,
                _ if number == last + 1 => Place::Next,
                _ => Place::AfterGap,
            };
            last = last.max(number);
            assert_eq!(row.see(number), place);
            let expected = rng.below(40) as u32;
            let missing = (1..=expected).filter(|number| !seen.contains(number)).count();
            assert_eq!(row.missing(expected) as usize, missing);
        }
    }
}
