//! The thread that owns the edge's end of a trunk: reads, hands over to the workers, and writes
//! what they have for the brain (`protocol/link.md` 13, `docs/internals/trunk.md`).

pub mod connection;
pub mod owner;
mod pace;
#[cfg(test)]
mod tests;
