//! Slots and their ids; others' tests take tables from here.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn socket() -> TcpStream {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    TcpStream::from_std(stream)
}

pub fn table() -> Table<u8> {
    Table::new(Arc::new(SharedLimits::new(None)))
}

pub fn enter(table: &mut Table<u8>) -> u32 {
    assert!(table.limits.enter(false, 0));
    table.insert(socket(), 0, Address::NONE)
}

/// 2.4: "the slot's generation (22 bits above them": what the page says is what a slot has, and
/// "is not used again until all others were".
#[test]
fn a_generation_has_the_bits_that_the_page_says() {
    let page = include_str!("../../../../../protocol/link.md");
    assert!(page.contains(&format!("(low {INDEX_BITS} bits)")));
    assert!(page.contains(&format!("({GENERATION_BITS} bits above them;")));
    let last = (1 << GENERATION_BITS) - 1;
    assert_eq!(Slot::free(last).generation(), last);
    assert_eq!(Slot::free(last + 1).generation(), 0);
    assert_eq!((Slot::free(last).tag, INDEX_BITS), (last << FLAG_BITS, 24));
}

/// 2.4: a frame about a connection that is gone never meets its successor.
#[test]
fn an_id_names_one_connection() {
    let mut table = table();
    let first = enter(&mut table);
    let conn = table.conn(first);
    assert!(table.find(conn).is_some());
    table.remove(first);
    assert!(table.find(conn).is_none());
    let mut seen = vec![conn];
    for _ in 0..CHUNK + 1 {
        let index = enter(&mut table);
        let conn = table.conn(index);
        assert!(!seen.contains(&conn));
        seen.push(conn);
        table.remove(index);
    }
    assert_eq!((table.used(), table.slots()), (0, CHUNK as u32));
}

/// What is lent to a connection goes with it, and each slot is free once.
#[test]
fn a_slot_takes_all_with_it() {
    let mut table = table();
    let indices: Vec<u32> = (0..50).map(|_| enter(&mut table)).collect();
    for index in &indices {
        table.set_user(*index, format!("user {index}").as_bytes());
        table.set_detail(*index, 7);
        assert_eq!(table.user(*index), format!("user {index}").as_bytes());
    }
    assert_eq!(table.details.lent(), 50);
    indices.iter().rev().for_each(|index| table.remove(*index));
    assert_eq!((table.details.lent(), table.user(7)), (0, b"".as_slice()));
    let mut again: Vec<u32> = (0..CHUNK).map(|_| enter(&mut table)).collect();
    assert_eq!(table.slots(), CHUNK as u32, "before the table grows");
    again.sort_unstable();
    again.dedup();
    assert_eq!(again.len(), CHUNK);
}
