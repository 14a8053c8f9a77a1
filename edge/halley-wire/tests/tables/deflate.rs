//! `protocol/websocket-deflate.json`, and what is compressed here, read by the second reader.

use halley_wire::http1::head::HeadLimits;
use halley_wire::websocket::deflate::COMPRESSED_BYTES_MIN;
use halley_wire::websocket::extension::{Agreement, Offers};
use halley_wire::websocket::{Decoder, Deflater, Event, Inflater, Rules, Sender, encode};
use proptest::prelude::*;
use serde_json::Value as Json;

use crate::connection::{Connection, Said};
use crate::second::frames;
use crate::second::inflate::inflate;
use crate::table::{self, cases, says, text, texts};
use crate::websocket::{is_read_as_said, upgrade};

const TABLE: &str = include_str!("../../../../protocol/websocket-deflate.json");
const MESSAGE_BYTES_MAX: usize = 65_536;
const RULES: Rules = Rules { sender: Sender::Client, message_bytes_max: MESSAGE_BYTES_MAX };

fn offers() -> Vec<Json> {
    let table: Json = serde_json::from_str(TABLE).unwrap();
    table["offers"].as_array().unwrap().clone()
}

/// http.md 8.5.
#[test]
fn offers_are_answered_as_the_table_says() {
    for case in offers() {
        let lines = texts(&case["lines"]);
        let answer = match Offers::in_lines(lines.iter().map(String::as_bytes)) {
            Offers::Accepted(agreement) => Some(agreement.value()),
            Offers::Declined => {
                assert!(case.get("none").is_none(), "{case}");
                None
            }
            Offers::None => {
                assert!(case.get("none").is_some(), "{case}");
                None
            }
        };
        assert_eq!(answer, case["answer"].as_str(), "{case}");
    }
}

/// http.md 9.8 to 9.10.
#[test]
fn messages_are_read_as_the_table_says_however_they_are_cut() {
    let upgrade = upgrade("Sec-WebSocket-Extensions: permessage-deflate\r\n");
    for case in cases(TABLE) {
        is_read_as_said(&case, &upgrade, RULES);
    }
}

#[test]
fn the_second_reader_finds_the_same() {
    for case in cases(TABLE) {
        let input = table::frames(&case["sends"]);
        let read = frames::frames_with(&input, true, MESSAGE_BYTES_MAX, true);
        let events: Vec<_> =
            read.events.into_iter().map(|event| (event.opcode, event.payload)).collect();
        assert!(events == says(&case), "{case}");
        assert_eq!(read.failure.map(u64::from), case["fails"].as_u64(), "{case}");
    }
}

/// RFC 7692 6: what was not agreed on is refused, whatever else it is.
#[test]
fn without_an_agreement_no_message_is_compressed() {
    for case in cases(TABLE) {
        let input = table::frames(&case["sends"]);
        let read = frames::frames(&input, true, MESSAGE_BYTES_MAX);
        let mut connection = Connection::new(HeadLimits::default(), RULES);
        connection.read(&upgrade(""));
        connection.read(&input);
        let failed = connection.said.contains(&Said::Failed(1_002));
        assert_eq!(failed, read.failure == Some(1_002), "{case}");
    }
}

/// Each case says what it is called, what it proves, and what is to come of it.
#[test]
fn the_table_is_whole() {
    let all = [offers(), cases(TABLE)].concat();
    let mut names: Vec<_> = all.iter().map(|case| text(case, "name")).collect();
    for case in &all {
        let rfc = text(case, "rfc");
        assert!(rfc.starts_with("6455 ") || rfc.starts_with("7692 "), "{case}");
        assert!(text(case, "quote").len() > 10, "{case}");
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len(), "a name is there twice");
}

fn compressed(frame: &[u8], agreement: Agreement) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    encode::compressed(&mut out, frame, agreement, &mut Deflater::new()).then_some(out)
}

fn text_frame(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encode::text(&mut out, text);
    out
}

/// http.md 9.11.
#[test]
fn what_is_compressed() {
    let frame = |bytes: usize| text_frame(&"ab".repeat(bytes / 2));
    assert_eq!(compressed(&frame(COMPRESSED_BYTES_MIN - 2), Agreement::Usual), None);
    let out = compressed(&frame(COMPRESSED_BYTES_MIN), Agreement::Usual).unwrap();
    assert!(out[0] == 0xc1 && out.len() < 20, "{out:02x?}");
    assert!(compressed(&frame(512), Agreement::Narrow).is_some());
    assert_eq!(compressed(&frame(514), Agreement::Narrow), None);
    assert!(compressed(&frame(514), Agreement::Bounded).is_some());
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    let (mut noise, bytes) = (Vec::new(), (0..400).map(|_| random()).collect::<Vec<_>>());
    encode::binary(&mut noise, &bytes);
    assert_eq!(compressed(&noise, Agreement::Usual), None, "no shorter");
    let mut deflater = Deflater::new();
    assert_eq!(deflater.compress(&bytes), None);
    assert_eq!(deflater.totals().messages, 0);
    assert!(deflater.compress(&[b'x'; 300]).is_some());
    assert_eq!((deflater.totals().messages, deflater.totals().bytes_in), (1, 300));
}

