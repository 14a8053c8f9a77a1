//! Members and events in flight, without a worker.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const SLOTS: u32 = 150;

#[derive(Clone, Debug)]
enum Step {
    Join(u32, u32),
    Leave(u32, u32),
    End(u32),
    EndAll,
    Strike(u32),
    Event(u32),
    /// Something else is written to this slot.
    Other(u32),
    /// A slice of so many members; of those with an odd slot, so many have no room.
    Slice(usize, usize),
    /// There is room again.
    Room(u32),
    OutOfGrace,
}

fn step() -> impl Strategy<Value = Step> {
    let slot = || prop_oneof![0..8u32, 0..SLOTS];
    let group = || 1..4u32;
    prop_oneof![
        6 => (group(), slot()).prop_map(|(group, slot)| Step::Join(group, slot)),
        2 => (group(), slot()).prop_map(|(group, slot)| Step::Leave(group, slot)),
        1 => group().prop_map(Step::End),
        1 => Just(Step::EndAll),
        2 => slot().prop_map(Step::Strike),
        4 => group().prop_map(Step::Event),
        2 => slot().prop_map(Step::Other),
        3 => (0..6usize, 0..3usize).prop_map(|(all, lagging)| Step::Slice(all, lagging)),
        2 => slot().prop_map(Step::Room),
        1 => Just(Step::OutOfGrace),
    ]
}

/// What a client sees: events by number, and other writes by a number of their own.
#[derive(Default)]
struct Model {
    groups: BTreeMap<u32, BTreeSet<u32>>,
    /// For the session in each slot, what it has to see in the end.
    due: BTreeMap<u32, Vec<usize>>,
}

#[derive(Default)]
struct Run {
    groups: Groups<usize>,
    seen: BTreeMap<u32, Vec<usize>>,
}

impl Run {
    fn take_all(&mut self, slot: u32) {
        let mut from = 0;
        while let Some(event) = self.groups.take(slot, &mut from) {
            self.seen.entry(slot).or_default().push(*event);
        }
        self.groups.has_room(slot);
    }

    fn slice(&mut self, members: usize, mut lagging: usize) {
        for _ in 0..members {
            let Some(slot) = self.groups.next() else { return };
            if slot % 2 == 1 && lagging > 0 {
                lagging -= 1;
                self.groups.lags(slot);
            } else {
                self.take_all(slot);
            }
        }
    }

    /// Twice, since a session that has just begun to lag is given time.
    fn end(&mut self) {
        for _ in 0..2 {
            self.slice(usize::MAX, 0);
            self.groups.out_of_grace().into_iter().for_each(|slot| self.take_all(slot));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// 11.4: GROUP_DELIVER does at each member what DELIVER does, whatever comes in between:
    /// each event once, none that is from before or behind the membership, in order with
    /// whatever else is written.
    #[test]
    fn as_if_delivered_at_once(steps in prop::collection::vec(step(), 0..120)) {
        let (mut model, mut run) = (Model::default(), Run::default());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Join(group, slot) => {
                    let added = model.groups.entry(group).or_default().insert(slot);
                    prop_assert_eq!(run.groups.join(group, slot), Ok(added));
                }
                Step::Leave(group, slot) => {
                    let removed = model.groups.get_mut(&group).is_some_and(|g| g.remove(&slot));
                    prop_assert_eq!(run.groups.leave(group, slot), removed);
                }
                Step::End(group) => {
                    let members = model.groups.remove(&group).map_or(0, |group| group.len());
                    prop_assert_eq!(run.groups.end(group), members);
                }
                Step::EndAll => {
                    model.groups.clear();
                    run.groups.end_all();
                }
                Step::Strike(slot) => {
                    let groups = model.groups.values_mut();
                    let of: usize = groups.map(|group| usize::from(group.remove(&slot))).sum();
                    prop_assert_eq!(run.groups.remove_member(slot), of);
                    // The slot's next session has seen nothing; the old one may miss the end.
                    let due = model.due.remove(&slot).unwrap_or_default();
                    let seen = run.seen.remove(&slot).unwrap_or_default();
                    prop_assert!(due.starts_with(&seen));
                }
                Step::Event(group) => {
                    for slot in model.groups.get(&group).into_iter().flatten() {
                        model.due.entry(*slot).or_default().push(number);
                    }
                    run.groups.begin(group, 1, || number);
                }
                Step::Other(slot) => {
                    model.due.entry(slot).or_default().push(number);
                    run.take_all(slot);
                    run.seen.entry(slot).or_default().push(number);
                    prop_assert_eq!(&run.seen[&slot], &model.due[&slot]);
                }
                Step::Slice(members, lagging) => run.slice(members, lagging),
                Step::Room(slot) => run.groups.has_room(slot),
                Step::OutOfGrace => {
                    run.groups.out_of_grace().into_iter().for_each(|slot| run.take_all(slot));
                }
            }
        }
        run.end();
        prop_assert_eq!(run.groups.next(), None);
        prop_assert_eq!((run.groups.in_flight(), run.groups.bytes()), (0, 0));
        prop_assert!(!run.groups.any_lagging());
        prop_assert_eq!(run.seen, model.due);
    }
}

