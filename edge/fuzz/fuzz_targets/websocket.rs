//! WebSocket frames of both sides: no panic, no dependence on the cuts, limits kept.

#![no_main]

use std::borrow::Cow;

use halley_wire::websocket::{Decoder, Event, Failure, Rules, Sender, close_code};
use libfuzzer_sys::fuzz_target;

const MESSAGE_BYTES_MAX: usize = 300;

fuzz_target!(|data: &[u8]| {
    let (cuts, input) = halley_fuzz::cuts(data);
    // Most inputs as a server reads them.
    let sender = if data.len() % 4 == 0 { Sender::Server } else { Sender::Client };
    let rules = Rules { sender, message_bytes_max: MESSAGE_BYTES_MAX };
    let whole = decode(input, &[input.len()], &rules);
    assert_eq!(decode(input, &cuts, &rules), whole);
    for event in &whole.0 {
        match event {
            Event::Text(text) => assert!(text.len() <= MESSAGE_BYTES_MAX),
            Event::Binary(bytes) => assert!(bytes.len() <= MESSAGE_BYTES_MAX),
            Event::Ping(bytes) | Event::Pong(bytes) => assert!(bytes.len() <= 125),
            Event::Close(code) => assert!(code.is_none_or(close_code::may_travel)),
        }
    }
});

fn decode(
    input: &[u8],
    cuts: &[usize],
    rules: &Rules,
) -> (Vec<Event<'static>>, Result<(), Failure>) {
    let mut input = input.to_vec();
    let mut decoder = Decoder::new();
    let (mut events, mut at) = (Vec::new(), 0);
    for &end in cuts {
        while at < end {
            let decoded = match decoder.decode(&mut input[at..end], rules) {
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

fn into_owned(event: Event<'_>) -> Event<'static> {
    let owned = |bytes: Cow<'_, [u8]>| Cow::Owned(bytes.into_owned());
    match event {
        Event::Text(text) => Event::Text(Cow::Owned(text.into_owned())),
        Event::Binary(bytes) => Event::Binary(owned(bytes)),
        Event::Ping(bytes) => Event::Ping(owned(bytes)),
        Event::Pong(bytes) => Event::Pong(owned(bytes)),
        Event::Close(code) => Event::Close(code),
    }
}
