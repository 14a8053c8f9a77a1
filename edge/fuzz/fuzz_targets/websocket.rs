//! WebSocket frames of both sides, where compression was agreed on and where not: no panic, no
//! dependence on the cuts, limits kept, the same events and failures as the second reader finds,
//! which inflates by itself, and what is written is read again, compressed or not.

#![no_main]

use std::cell::RefCell;

use halley_fuzz::connection::into_owned;
use halley_fuzz::second::frames::{self, frames_with};
use halley_fuzz::second::inflate::inflate;
use halley_wire::websocket::extension::Agreement;
use halley_wire::websocket::{
    Decoder, Deflater, Event, Failure, Inflater, Rules, Sender, client, close_code, encode,
};
use libfuzzer_sys::fuzz_target;

const MESSAGE_BYTES_MAX: usize = 300;

type Read = (Vec<Event<'static>>, Result<(), Failure>);

fuzz_target!(|data: &[u8]| {
    let (cuts, input) = halley_fuzz::cuts(data);
    // Most inputs as a server reads them.
    let sender = if data.len() % 4 == 0 { Sender::Server } else { Sender::Client };
    let rules = Rules { sender, message_bytes_max: MESSAGE_BYTES_MAX };
    let deflate = data.len() % 3 != 0;
    let whole = decode(input, &[input.len()], &rules, deflate);
    assert_eq!(decode(input, &cuts, &rules, deflate), whole);
    for event in &whole.0 {
        match event {
            Event::Text(text) => assert!(text.len() <= MESSAGE_BYTES_MAX),
            Event::Binary(bytes) => assert!(bytes.len() <= MESSAGE_BYTES_MAX),
            Event::Ping(bytes) | Event::Pong(bytes) => assert!(bytes.len() <= 125),
            Event::Close(code) => assert!(code.is_none_or(close_code::may_travel)),
        }
    }
    second_reader_agrees(&whole, input, sender, deflate);
    compressed_and_read(input);
    written_and_read(&whole.0, &cuts);
});

fn second_reader_agrees((events, end): &Read, input: &[u8], sender: Sender, deflate: bool) {
    let second = frames_with(input, sender == Sender::Client, MESSAGE_BYTES_MAX, deflate);
    let seen: Vec<_> = events.iter().map(seen).collect();
    // The reason of a close is read, checked and forgotten.
    let known: Vec<_> = second.events.iter().map(without_reason).collect();
    assert_eq!(seen, known);
    match second.failure {
        Some(code) => assert_eq!(end.map_err(|failure| failure.code), Err(code)),
        None => assert!(!second.finished || end.is_ok()),
    }
}

fn seen(event: &Event<'_>) -> frames::Event {
    let (opcode, payload) = match event {
        Event::Text(text) => (1, text.as_bytes().to_vec()),
        Event::Binary(bytes) => (2, bytes.to_vec()),
        Event::Close(code) => (8, code.map_or_else(Vec::new, |code| code.to_be_bytes().to_vec())),
        Event::Ping(bytes) => (9, bytes.to_vec()),
        Event::Pong(bytes) => (10, bytes.to_vec()),
    };
    frames::Event { opcode, payload }
}

fn without_reason(event: &frames::Event) -> frames::Event {
    let kept = if event.opcode == 8 { event.payload.len().min(2) } else { event.payload.len() };
    frames::Event { opcode: event.opcode, payload: event.payload[..kept].to_vec() }
}

/// Writes the events as each side would, and reads them, cut at the same places.
fn written_and_read(events: &[Event<'static>], cuts: &[usize]) {
    let (mut of_server, mut of_client) = (Vec::new(), Vec::new());
    for event in events {
        let key = [cuts.len() as u8, 0xa5, 0, 0xff];
        match event {
            Event::Text(text) => {
                encode::text(&mut of_server, text);
                client::text(&mut of_client, text, key);
            }
            Event::Binary(bytes) => {
                encode::binary(&mut of_server, bytes);
                client::binary(&mut of_client, bytes, key);
            }
            Event::Ping(bytes) => {
                encode::ping(&mut of_server, bytes);
                client::ping(&mut of_client, bytes, key);
            }
            Event::Pong(bytes) => {
                encode::pong(&mut of_server, bytes);
                client::pong(&mut of_client, bytes, key);
            }
            Event::Close(code) => {
                encode::close(&mut of_server, *code, "");
                client::close(&mut of_client, code.unwrap_or(close_code::NORMAL), key);
            }
        }
    }
    for (sender, out) in [(Sender::Server, of_server), (Sender::Client, of_client)] {
        let rules = Rules { sender, message_bytes_max: MESSAGE_BYTES_MAX };
        let mut places: Vec<usize> = cuts.iter().map(|&cut| cut.min(out.len())).collect();
        places.push(out.len());
        let (mut read, end) = decode(&out, &places, &rules, false);
        if let (Sender::Client, Some(Event::Close(code))) = (sender, read.last_mut()) {
            let sent = matches!(events.last(), Some(Event::Close(Some(_))));
            *code = code.filter(|_| sent);
        }
        assert_eq!((read.as_slice(), end), (events, Ok(())));
    }
}

thread_local! {
    /// One of each for all inputs, as a worker has: whatever came before must change nothing.
    static WORKERS: RefCell<(Deflater, Inflater)> = RefCell::default();
}

/// The input as the payload of a message: as it is, it is data that both inflate or neither does;
/// and what is made of it by compressing is read by the second reader.
fn compressed_and_read(input: &[u8]) {
    WORKERS.with_borrow_mut(|(deflater, inflater)| {
        for most in [MESSAGE_BYTES_MAX, 20_000] {
            let first = inflater.inflate(input, most);
            assert_eq!(first.map_err(|failure| failure.code), inflate(input, most));
        }
        for times in [1, 2] {
            compressed_once(&input.repeat(times), deflater);
        }
    });
}

fn compressed_once(message: &[u8], deflater: &mut Deflater) {
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    encode::binary(&mut plain, message);
    if encode::compressed(&mut out, &plain, Agreement::Usual, deflater) {
        assert!(out.len() < plain.len());
        let read = frames_with(&out, false, plain.len(), true);
        assert_eq!(read.events[0].payload, encode::payload(&plain));
    }
}

fn decode(input: &[u8], cuts: &[usize], rules: &Rules, deflate: bool) -> Read {
    let mut inflater = deflate.then(Inflater::new);
    let mut input = input.to_vec();
    let mut decoder = Decoder::new();
    let (mut events, mut at) = (Vec::new(), 0);
    for &end in cuts {
        while at < end {
            let decoded = match decoder.decode_with(&mut input[at..end], rules, inflater.as_mut()) {
                Ok(decoded) => decoded,
                Err(failure) => return (events, Err(failure)),
            };
            assert!(decoded.consumed > 0);
            at += decoded.consumed;
            match decoded.event {
                None => assert_eq!(at, end),
                Some(event) => events.push(into_owned(event)),
            }
            if matches!(events.last(), Some(Event::Close(_))) {
                return (events, Ok(()));
            }
        }
    }
    (events, Ok(()))
}
