//! The frames of one read of a trunk, and those of them for one worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::list::{Event, List};
use crate::word::Word;

/// A part of a batch's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    start: u32,
    length: u32,
}

/// An event that was decoded and has its cursor.
#[derive(Debug)]
pub(super) struct Decoded {
    pub shard: u8,
    pub seq: u64,
    pub at: u64,
    pub data_offset: u32,
    pub subject_offset: u16,
    pub subject_bytes: u16,
    pub cursor: Part,
    pub json: Part,
}

/// One thing of a batch, for one worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    Deliver { event: u32, words: Part },
    GroupDeliver { event: u32, group: u32 },
    Frame { kind: u8, payload: Part },
    Cursor { cursor: Part },
}

/// The same, to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Brought<'a> {
    /// DELIVER. The words are the worker's own; the event has its cursor, unless there is none.
    Deliver {
        /// The event.
        event: Event<'a>,
        /// Who gets it.
        words: List<'a, Word>,
    },
    /// GROUP_DELIVER.
    GroupDeliver {
        /// The group.
        group: u32,
        /// The event, with its cursor.
        event: Event<'a>,
    },
    /// A frame as on the worker's own link, its payload not yet decoded.
    Frame {
        /// Its type.
        kind: u8,
        /// Its payload.
        payload: &'a [u8],
    },
    /// The worker's cursor, of a slot that follows the trunk from here on (13.6).
    Cursor {
        /// The trunk's cursor.
        cursor: &'a [u8],
    },
}

/// What the workers have dealt with and the brain hasn't been given back (4.3, 13.8), and how many
/// batches they hold.
pub struct Dealt {
    bytes: AtomicU64,
    batches: AtomicUsize,
    portion: u32,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Dealt {
    /// Credit is given back in portions of so many bytes or twice that; `wake` is called when one
    /// is together.
    #[must_use]
    pub fn new(portion: u32, wake: Box<dyn Fn() + Send + Sync>) -> Dealt {
        Dealt { bytes: AtomicU64::new(0), batches: AtomicUsize::new(0), portion, wake }
    }

    /// A portion to give back, if one is together.
    #[must_use]
    pub fn take(&self) -> Option<u32> {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let portion = u64::from(self.portion);
        let taken = (bytes >= portion).then(|| bytes.min(2 * portion))?;
        // Others only add to it.
        self.bytes.fetch_sub(taken, Ordering::Relaxed);
        u32::try_from(taken).ok()
    }

    /// Batches that some worker holds.
    pub fn batches(&self) -> usize {
        self.batches.load(Ordering::Relaxed)
    }
}

/// What one read brought; see the module. It is dealt with when it is dropped.
pub struct Batch {
    bytes: Vec<u8>,
    events: Vec<Decoded>,
    cost: u64,
    dealt: Arc<Dealt>,
}

impl Batch {
    pub(super) fn new(dealt: &Arc<Dealt>) -> Batch {
        dealt.batches.fetch_add(1, Ordering::Relaxed);
        Batch { bytes: Vec::new(), events: Vec::new(), cost: 0, dealt: Arc::clone(dealt) }
    }

    pub(super) fn costs(&mut self, bytes: usize) {
        self.cost += bytes as u64;
    }

    /// A batch has at most a read and a frame, so its places fit into 32 bits.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Part {
        let part = Part { start: self.bytes.len() as u32, length: bytes.len() as u32 };
        self.bytes.extend_from_slice(bytes);
        part
    }

    pub(super) fn put_event(&mut self, event: &Event<'_>, cursor: &[u8]) -> u32 {
        let (cursor, json) = (self.put(cursor), self.put(event.json));
        self.events.push(Decoded {
            shard: event.shard,
            seq: event.seq,
            at: event.at,
            data_offset: event.data_offset,
            subject_offset: event.subject_offset,
            subject_bytes: event.subject_bytes,
            cursor,
            json,
        });
        (self.events.len() - 1) as u32
    }

    /// What it costs of the window.
    #[must_use]
    pub fn cost(&self) -> usize {
        self.cost as usize
    }

    fn part(&self, part: Part) -> &[u8] {
        let start = part.start as usize;
        self.bytes.get(start..start + part.length as usize).unwrap_or_default()
    }

    fn event(&self, number: u32) -> Option<Event<'_>> {
        let event = self.events.get(number as usize)?;
        Some(Event {
            shard: event.shard,
            seq: event.seq,
            at: event.at,
            data_offset: event.data_offset,
            subject_offset: event.subject_offset,
            subject_bytes: event.subject_bytes,
            cursor: self.part(event.cursor),
            json: self.part(event.json),
        })
    }

    fn brought(&self, entry: Entry) -> Option<Brought<'_>> {
        Some(match entry {
            Entry::Deliver { event, words } => {
                let words = self.part(words);
                let count = (words.len() / size_of::<Word>()) as u16;
                Brought::Deliver {
                    event: self.event(event)?,
                    words: List::from_items(count, words),
                }
            }
            Entry::GroupDeliver { event, group } => {
                Brought::GroupDeliver { group, event: self.event(event)? }
            }
            Entry::Frame { kind, payload } => Brought::Frame { kind, payload: self.part(payload) },
            Entry::Cursor { cursor } => Brought::Cursor { cursor: self.part(cursor) },
        })
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.dealt.batches.fetch_sub(1, Ordering::Relaxed);
        let portion = u64::from(self.dealt.portion);
        let before = self.dealt.bytes.fetch_add(self.cost, Ordering::Relaxed);
        if before < portion && before + self.cost >= portion {
            (self.dealt.wake)();
        }
    }
}

/// What a batch has for one worker.
pub struct HandOver {
    batch: Arc<Batch>,
    entries: std::vec::IntoIter<Entry>,
}

impl HandOver {
    pub(super) fn new(batch: Arc<Batch>, entries: Vec<Entry>) -> HandOver {
        HandOver { batch, entries: entries.into_iter() }
    }

    /// What its batch costs of the window.
    #[must_use]
    pub fn cost(&self) -> usize {
        self.batch.cost()
    }

    /// The next, in the order of the trunk.
    #[allow(clippy::should_implement_trait, reason = "lends from self, which Iterator can't")]
    pub fn next(&mut self) -> Option<Brought<'_>> {
        let entry = self.entries.next()?;
        self.batch.brought(entry)
    }
}
