//! The sizes that `docs/internals/memory.md` speaks of are those of the code: the page's table is
//! read by this test.

use crate::http::exchange::Exchange;
use crate::outbox::hold::Hold;
use crate::outbox::{Outbox, Piece};
use crate::sessions::operations::Operations;
use crate::sessions::stream::Opening;
use crate::table::wheel::Mark;
use crate::table::{Detail, SLOT_BYTES};
use crate::tls::session::Session;

const PAGE: &str = include_str!("../../../docs/internals/memory.md");

#[test]
fn the_page_says_what_is() {
    let sizes = [
        ("Slot", SLOT_BYTES),
        ("Detail", size_of::<Detail>()),
        ("Exchange", size_of::<Exchange>()),
        ("Opening", size_of::<Opening>()),
        ("Hold", size_of::<Hold>()),
        ("Operations", size_of::<Operations>()),
        ("Outbox", size_of::<Outbox>()),
        ("Piece", size_of::<Piece>()),
        ("Session", size_of::<Session>()),
        ("Option<Mark>", size_of::<Option<Mark>>()),
    ];
    let missing: Vec<String> = sizes
        .iter()
        .map(|(name, bytes)| format!("| `{name}` | {bytes} |"))
        .filter(|row| !PAGE.contains(row))
        .collect();
    assert!(missing.is_empty(), "memory.md lacks {missing:#?}");
}