/// 11.2: "A worker holds at most 1,024 groups".
#[test]
fn groups_are_bounded() {
    let mut groups = Groups::<()>::default();
    for group in 0..GROUPS_MAX as u32 {
        assert_eq!(groups.join(group, 7), Ok(true));
    }
    assert_eq!(groups.join(9_999, 7), Err(TooMany));
    assert_eq!(groups.join(1, 8), Ok(true), "one that is there has room");
    assert_eq!(groups.end(3), 1);
    assert_eq!(groups.join(9_999, 7), Ok(true));
}

/// Members that share a slice get several events in one turn, and the link waits at the bounds.
#[test]
fn who_is_served_has_all_that_is_in_flight() {
    let mut run = Run::default();
    run.groups.join(1, 3).unwrap();
    run.groups.join(1, 140).unwrap();
    for number in 0..IN_FLIGHT_MAX {
        assert!(!run.groups.full(1_000));
        run.groups.begin(1, 10, || number);
    }
    assert!(run.groups.full(1_000) && run.groups.full(10 * IN_FLIGHT_MAX));
    run.slice(1, 0);
    assert_eq!(run.seen[&3], (0..IN_FLIGHT_MAX).collect::<Vec<_>>());
    assert!(!run.seen.contains_key(&140));
    run.slice(2, 0);
    assert_eq!(run.seen[&140].len(), IN_FLIGHT_MAX);
    assert_eq!((run.groups.in_flight(), run.groups.bytes()), (0, 0));
    run.groups.begin(1, 999, || 0);
    assert!(!run.groups.full(1_000));
    run.groups.begin(1, 1, || 1);
    assert!(run.groups.full(1_000));
}

/// No member waits for a lagging one, and each lagging one is reported once in each grace.
#[test]
fn who_is_late_is_passed_over() {
    let mut run = Run::default();
    for slot in [3, 5, 140] {
        run.groups.join(1, slot).unwrap();
    }
    run.groups.begin(1, 1, || 0);
    run.slice(9, 2);
    assert_eq!(run.seen.keys().collect::<Vec<_>>(), [&140]);
    assert_eq!(run.groups.out_of_grace(), [0; 0]);
    run.groups.has_room(5);
    run.slice(9, 0);
    assert_eq!(run.seen.keys().collect::<Vec<_>>(), [&5, &140]);
    run.groups.begin(1, 1, || 1);
    run.slice(9, 0);
    assert_eq!(run.groups.out_of_grace(), [3]);
    run.take_all(3);
    assert_eq!(run.seen[&3], [0, 1]);
    assert_eq!((run.groups.next(), run.groups.any_lagging()), (None, false));
}
