//! The frames of a trunk, and their receivers.

use std::sync::Arc;

use super::batch::{Batch, Dealt, Entry, HandOver};
use crate::cursor::LinkCursor;
use crate::deframer::RawFrame;
use crate::list::{Event, List};
use crate::wire::Reader;
use crate::word::{Slot, Word};
use crate::{Error, FLAG_LAST, Frame};

const OPENED: u8 = 0x11;
const DELIVER: u8 = 0x13;
const REPLAY: u8 = 0x19;
const CURSOR: u8 = 0x1b;
const GROUP_DELIVER: u8 = 0x20;
/// The payload of a CURSOR that says none.
const NO_CURSOR: &[u8] = &[0];

/// A worker on the trunk.
#[derive(Clone, Default)]
struct Worker {
    /// 0 until the brain has given it one.
    slot: u16,
    /// The trunk's cursor is its own (13.6).
    follows: bool,
    /// It has begun a sync, and its place hasn't ended since.
    placed: bool,
    /// Syncs that PLACE hasn't answered.
    syncs: u32,
    /// Of [`Demux::moves`] when it was told the cursor.
    told: u64,
}

/// See the module. It is of one trunk: the next one begins anew.
///
/// Invariants: `slots` has the slots of `workers` and no others; entries wait for none but a worker
/// that has a slot, but for what concerns all.
pub struct Demux {
    cursor: LinkCursor,
    /// How often the cursor has moved.
    moves: u64,
    /// By slot: a worker's number and one, or 0.
    slots: Vec<u16>,
    workers: Vec<Worker>,
    entries: Vec<Vec<Entry>>,
    batch: Option<Batch>,
    dealt: Arc<Dealt>,
    keys: Option<Arc<[u8]>>,
    stale: u64,
}

impl Demux {
    /// For so many workers, none of which has a slot.
    #[must_use]
    pub fn new(workers: u16, dealt: Arc<Dealt>) -> Demux {
        let workers = usize::from(workers);
        Demux {
            cursor: LinkCursor::default(),
            moves: 0,
            slots: Vec::new(),
            workers: vec![Worker::default(); workers],
            entries: vec![Vec::new(); workers],
            batch: None,
            dealt,
            keys: None,
            stale: 0,
        }
    }

