//! The first message of a WebSocket that is opened by it (`protocol/http.md` 28.3): the parameters
//! of the session, as they would stand in a form.
//!
//! Its connection speaks HTTP for the worker until the message is whole: it is pending, has its
//! time, and counts among the forms that wait for their rest, all by the same rules as a form.
//!
//! Bounds: [`FORM_BYTES_MAX`] the message, [`READ_BYTES_MAX`] all that comes until it is whole;
//! frames that were read after it count among the forms, too, until the session takes them.

use std::borrow::Cow;

use halley_wire::HttpError;
use halley_wire::websocket::extension::Agreement;
use halley_wire::websocket::{Decoder, Event, Failure, Inflater, Rules, Sender, encode};

use crate::sessions::base::form::{FORM_BYTES_MAX, Forms, Part};

const RULES: Rules = Rules { sender: Sender::Client, message_bytes_max: FORM_BYTES_MAX };
/// What may come until the message is whole. Without an end pings would keep the pace of a body,
/// and the connection its place, for as long as the client likes.
const READ_BYTES_MAX: usize = 2 * FORM_BYTES_MAX;
/// What is gathered grows by doubling.
const GATHERED: usize = 2;

const NOT_A_FORM: HttpError = HttpError::new(
    400,
    "bad_form",
    "The first message of this WebSocket is a text with the parameters of the session, as \
     user=ann&subject=a&subject=b.",
);

const TOO_MUCH: HttpError = HttpError::new(
    413,
    "body_too_large",
    "Until the first message of this WebSocket is whole 262,144 bytes come at most, pings \
     included: send it in one frame.",
);

/// Bytes that came behind the message, for the session to read.
pub struct Ahead {
    /// They are frames.
    pub bytes: Vec<u8>,
    _part: Part,
}

/// A message that is awaited.
pub struct FirstMessage {
    /// Of its request, to be read again when the message is whole.
    pub head: Vec<u8>,
    /// What was agreed on about compression.
    pub deflate: Option<Agreement>,
    decoder: Decoder,
    /// That the decoder may hold.
    bytes: usize,
    /// That came.
    read: usize,
    part: Part,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Not all of it.
    Part,
    /// The parameters, and how many bytes they took.
    Whole(String, usize),
    /// The client closes.
    Close(Option<u16>),
}

/// Why nothing more is read.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// It isn't what the frames of a client are.
    Frames(Failure),
    /// It isn't a form.
    Form(HttpError),
}

impl FirstMessage {
    /// Of the request with this head; nothing of it has been read.
    pub fn new(head: &[u8], deflate: Option<Agreement>, forms: &Forms) -> FirstMessage {
        let part = Part::of(forms);
        let (head, decoder) = (head.to_vec(), Decoder::new());
        FirstMessage { head, deflate, decoder, bytes: 0, read: 0, part }
    }

    /// Reads on in `input`; what is to be answered goes to `out`. Uses all of it, unless the
    /// message ends before.
    ///
    /// # Errors
    /// See [`Broken`]. Nothing is to be read after it.
    pub fn read(
        &mut self,
        input: &[u8],
        inflater: &mut Inflater,
        out: &mut Vec<u8>,
    ) -> Result<Heard, Broken> {
        let mut rest = input.to_vec();
        let mut used = 0;
        while used < rest.len() {
            let inflater = self.deflate.is_some().then_some(&mut *inflater);
            let decoded = self.decoder.decode_with(&mut rest[used..], &RULES, inflater);
            let decoded = decoded.map_err(Broken::Frames)?;
            used += decoded.consumed;
            match decoded.event {
                Some(Event::Text(form)) => return Ok(Heard::Whole(Cow::into_owned(form), used)),
                Some(Event::Binary(_)) => return Err(Broken::Form(NOT_A_FORM)),
                Some(Event::Ping(payload)) => encode::pong(out, &payload),
                Some(Event::Pong(_)) => {}
                Some(Event::Close(code)) => return Ok(Heard::Close(code)),
                None => break,
            }
        }
        self.read += input.len();
        if self.read > READ_BYTES_MAX {
            return Err(Broken::Form(TOO_MUCH));
        }
        // Between messages nothing is held, and of control frames only the last.
        let held = (self.bytes + input.len()).min(FORM_BYTES_MAX);
        self.bytes = if self.decoder.is_idle() { 0 } else { held };
        let bytes = self.head.len() + GATHERED * self.bytes;
        self.part.becomes(bytes).map_err(Broken::Form)?;
        Ok(Heard::Part)
    }

    /// Keeps what came behind the message for the session.
    ///
    /// # Errors
    /// [`FORMS_FULL`](crate::sessions::base::form::FORMS_FULL)
    pub fn ahead(mut self, bytes: &[u8]) -> Result<Option<Box<Ahead>>, HttpError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        self.part.becomes(bytes.len())?;
        Ok(Some(Box::new(Ahead { bytes: bytes.to_vec(), _part: self.part })))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use halley_wire::websocket::close_code;

    use super::*;
    use crate::sessions::base::form::{FORMS_BYTES_MAX, FORMS_FULL};

