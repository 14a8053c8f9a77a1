//! Properties of the codec: no bytes make it panic, and where the stream is cut doesn't matter.
#![allow(clippy::unwrap_used, reason = "tests")]

use halley_link::{Deframer, Frame, Item, List, NumberedSession};
use proptest::prelude::*;

fn feed(deframer: &mut Deframer, mut bytes: &[u8], seen: &mut Vec<Vec<u8>>) {
    while !bytes.is_empty() {
        let space = deframer.space();
        let n = bytes.len().min(space.len());
        space[..n].copy_from_slice(&bytes[..n]);
        deframer.filled(n);
        bytes = &bytes[n..];
        while let Ok(Some(raw)) = deframer.next() {
            let mut again = Vec::new();
            Frame::decode(raw.kind, raw.payload).unwrap().encode(&mut again);
            seen.push(again);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_payloads_never_panic(
        kind in any::<u8>(),
        payload in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        if let Ok(frame) = Frame::decode(kind, &payload) {
            let mut out = Vec::new();
            frame.encode(&mut out);
            prop_assert_eq!(&out[5..], &payload[..]);
        }
    }

    #[test]
    fn cuts_do_not_matter(
        sessions in prop::collection::vec((0u64..1 << 48, any::<u32>()), 0..50),
        body in prop::collection::vec(any::<u8>(), 0..200_000),
        cuts in prop::collection::vec(1usize..70_000, 1..40),
    ) {
        let mut items = Vec::new();
        for (conn, user_number) in &sessions {
            NumberedSession { conn: *conn, user_number: *user_number }.write(&mut items);
        }
        let frames = [
            Frame::Opened {
                cursor: b"c",
                sessions: List::from_items(sessions.len() as u16, &items),
            },
            Frame::RequestBody { conn: 7, flags: 1, body: &body },
            Frame::SyncEnd,
        ];
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for frame in &frames {
            let start = stream.len();
            frame.encode(&mut stream);
            expected.push(stream[start..].to_vec());
        }
        let (mut deframer, mut seen, mut rest) = (Deframer::new(), Vec::new(), &stream[..]);
        for cut in cuts.iter().cycle() {
            let (head, tail) = rest.split_at((*cut).min(rest.len()));
            feed(&mut deframer, head, &mut seen);
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(seen, expected);
    }
}