    /// Takes a frame that came after the hello. Those that are the trunk's own come back: PING,
    /// PONG, CREDIT, GOODBYE and a second hello.
    ///
    /// # Errors
    /// The clause that it breaks.
    pub fn take<'a>(&mut self, raw: &RawFrame<'a>) -> Result<Option<Frame<'a>>, Error> {
        let frame = Frame::decode(raw.kind, raw.payload)?;
        if Frame::costs(raw.kind) {
            self.batch().costs(raw.cost);
        }
        match frame {
            Frame::TrunkDeliver { event, words } => self.deliver(&event, words)?,
            Frame::TrunkGroupDeliver { group, event, slots } => {
                self.group_deliver(group, &event, slots)?;
            }
            Frame::ToSlot { slot, kind, payload } => self.for_slot(slot, kind, payload)?,
            Frame::Cursor { cursor } => self.moved(cursor),
            Frame::Place { worker, slot } => self.place(worker, slot)?,
            Frame::Keys { keys } => {
                self.keys = Some(keys.into());
                self.for_all(raw);
            }
            Frame::Shutdown { .. } => self.for_all(raw),
            Frame::Ping { .. }
            | Frame::Pong { .. }
            | Frame::Credit { .. }
            | Frame::Goodbye { .. }
            | Frame::HelloBrain { .. } => return Ok(Some(frame)),
            _ => return Err(Error::new("13.2", "no frame that travels by itself on a trunk")),
        }
        Ok(None)
    }

    /// What was taken since the last call, for each worker that it concerns.
    pub fn finish(&mut self) -> impl Iterator<Item = (u16, HandOver)> + use<'_> {
        let batch = self.batch.take().map(Arc::new);
        (0..).zip(&mut self.entries).filter_map(move |(worker, entries)| {
            let batch = batch.as_ref().filter(|_| !entries.is_empty())?;
            Some((worker, HandOver::new(Arc::clone(batch), std::mem::take(entries))))
        })
    }

    /// The worker's SYNC_BEGIN is sent (13.4).
    pub fn sync_begins(&mut self, worker: u16) {
        if let Some(worker) = self.workers.get_mut(usize::from(worker)) {
            worker.placed = true;
            worker.syncs += 1;
        }
    }

    /// The worker's place ends (13.7); false if it has none.
    pub fn ends(&mut self, worker: u16) -> bool {
        let index = usize::from(worker);
        let (Some(worker), Some(entries)) =
            (self.workers.get_mut(index), self.entries.get_mut(index))
        else {
            return false;
        };
        entries.clear();
        worker.follows = false;
        let slot = std::mem::take(&mut worker.slot);
        if let Some(its) = self.slots.get_mut(usize::from(slot)) {
            *its = 0;
        }
        std::mem::take(&mut worker.placed)
    }

    /// Has the worker begun a sync, so that it has a place that can end?
    #[must_use]
    pub fn is_placed(&self, worker: u16) -> bool {
        self.workers.get(usize::from(worker)).is_some_and(|worker| worker.placed)
    }

    /// The trunk's cursor, if it is the worker's (13.6).
    #[must_use]
    pub fn cursor_of(&self, worker: u16) -> Option<&[u8]> {
        let worker = self.workers.get(usize::from(worker))?;
        worker.follows.then(|| self.cursor.token())
    }

    /// Workers whose cursor has moved since they were told it; they are told now.
    pub fn untold(&mut self) -> impl Iterator<Item = u16> + use<'_> {
        let moves = self.moves;
        (0..).zip(&mut self.workers).filter_map(move |(number, worker)| {
            let untold = worker.follows && worker.told != moves;
            untold.then(|| {
                worker.told = moves;
                number
            })
        })
    }

    /// The trunk's cursor.
    #[must_use]
    pub fn cursor(&self) -> &[u8] {
        self.cursor.token()
    }

    /// The last KEYS.
    #[must_use]
    pub fn keys(&self) -> Option<&Arc<[u8]>> {
        self.keys.as_ref()
    }

    /// What came for slots that no worker has (13.4), since the last call.
    pub fn take_stale(&mut self) -> u64 {
        std::mem::take(&mut self.stale)
    }

    fn batch(&mut self) -> &mut Batch {
        self.batch.get_or_insert_with(|| Batch::new(&self.dealt))
    }

    fn moved(&mut self, cursor: &[u8]) {
        self.cursor.moved(cursor);
        self.moves += 1;
    }

    /// Puts an event into the batch, with the cursor behind it.
    fn event(&mut self, event: &Event<'_>) -> Result<u32, Error> {
        self.cursor.passes(event)?;
        self.moves += 1;
        let Demux { batch, cursor, dealt, .. } = self;
        let batch = batch.get_or_insert_with(|| Batch::new(dealt));
        Ok(batch.put_event(event, cursor.token()))
    }

    fn worker_of(&self, slot: u16) -> Option<usize> {
        self.slots.get(usize::from(slot))?.checked_sub(1).map(usize::from)
    }

    /// The worker that has a slot which follows the trunk; nobody if nobody has it.
    fn following(&mut self, slot: u16) -> Result<Option<usize>, Error> {
        let Some(index) = self.worker_of(slot) else {
            self.stale += 1;
            return Ok(None);
        };
        match self.workers.get_mut(index) {
            Some(worker) if worker.follows => {
                worker.told = self.moves;
                Ok(Some(index))
            }
            _ => Err(Error::new("13.5", "an event for a slot that doesn't follow the trunk")),
        }
    }

    fn push(&mut self, worker: usize, entry: Entry) {
        if let Some(entries) = self.entries.get_mut(worker) {
            entries.push(entry);
        }
    }

    fn deliver(&mut self, event: &Event<'_>, words: List<'_, Word>) -> Result<(), Error> {
        let event = self.event(event)?;
        for (slot, run) in runs(words.bytes()) {
            if let Some(worker) = self.following(slot)? {
                let words = self.batch().put(run);
                self.push(worker, Entry::Deliver { event, words });
            }
        }
        Ok(())
    }

    fn group_deliver(
        &mut self,
        group: u32,
        event: &Event<'_>,
        slots: List<'_, Slot>,
    ) -> Result<(), Error> {
        let event = self.event(event)?;
        for Slot(slot) in slots.iter() {
            if let Some(worker) = self.following(slot)? {
                self.push(worker, Entry::GroupDeliver { event, group });
            }
        }
        Ok(())
    }

    fn for_slot(&mut self, slot: u16, kind: u8, payload: &[u8]) -> Result<(), Error> {
        let Some(index) = self.worker_of(slot) else {
            self.stale += 1;
            return Ok(());
        };
        let follows = self.workers.get(index).is_some_and(|worker| worker.follows);
        match kind {
            CURSOR if !follows && payload == NO_CURSOR => return self.follow(index),
            DELIVER | GROUP_DELIVER if follows => {
                return Err(Error::new("13.6", "an event in TO_SLOT for a slot that follows"));
            }
            _ if follows => {
                if let Some(cursor) = said(kind, payload)? {
                    self.moved(cursor);
                }
            }
            _ => {}
        }
        let payload = self.batch().put(payload);
        self.push(index, Entry::Frame { kind, payload });
        Ok(())
    }

    /// The slot follows the trunk from here on.
    fn follow(&mut self, index: usize) -> Result<(), Error> {
        let Demux { batch, cursor, dealt, .. } = self;
        if cursor.token().is_empty() {
            return Err(Error::new("13.6", "a trunk without a cursor can't be followed"));
        }
        let batch = batch.get_or_insert_with(|| Batch::new(dealt));
        let cursor = batch.put(cursor.token());
        if let Some(worker) = self.workers.get_mut(index) {
            worker.follows = true;
            worker.told = self.moves;
        }
        self.push(index, Entry::Cursor { cursor });
        Ok(())
    }

    /// 13.4: of several for a worker the last counts, if its place didn't end meanwhile.
    fn place(&mut self, number: u16, slot: u16) -> Result<(), Error> {
        const UNASKED: Error = Error::new("13.4", "PLACE without a SYNC_BEGIN");
        const TAKEN: Error = Error::new("13.4", "PLACE with a slot that another worker has");
        let worker = self.workers.get_mut(usize::from(number)).ok_or(UNASKED)?;
        worker.syncs = worker.syncs.checked_sub(1).ok_or(UNASKED)?;
        if worker.syncs > 0 || !worker.placed {
            return Ok(());
        }
        let at = usize::from(slot);
        if self.slots.len() <= at {
            self.slots.resize(at + 1, 0);
        }
        let before = std::mem::replace(&mut worker.slot, slot);
        worker.follows = false;
        if let Some(its) = self.slots.get_mut(usize::from(before)) {
            *its = 0;
        }
        match self.slots.get_mut(at) {
            Some(its @ 0) => *its = number + 1,
            _ => return Err(TAKEN),
        }
        Ok(())
    }

    /// A frame for every worker, whether it has a slot or not.
    fn for_all(&mut self, raw: &RawFrame<'_>) {
        let payload = self.batch().put(raw.payload);
        let entry = Entry::Frame { kind: raw.kind, payload };
        self.entries.iter_mut().for_each(|entries| entries.push(entry));
    }
}

/// The cursor that a frame for a slot says (10.1). The worker reads the rest of it.
fn said(kind: u8, payload: &[u8]) -> Result<Option<&[u8]>, Error> {
    let mut reader = Reader::new(payload);
    match kind {
        CURSOR | OPENED => reader.cursor().map(Some),
        REPLAY => {
            reader.conn()?;
            let last = reader.u8()? & FLAG_LAST != 0;
            Ok(reader.cursor().map(Some)?.filter(|_| last))
        }
        _ => Ok(None),
    }
}

/// The slots of packed words, each with the words of its own that stand together.
fn runs(mut words: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let slot = *words.first_chunk::<2>()?;
        let same = |word: &&[u8]| word.starts_with(&slot);
        let count = words.chunks_exact(size_of::<Word>()).take_while(same).count();
        let (run, later) = words.split_at_checked(count * size_of::<Word>())?;
        words = later;
        (count > 0).then_some((u16::from_be_bytes(slot), run))
    })
}
