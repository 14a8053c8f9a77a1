//! The few frames of `protocol/link.md` that matter here. On a trunk a connection id has its
//! worker's number above its 48 bits.

/// DELIVER, RESPONSE, CREDIT, REQUEST.
pub const DELIVER: u8 = 0x13;
pub const RESPONSE: u8 = 0x15;
pub const CREDIT: u8 = 0x03;
pub const REQUEST: u8 = 0x45;

const CONN_BITS: u32 = 48;

/// What is granted to the brain, for a worker (4.1).
pub const WINDOW_BYTES: usize = 1_048_576;

/// A DELIVER that was read: its event, and connections packed as u64.
#[derive(Clone, Copy)]
pub struct Deliver<'a> {
    pub shard: u8,
    pub seq: u64,
    pub at: u64,
    pub json: &'a [u8],
    pub conns: &'a [u8],
}

fn take<'a>(from: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(n)?;
    *from = rest;
    Some(taken)
}

fn uint(from: &mut &[u8], n: usize) -> Option<u64> {
    Some(take(from, n)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Reads a DELIVER (2.2, 7.1); `None` if it isn't used up exactly.
pub fn deliver(mut payload: &[u8]) -> Option<Deliver<'_>> {
    let from = &mut payload;
    let (shard, seq, at) = (uint(from, 1)? as u8, uint(from, 8)?, uint(from, 8)?);
    let (_data, subject, bytes) = (uint(from, 4)?, uint(from, 2)?, uint(from, 2)?);
    let cursor = uint(from, 1)? as usize;
    take(from, cursor)?;
    let length = uint(from, 4)? as usize;
    let json = take(from, length)?;
    let count = uint(from, 2)? as usize;
    let conns = take(from, count * 8)?;
    let whole = from.is_empty() && (subject + bytes) as usize <= json.len();
    whole.then_some(Deliver { shard, seq, at, json, conns })
}

/// The connection of a packed word.
pub fn conn(word: &[u8]) -> u64 {
    u64::from_be_bytes(word.try_into().unwrap())
}

/// A connection's worker, and its place there.
pub fn split(conn: u64) -> (usize, usize) {
    ((conn >> CONN_BITS) as usize, (conn & ((1 << CONN_BITS) - 1)) as usize)
}

/// The other way.
pub fn join(worker: usize, place: usize) -> u64 {
    (worker as u64) << CONN_BITS | place as u64
}

/// REQUEST: headers as a small POST has them, and its line as the body.
pub fn request(out: &mut Vec<u8>, conn: u64, line: &[u8]) {
    const HEAD: &[u8; 120] = &[b'h'; 120];
    out.extend_from_slice(&((1 + 8 + HEAD.len() + line.len()) as u32).to_be_bytes());
    out.push(REQUEST);
    out.extend_from_slice(&conn.to_be_bytes());
    out.extend_from_slice(HEAD);
    out.extend_from_slice(line);
}

/// CREDIT.
pub fn credit(out: &mut Vec<u8>, bytes: u32) {
    out.extend_from_slice(&5_u32.to_be_bytes());
    out.push(CREDIT);
    out.extend_from_slice(&bytes.to_be_bytes());
}
