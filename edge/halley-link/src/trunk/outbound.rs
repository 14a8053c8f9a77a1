//! One worker's frames for the brain, until the trunk's owner takes them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::FRAME_BYTES_MAX;

#[derive(Default)]
struct Waiting {
    /// Whole frames, of which so many bytes are taken.
    frames: Vec<u8>,
    taken: usize,
    place: u64,
}

/// See the module. Frames stay whole and in order.
///
/// Invariant: all that waits is of the worker's present place (13.7).
#[derive(Default)]
pub struct Outbound {
    waiting: Mutex<Waiting>,
    bytes: AtomicUsize,
}

impl Outbound {
    fn change<T>(&self, how: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let result = how(&mut waiting);
        self.bytes.store(waiting.frames.len() - waiting.taken, Ordering::SeqCst);
        result
    }

    /// Appends whole frames of a place. Those of an earlier one are dropped.
    pub fn send(&self, place: u64, frames: &mut Vec<u8>) {
        self.change(|waiting| {
            if place == waiting.place {
                waiting.frames.append(frames);
            }
        });
        frames.clear();
    }

    /// Takes whole frames, until they have so many bytes or nothing is left. Gives each frame to
    /// `each`, its length first.
    pub fn take(&self, bytes: usize, mut each: impl FnMut(&[u8])) {
        self.change(|waiting| {
            let end = waiting.taken.saturating_add(bytes);
            while waiting.taken < end {
                let Some(frame) = frame(&waiting.frames[waiting.taken..]) else { break };
                each(frame);
                waiting.taken += frame.len();
            }
            if waiting.taken == waiting.frames.len() {
                waiting.frames.clear();
                waiting.frames.shrink_to(FRAME_BYTES_MAX);
                waiting.taken = 0;
            } else if waiting.taken > waiting.frames.len() / 2 {
                waiting.frames.drain(..waiting.taken);
                waiting.taken = 0;
            }
        });
    }

    /// Another place begins: what waits is dropped.
    pub fn begin(&self, place: u64) {
        self.change(|waiting| *waiting = Waiting { place, ..Waiting::default() });
    }

    /// What waits, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }
}

/// The first frame, with its length.
fn frame(frames: &[u8]) -> Option<&[u8]> {
    let length = u32::from_be_bytes(*frames.first_chunk::<4>()?) as usize;
    frames.get(..4 + length)
}