/// RFC 7692 7.1.1.1: what came before changes nothing, nor does a rest.
#[test]
fn messages_are_compressed_one_by_one() {
    let mut deflater = Deflater::new();
    let message = "{\"cursor\":\"AbCd\",\"text\":\"to be or not to be\"}".repeat(9);
    let first = deflater.compress(message.as_bytes()).unwrap().to_vec();
    deflater.compress(&b"something else"[..].repeat(3_000)).unwrap();
    assert_eq!(deflater.compress(message.as_bytes()), Some(&first[..]));
    deflater.rest();
    assert_eq!(deflater.compress(message.as_bytes()), Some(&first[..]));
    let mut inflater = Inflater::new();
    for _ in 0..2 {
        assert_eq!(inflater.inflate(&first, 10_000).unwrap(), message.as_bytes());
        inflater.rest();
    }
    assert_eq!(inflater.totals().bytes_out, 2 * message.len() as u64);
}

/// What can't be made shorter leaves nothing behind in the compressor, however often it comes, and
/// neither does what is broken in the inflater.
#[test]
fn messages_that_fail_leave_nothing_behind() {
    let (mut deflater, mut inflater) = (Deflater::new(), Inflater::new());
    let text = vec![b'a'; 1_000];
    let good = deflater.compress(&text).unwrap().to_vec();
    let mut state = 1_u64;
    for n in 0..400_usize {
        let bytes = 256 + 3 * (n % 200);
        let noise: Vec<u8> = (0..bytes)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        assert_eq!(deflater.compress(&noise), None, "{bytes} bytes");
        let _ = inflater.inflate(&noise, 1_000);
        if n % 100 == 0 {
            assert_eq!(deflater.compress(&text), Some(&good[..]));
            assert_eq!(inflater.inflate(&good, 1_000), Ok(text.clone()));
        }
    }
}

/// RFC 6455 10.4: no more than the limit and one byte is ever made of a message.
#[test]
fn what_is_inflated_is_bounded() {
    let mut deflater = Deflater::new();
    let bomb = deflater.compress(&vec![b' '; 10_000_000]).unwrap().to_vec();
    let mut inflater = Inflater::new();
    assert_eq!(inflater.inflate(&bomb, 65_536).unwrap_err().code, 1_009);
    assert_eq!(inflater.totals().bytes_out, 65_537);
    let fits = inflater.inflate(&bomb, 10_000_000).unwrap();
    assert_eq!(fits.len(), 10_000_000);
    assert_eq!(inflater.inflate(b"\x02\x00", 0).unwrap(), b"");
    assert_eq!(inflater.inflate(&bomb, 0).unwrap_err().code, 1_009);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is compressed is read again, by both readers, and within the window that was said.
    #[test]
    fn what_is_written_is_read_again(
        words in prop::collection::vec("[a-f]{1,9}", 0..900),
        narrow in any::<bool>(),
    ) {
        let message = words.join(" ");
        let frame = text_frame(&message);
        let agreement = if narrow { Agreement::Narrow } else { Agreement::Usual };
        if let Some(mut out) = compressed(&frame, agreement) {
            prop_assert!(out.len() < frame.len());
            let second = frames::frames_with(&out, false, MESSAGE_BYTES_MAX, true);
            prop_assert_eq!(&second.events[0].payload, message.as_bytes());
            let rules = Rules { sender: Sender::Server, ..RULES };
            let mut inflater = Inflater::new();
            let read = Decoder::new().decode_with(&mut out, &rules, Some(&mut inflater)).unwrap();
            prop_assert_eq!(read.event, Some(Event::Text(message.into())));
        } else {
            let most = agreement.compressed_bytes_max();
            prop_assert!(message.len() < COMPRESSED_BYTES_MIN || message.len() > most);
        }
    }

    /// Broken data: both readers say the same.
    #[test]
    fn both_readers_agree_on_what_is_broken(
        words in prop::collection::vec("[a-f]{1,9}", 40..200),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        most in 0_usize..2_000,
    ) {
        let mut deflater = Deflater::new();
        let mut data = deflater.compress(words.join(" ").as_bytes()).unwrap().to_vec();
        for (place, byte) in changes {
            let place = place.index(data.len());
            data[place] = byte;
        }
        if most % 3 == 0 {
            data.truncate(cut.index(data.len()));
        }
        let first = Inflater::new().inflate(&data, most).map_err(|failure| failure.code);
        prop_assert_eq!(first, inflate(&data, most));
    }

    /// So they do on any bytes.
    #[test]
    fn both_readers_agree_on_any_bytes(data in prop::collection::vec(any::<u8>(), 0..60)) {
        let first = Inflater::new().inflate(&data, 1_000).map_err(|failure| failure.code);
        prop_assert_eq!(first, inflate(&data, 1_000));
    }
}
