//! The edge's end of a trunk, as far as it needs no socket (`protocol/link.md` 13): one thread owns
//! the trunk, and hands what it reads to the workers.
//!
//! ```text
//! brain ─► Demux ─► Batch ─► Ring of each worker     Outbound of each worker ─► owner ─► brain
//! ```
//!
//! - [`Demux`] takes the frames that were read, decodes each event once, and knows which worker has
//!   which slot and where the trunk's cursor is;
//! - [`Batch`] is what one read brought, shared by the workers that it concerns. Its bytes are
//!   given back as credit when the last of them has let go of it ([`Dealt`]);
//! - [`Ring`] is what waits for one worker, [`Outbound`] what one worker has for the brain.
//!
//! Invariants: nothing waits for a worker; a thread that sleeps is woken once, and one that runs
//! never ([`Sleeper`]); entries of a ring come out in the order in which they were put in, the end
//! of a place too.

mod batch;
mod demux;
mod outbound;
mod ring;
mod sleeper;

pub use batch::{Batch, Brought, Dealt, HandOver};
pub use demux::Demux;
pub use outbound::Outbound;
pub use ring::{Begin, End, HANDED_BYTES, Handed, Put, Ring, is_left_behind};
pub use sleeper::Sleeper;
