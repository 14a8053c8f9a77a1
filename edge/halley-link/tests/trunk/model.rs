//! Steps in any order, against what the clauses say in the simplest way.

use halley_link::trunk::Demux;
use halley_link::{Frame, Slot, Word};
use proptest::prelude::*;

use crate::frames::*;

/// What a script of the property below does.
#[derive(Clone, Debug)]
enum Step {
    Sync(u16),
    Ends(u16),
    Place(u16, u16),
    Follow(u16),
    Deliver(Vec<(u16, u64)>),
    Group(Vec<u16>),
    Inspect(u16),
    Finish,
}

fn step() -> impl Strategy<Value = Step> {
    let slots = prop::collection::btree_set(1..6u16, 0..4);
    let words = prop::collection::btree_set((1..6u16, 0..4u64), 0..8);
    prop_oneof![
        (0..3u16).prop_map(Step::Sync),
        (0..3u16).prop_map(Step::Ends),
        (0..4u16, 1..6u16).prop_map(|(worker, slot)| Step::Place(worker, slot)),
        (1..6u16).prop_map(Step::Follow),
        words.prop_map(|words| Step::Deliver(words.into_iter().collect())),
        slots.prop_map(|slots| Step::Group(slots.into_iter().collect())),
        (1..6u16).prop_map(Step::Inspect),
        Just(Step::Finish),
    ]
}

/// Of a worker: has it a place, how many syncs wait, its slot and whether that follows.
type Has = (bool, u32, Option<(u16, bool)>);

/// What the clauses say of the same steps, in the simplest way: who has which slot.
#[derive(Default)]
struct Model {
    workers: [Has; 3],
    expected: [Vec<String>; 3],
    seq: u64,
}

impl Model {
    fn of(&self, slot: u16) -> Option<usize> {
        let has = |worker: &Has| worker.2.is_some_and(|(its, _)| its == slot);
        self.workers.iter().position(has)
    }

    /// False if the step breaks a clause.
    fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::Sync(worker) => {
                let worker = &mut self.workers[usize::from(*worker)];
                (worker.0, worker.1) = (true, worker.1 + 1);
            }
            Step::Ends(worker) => {
                let worker = &mut self.workers[usize::from(*worker)];
                (worker.0, worker.2) = (false, None);
            }
            Step::Place(worker, slot) => {
                let index = usize::from(*worker);
                let of = self.of(*slot);
                let Some(worker) = self.workers.get_mut(index) else { return false };
                if worker.1 == 0 {
                    return false;
                }
                worker.1 -= 1;
                if worker.1 == 0 && worker.0 {
                    worker.2 = Some((*slot, false));
                    return of.is_none_or(|other| other == index);
                }
            }
            Step::Follow(slot) => {
                if let Some(index) = self.of(*slot) {
                    let follows = self.workers[index].2.replace((*slot, true));
                    let again = follows.is_some_and(|(_, follows)| follows);
                    let line = format!("cursor {}", 10.max(self.seq));
                    let line = if again { "frame 0x1b 1".to_owned() } else { line };
                    self.expected[index].push(line);
                }
            }
            Step::Deliver(words) => {
                self.seq += 1;
                for slot in 1..6 {
                    let its: Vec<_> = words.iter().filter(|word| word.0 == slot).collect();
                    let line = format!("deliver {0} {0} {its:?}", self.seq);
                    if !its.is_empty() && !self.event(slot, line) {
                        return false;
                    }
                }
            }
            Step::Group(slots) => {
                self.seq += 1;
                return slots.iter().all(|slot| {
                    let line = format!("group 9 {0} {0}", self.seq);
                    self.event(*slot, line)
                });
            }
            Step::Inspect(slot) => {
                if let Some(index) = self.of(*slot) {
                    self.expected[index].push("frame 0x1c 12".to_owned());
                }
            }
            Step::Finish => {}
        }
        true
    }

    fn event(&mut self, slot: u16, line: String) -> bool {
        let Some(index) = self.of(slot) else { return true };
        self.expected[index].push(line);
        self.workers[index].2.is_some_and(|(_, follows)| follows)
    }
}

fn play(demux: &mut Demux, step: &Step, seq: u64) -> Result<bool, &'static str> {
    match step {
        Step::Sync(worker) => demux.sync_begins(*worker),
        Step::Ends(worker) => drop(demux.ends(*worker)),
        Step::Place(worker, slot) => {
            return take(demux, &Frame::Place { worker: *worker, slot: *slot });
        }
        Step::Follow(slot) => return to_slot(demux, *slot, &Frame::Cursor { cursor: b"" }),
        Step::Deliver(words) => {
            let words: Vec<_> = words.iter().map(|(slot, conn)| Word::new(*slot, *conn)).collect();
            return deliver(demux, seq, &words);
        }
        Step::Group(slots) => {
            let slots: Vec<_> = slots.iter().map(|slot| Slot(*slot)).collect();
            return group_deliver(demux, seq, &slots);
        }
        Step::Inspect(slot) => {
            return to_slot(demux, *slot, &Frame::Inspect { token: 1, conn: 2 });
        }
        Step::Finish => {}
    }
    Ok(false)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever comes in whatever order, each worker gets what the clauses say, and the same clause
    /// is broken at the same step.
    #[test]
    fn each_worker_gets_what_is_its_own(steps in prop::collection::vec(step(), 0..60)) {
        let mut demux = demux(3);
        take(&mut demux, &Frame::Cursor { cursor: START }).unwrap();
        let mut model = Model { seq: 10, ..Model::default() };
        let mut got = [const { Vec::new() }; 3];
        for step in &steps {
            // What wasn't handed over is dropped when a place ends.
            if matches!(step, Step::Finish | Step::Ends(_)) {
                for (worker, lines) in gathered(&mut demux) {
                    got[usize::from(worker)].extend(lines);
                }
            }
            let good = model.step(step);
            let played = play(&mut demux, step, model.seq);
            prop_assert_eq!(played.is_ok(), good, "{:?} {:?}", step, played);
            if !good {
                return Ok(());
            }
        }
        for (worker, lines) in gathered(&mut demux) {
            got[usize::from(worker)].extend(lines);
        }
        prop_assert_eq!(got, model.expected);
    }
}
