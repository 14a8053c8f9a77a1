//! The sizes that `docs/internals/memory.md` speaks of are those of the code: the page's table is
//! read by this test.

use crate::conns::table::SLOT_BYTES;
use crate::conns::table::wheel::Bucket;
use crate::conns::tls::session::Session;
use crate::outbox::{Outbox, Piece};
use crate::sessions::base::detail::Detail;
use crate::sessions::base::exchange::Exchange;
use crate::sessions::base::form::Form;
use crate::sessions::base::opening::Opening;
use crate::sessions::replay::hold::Hold;
use crate::sessions::ws::queue::Operations;

const PAGE: &str = include_str!("../../../docs/internals/memory.md");

#[test]
fn the_page_says_what_is() {
    let sizes = [
        ("Slot", SLOT_BYTES),
        ("Detail", size_of::<Detail>()),
        ("Exchange", size_of::<Exchange>()),
        ("Form", size_of::<Form>()),
        ("Opening", size_of::<Opening>()),
        ("Hold", size_of::<Hold>()),
        ("Operations", size_of::<Operations>()),
        ("Outbox", size_of::<Outbox>()),
        ("Piece", size_of::<Piece>()),
        ("Session", size_of::<Session>()),
        ("Option<Bucket>", size_of::<Option<Bucket>>()),
    ];
    let missing: Vec<String> = sizes
        .iter()
        .map(|(name, bytes)| format!("| `{name}` | {bytes} |"))
        .filter(|row| !PAGE.contains(row))
        .collect();
    assert!(missing.is_empty(), "memory.md lacks {missing:#?}");
}
