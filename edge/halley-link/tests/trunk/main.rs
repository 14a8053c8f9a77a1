//! A trunk's frames on their way to the workers and back (`protocol/link.md` 13), with threads and
//! without.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod demux;
mod frames;
mod model;
mod outbound;
mod ring;
