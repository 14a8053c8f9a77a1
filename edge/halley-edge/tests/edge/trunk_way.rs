//! How the tests' brain speaks to the only worker of an edge, or to the first of several: a test
//! says what it would say to that worker alone, and here that travels on the trunk (link.md 13).
//! `trunk.rs` has the tests that see a trunk's frames as they are.

use halley_link::{Frame, Item, List, Slot, Word};

/// What becomes of the frames on a trunk.
#[derive(Default)]
pub struct TrunkWay {
    /// Of the first worker.
    slot: u16,
    /// Slots that there have been.
    slots: u16,
    /// Does the slot follow the trunk (13.6)? It does once there was a cursor.
    follows: bool,
}

impl TrunkWay {
    /// Writes what a brain says to a worker.
    pub fn encode(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let slot = self.slot;
        match *frame {
            Frame::Deliver { event, conns } if self.follows => {
                let mut words = Vec::new();
                conns.iter().for_each(|conn| Word::new(slot, conn).write(&mut words));
                let words = List::from_items(conns.len() as u16, &words);
                Frame::TrunkDeliver { event, words }.encode(out);
            }
            Frame::GroupDeliver { group, event } if self.follows => {
                let mut slots = Vec::new();
                Slot(slot).write(&mut slots);
                let slots = List::from_items(1, &slots);
                Frame::TrunkGroupDeliver { group, event, slots }.encode(out);
            }
            Frame::Cursor { .. } if self.follows => frame.encode(out),
            Frame::Cursor { cursor } if !cursor.is_empty() => {
                self.follows = true;
                frame.encode(out);
                to_slot(slot, frame, out);
                to_slot(slot, &Frame::Cursor { cursor: b"" }, out);
            }
            Frame::Shutdown { .. } => frame.encode(out),
            _ if Frame::costs(frame.kind()) => to_slot(slot, frame, out),
            _ => frame.encode(out),
        }
    }

    /// What a worker says, and what the trunk answers to it.
    pub fn unwrap<'a>(&mut self, frame: Frame<'a>) -> (Frame<'a>, Option<Frame<'static>>) {
        let Frame::FromWorker { worker, kind, payload } = frame else { return (frame, None) };
        let inner = Frame::decode(kind, payload).unwrap();
        let begins = matches!(inner, Frame::SyncBegin { .. });
        let place = begins.then(|| {
            self.slots += 1;
            if worker == 0 {
                (self.slot, self.follows) = (self.slots, false);
            }
            Frame::Place { worker, slot: self.slots }
        });
        (inner, place)
    }
}

pub fn to_slot(slot: u16, frame: &Frame<'_>, out: &mut Vec<u8>) {
    let mut inner = Vec::new();
    frame.encode(&mut inner);
    let (kind, payload) = inner[4..].split_first().unwrap();
    Frame::ToSlot { slot, kind: *kind, payload }.encode(out);
}