    /// A client's frame, masked with zeros.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        match payload.len() {
            n @ 0..126 => out.push(0x80 | n as u8),
            n @ 126..65_536 => {
                out.push(0x80 | 126);
                out.extend((n as u16).to_be_bytes());
            }
            n => {
                out.push(0x80 | 127);
                out.extend((n as u64).to_be_bytes());
            }
        }
        out.extend([0; 4]);
        out.extend(payload);
        out
    }

    const TEXT: u8 = 0x81;
    const BINARY: u8 = 0x82;
    const PING: u8 = 0x89;
    const CLOSE: u8 = 0x88;

    /// However it is cut, with control frames between its fragments.
    #[test]
    fn a_message_comes_in_pieces() {
        let all = [
            frame(PING, b"1"),
            frame(0x01, b"user=a"),
            frame(PING, b"2"),
            frame(0x80, b"nn&subject=b"),
            frame(TEXT, b"next"),
        ]
        .concat();
        let behind = frame(TEXT, b"next").len();
        for step in 1..all.len() {
            let forms = Forms::default();
            let mut message = FirstMessage::new(b"head", None, &forms);
            let (mut inflater, mut out, mut at) = (Inflater::default(), Vec::new(), 0);
            let whole = loop {
                let piece = &all[at..(at + step).min(all.len())];
                match message.read(piece, &mut inflater, &mut out).unwrap() {
                    Heard::Part => at += piece.len(),
                    Heard::Whole(form, used) => break (form, at + used),
                    Heard::Close(_) => unreachable!(),
                }
            };
            assert_eq!(whole, ("user=ann&subject=b".to_owned(), all.len() - behind));
            let mut pongs = Vec::new();
            encode::pong(&mut pongs, b"1");
            encode::pong(&mut pongs, b"2");
            assert_eq!(out, pongs);
            let ahead = message.ahead(&all[whole.1..]).unwrap().unwrap();
            assert_eq!((ahead.bytes.len(), forms.bytes()), (behind, behind));
            drop(ahead);
            assert_eq!(forms.bytes(), 0);
        }
    }

    #[test]
    fn other_messages_are_refused() {
        let hear = |bytes: &[u8]| {
            let mut message = FirstMessage::new(b"", None, &Forms::default());
            message.read(bytes, &mut Inflater::default(), &mut Vec::new())
        };
        assert_eq!(hear(&frame(BINARY, b"user=a")), Err(Broken::Form(NOT_A_FORM)));
        assert_eq!(hear(&frame(CLOSE, &1_000_u16.to_be_bytes())), Ok(Heard::Close(Some(1_000))));
        let failed = |bytes: &[u8]| match hear(bytes) {
            Err(Broken::Frames(failure)) => failure.code,
            other => panic!("{other:?}"),
        };
        let unmasked = [TEXT, 1, b'a'];
        assert_eq!(failed(&unmasked), close_code::PROTOCOL_ERROR);
        let most = vec![b'a'; FORM_BYTES_MAX];
        assert!(matches!(hear(&frame(TEXT, &most)), Ok(Heard::Whole(_, _))));
        let long = vec![b'a'; FORM_BYTES_MAX + 1];
        assert_eq!(failed(&frame(TEXT, &long)), close_code::MESSAGE_TOO_BIG);
    }

    /// Pings between its fragments take no room from others, and have an end.
    #[test]
    fn a_message_comes_to_an_end() {
        let forms = Forms::default();
        let mut message = FirstMessage::new(b"head", None, &forms);
        let mut hear =
            |bytes: &[u8]| message.read(bytes, &mut Inflater::default(), &mut Vec::new());
        let begun = frame(0x01, b"user=a");
        assert_eq!(hear(&begun), Ok(Heard::Part));
        let pings = frame(PING, &[0; 125]).repeat(500);
        let mut came = begun.len();
        while came + pings.len() <= READ_BYTES_MAX {
            assert_eq!(hear(&pings), Ok(Heard::Part));
            came += pings.len();
            assert!(forms.bytes() <= 4 + GATHERED * FORM_BYTES_MAX);
        }
        assert!(came > FORM_BYTES_MAX);
        assert_eq!(hear(&pings), Err(Broken::Form(TOO_MUCH)));
    }

    /// "counts among the forms that wait for their rest"
    #[test]
    fn what_waits_is_counted() {
        let forms = Forms::default();
        let begun = || {
            let mut message = FirstMessage::new(b"head", None, &forms);
            let all = frame(TEXT, &vec![b'a'; FORM_BYTES_MAX]);
            let read = message.read(&all[..65_536], &mut Inflater::default(), &mut Vec::new());
            read.map(|_| message)
        };
        let mut all: Vec<FirstMessage> = (0..256).map_while(|_| begun().ok()).collect();
        let each = 4 + GATHERED * 65_536;
        assert_eq!((all.len(), forms.bytes()), (FORMS_BYTES_MAX / each, all.len() * each));
        assert_eq!(begun().err(), Some(Broken::Form(FORMS_FULL)));
        let last = all.pop().unwrap();
        drop(last);
        assert!(begun().is_ok());
        drop(all);
        assert_eq!(forms.bytes(), 0);
    }
}
