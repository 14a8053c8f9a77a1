//! Messages compressed one by one (RFC 7692 section 7.2): [`Deflater`] for messages to clients,
//! [`Inflater`] for those from clients. Each is lent to many connections in turn, as no message
//! refers to another.
//!
//! Between messages only working memory is kept, and none of that after `rest`.
//!
//! Bounds: an inflated message has at most as many bytes as the caller allows, and no more than
//! that and one are allocated; the cost of a compressed message is bounded by its own length and
//! its inflated length.

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status};

use super::extension::WINDOW_BITS;
use super::{Failure, close_code};

/// Messages shorter than this are sent as they are. Of a short JSON text a seventh is saved, in
/// the time that the compression of 300 bytes takes (`docs/internals/deflate.md` has the figures).
pub const COMPRESSED_BYTES_MIN: usize = 256;

/// The end of each compressed message, which doesn't travel (7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// What is read behind each message: its tail, and a last block, so that the end of the data shows
/// whether the message itself was whole.
const END: [u8; 9] = [0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff];
/// What a message may grow by when it is compressed, besides an eighth of it.
const SLACK_BYTES: usize = 64;
/// The first room for what is inflated.
const ROOM_BYTES: usize = 1_024;

/// The level below the usual one finds nearly as much in events, in less time; windows and tables
/// of this size take 100 KB instead of the usual 290.
const CONFIG: DeflateConfig = DeflateConfig {
    level: 2,
    method: zlib_rs::Method::Deflated,
    window_bits: -(WINDOW_BITS as i32),
    mem_level: 6,
    strategy: zlib_rs::Strategy::Default,
};

const NOT_DEFLATE: Failure =
    Failure { code: close_code::INVALID_DATA, reason: "message is not compressed data" };
const TOO_BIG: Failure = Failure {
    code: close_code::MESSAGE_TOO_BIG,
    reason: "message is larger than this server reads",
};

/// What has gone through.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Messages.
    pub messages: u64,
    /// Their bytes before.
    pub bytes_in: u64,
    /// Their bytes after.
    pub bytes_out: u64,
}

impl Totals {
    fn count(&mut self, bytes_in: usize, bytes_out: usize) {
        self.messages += 1;
        self.bytes_in += bytes_in as u64;
        self.bytes_out += bytes_out as u64;
    }
}

/// Compresses messages.
#[derive(Default)]
pub struct Deflater {
    state: Option<Deflate>,
    out: Vec<u8>,
    totals: Totals,
}

impl Deflater {
    /// One that has no memory yet.
    pub fn new() -> Deflater {
        Deflater::default()
    }

    /// Gives its memory back; the next message takes it again.
    pub fn rest(&mut self) {
        self.state = None;
        self.out = Vec::new();
    }

    /// What it has compressed; what was no shorter is not among it.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The compressed form of a message, as it travels; `None` if it is no shorter.
    pub fn compress(&mut self, message: &[u8]) -> Option<&[u8]> {
        let state = self.state.get_or_insert_with(|| Deflate::new_with_config(CONFIG));
        state.reset();
        // Room for whatever it becomes, so that nothing is left to be written.
        self.out.resize(message.len() + message.len() / 8 + SLACK_BYTES, 0);
        let status = state.compress(message, &mut self.out, DeflateFlush::SyncFlush);
        let written = usize::try_from(state.total_out()).unwrap_or(usize::MAX);
        let whole =
            status.is_ok() && state.total_in() == message.len() as u64 && written < self.out.len();
        if !whole {
            // What it has still to write would stay over its reset (zlib-rs 0.6.8): some sixty
            // such messages later there is no room, and it panics.
            self.state = None;
            return None;
        }
        let compressed = self.out.get(..written)?.strip_suffix(&TAIL)?;
        if compressed.len() >= message.len() {
            return None;
        }
        self.totals.count(message.len(), compressed.len());
        Some(compressed)
    }
}

impl std::fmt::Debug for Deflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deflater").field("totals", &self.totals).finish_non_exhaustive()
    }
}

/// Inflates messages.
#[derive(Default)]
pub struct Inflater {
    state: Option<Inflate>,
    totals: Totals,
}

impl Inflater {
    /// One that has no memory yet.
    pub fn new() -> Inflater {
        Inflater::default()
    }

    /// Gives its memory back; the next message takes it again.
    pub fn rest(&mut self) {
        self.state = None;
    }

    /// What it has inflated, broken messages included as far as they could be.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// What a compressed message says, `bytes_max` bytes at most.
    ///
    /// # Errors
    /// 1007 for what is no whole compressed message, 1009 for more than `bytes_max` bytes of it.
    pub fn inflate(&mut self, message: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
        let state = self.state.get_or_insert_with(|| Inflate::new(false, 15));
        let mut run = Run { state, out: Vec::new(), written: 0, bytes_max };
        let result = run.read(message);
        self.totals.count(message.len(), run.written);
        let Run { mut out, written, .. } = run;
        out.truncate(written);
        result.map(|()| out)
    }
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflater").field("totals", &self.totals).finish_non_exhaustive()
    }
}

/// One message on its way. Invariant: `written <= out.len() <= bytes_max + 1`.
struct Run<'i> {
    state: &'i mut Inflate,
    out: Vec<u8>,
    written: usize,
    bytes_max: usize,
}

impl Run<'_> {
    fn read(&mut self, message: &[u8]) -> Result<(), Failure> {
        self.state.reset(false);
        // The data may end by itself, as RFC 7692 section 7.2.3.4 has it, even where its author
        // has forgotten the byte behind that.
        if self.read_part(message)? || self.read_part(&END)? { Ok(()) } else { Err(NOT_DEFLATE) }
    }

    /// Reads all of `rest`; tells whether that ended the data.
    fn read_part(&mut self, mut rest: &[u8]) -> Result<bool, Failure> {
        loop {
            self.make_room(rest.len());
            let (total_in, total_out) = (self.state.total_in(), self.state.total_out());
            let room = self.out.get_mut(self.written..).unwrap_or_default();
            let status = self.state.decompress(rest, room, InflateFlush::NoFlush);
            let used = (self.state.total_in() - total_in) as usize;
            let made = (self.state.total_out() - total_out) as usize;
            rest = rest.get(used..).unwrap_or_default();
            self.written += made;
            if self.written > self.bytes_max {
                return Err(TOO_BIG);
            }
            match status.map_err(|_| NOT_DEFLATE)? {
                Status::StreamEnd if rest.is_empty() => return Ok(true),
                Status::StreamEnd => self.state.reset(false),
                // With room left, all that could be said was.
                Status::Ok | Status::BufError if self.written < self.out.len() => {
                    return if rest.is_empty() { Ok(false) } else { Err(NOT_DEFLATE) };
                }
                Status::Ok | Status::BufError => {}
            }
        }
    }

    /// Makes room for one byte at least: one more than may come shows that more would.
    fn make_room(&mut self, compressed_bytes: usize) {
        if self.written == self.out.len() {
            let wanted = (2 * self.written).max(4 * compressed_bytes).max(ROOM_BYTES);
            self.out.resize(wanted.min(self.bytes_max.saturating_add(1)), 0);
        }
    }
}
