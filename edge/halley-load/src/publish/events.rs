//! The published events: about drawn subjects, with a stamp, perhaps a number, and padding up to
//! their size. No I/O, no clock.

use std::io::Write;

use super::numbers::Numbers;
use super::subjects::{Name, Subjects};
use crate::rng::Rng;

/// `}`.
const END_BYTES: usize = 1;
/// `,"pad":""`.
const PAD_BYTES: usize = 9;
/// The text of which events have parts.
const TEXT_BYTES: usize = 65_536;
/// What it is made of.
const WORDS: &str = "a about and are at away back be bread bring but by can changed channel code \
    dinner door for from goal good has have he here home i if in is it last late limit list match \
    me message milk minute more my new no not now number of off offline on one online open or \
    order our out player please price quantity score see she shipped so some still stock street \
    team thanks that the their then there they this time to tomorrow two up update was we were \
    what when where which who will with you your";

/// What the server shall have done before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Ack {
    /// Sent the event on its way to the sessions
    Memory,
    /// Written it to disk as well
    Disk,
}

/// What the requests of one run are like.
#[derive(Debug, Clone)]
pub struct Form {
    /// Events per request.
    pub batch: usize,
    /// Size of each event's data as JSON, or a few bytes more where so little has no room for what
    /// must be in it.
    pub data_bytes: usize,
    /// Whether the padding is words, another part of a text in each event; else it is one letter,
    /// of which compression leaves nothing.
    pub words: bool,
    /// What to ask for; `None` leaves it to the server.
    pub ack: Option<Ack>,
    /// The ids of events are this and a number; `None` leaves them to the server.
    pub ids: Option<String>,
    /// Whether subjects come in turn instead of being drawn.
    pub in_turn: bool,
    /// What draws subjects.
    pub seed: u64,
    /// How many users get an event alone, in place of the subject's followers.
    pub to: Option<u64>,
}

/// The next event.
#[derive(Debug, Clone, Copy)]
pub struct Drawn {
    /// The number of its subject.
    pub subject: u64,
    /// Which of its subject's events it is, where they are numbered.
    pub number: Option<u32>,
    /// Which of all events it is, from 0.
    pub ordinal: u64,
}

/// The events of one run.
#[derive(Debug)]
pub struct Events {
    subjects: Subjects,
    form: Form,
    numbers: Option<Numbers>,
    /// What data is padded with, as much as any needs.
    pad: String,
    rng: Rng,
    drawn: u64,
}

impl Events {
    /// None is drawn yet; they have `numbers` if there are any.
    #[must_use]
    pub fn new(subjects: Subjects, form: Form, numbers: Option<Numbers>) -> Self {
        let rng = Rng::new(form.seed);
        let pad = if form.words { text(&form) } else { "x".repeat(form.data_bytes) };
        Self { subjects, form, numbers, pad, rng, drawn: 0 }
    }

    /// Events per request.
    #[must_use]
    pub fn batch(&self) -> u64 {
        self.form.batch as u64
    }

    /// Whether events have numbers, and so must not be lost on the way to the server.
    #[must_use]
    pub fn is_numbered(&self) -> bool {
        self.numbers.is_some()
    }

    /// Whether the next request can be written: numbered events whose subjects come in turn wait
    /// for the one before about the same subject, so that each gets as many.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let Some(numbers) = self.numbers.as_ref().filter(|_| self.form.in_turn) else {
            return true;
        };
        let count = self.subjects.count();
        (0..self.batch()).all(|event| numbers.is_free((self.drawn + event) % count))
    }

    /// What they are like.
    #[must_use]
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// Draws the next one. Where an earlier event about the subject is still on its way, it is
    /// about another: two on their way could overtake each other.
    pub fn draw(&mut self) -> Drawn {
        let count = self.subjects.count();
        let ordinal = self.drawn;
        self.drawn += 1;
        let mut subject =
            if self.form.in_turn { ordinal % count } else { self.subjects.draw(&mut self.rng) };
        let Some(numbers) = &mut self.numbers else {
            return Drawn { subject, number: None, ordinal };
        };
        for _ in 0..count {
            if let Some(number) = numbers.take(subject) {
                return Drawn { subject, number: Some(number), ordinal };
            }
            subject = (subject + 1) % count;
        }
        // Not to be met: there are more subjects than events on their way (`Numbers::read`).
        Drawn { subject, number: None, ordinal }
    }

    /// Appends a subject as JSON.
    pub fn push_subject(&self, subject: u64, json: &mut Vec<u8>) {
        self.subjects.push(subject, json);
    }

    /// Appends whom an event is for, as a member of it: those about the subject, or the users whose
    /// group it is.
    pub fn push_whom(&self, subject: u64, json: &mut Vec<u8>) {
        let Some(users) = self.form.to else {
            json.extend_from_slice(b"\"subject\":");
            return self.push_subject(subject, json);
        };
        for user in subject * users + 1..=(subject + 1) * users {
            let before = if user % users == 1 || users == 1 { "\"to\":[" } else { "," };
            // Writing to a Vec can't fail.
            let _ = write!(json, "{before}\"{user}\"");
        }
        json.push(b']');
    }

    /// A subject as it is.
    #[must_use]
    pub fn name(&self, subject: u64) -> Name<'_> {
        self.subjects.name(subject)
    }

    /// Appends the data: the stamp, the number if there is one, and a pad that makes up for the
    /// digits of both.
    pub fn push_data(&self, stamp_ns: u64, number: Option<u32>, json: &mut Vec<u8>) {
        let start = json.len();
        // Writing to a Vec can't fail.
        let _ = write!(json, "{{\"t\":{stamp_ns}");
        if let Some(number) = number {
            let _ = write!(json, ",\"n\":{number}");
        }
        let size = json.len() - start + END_BYTES;
        let room = self.form.data_bytes.saturating_sub(size);
        if room >= PAD_BYTES {
            let from = if self.form.words { stamp_ns as usize % TEXT_BYTES } else { 0 };
            let pad = &self.pad[from..from + room - PAD_BYTES];
            let _ = write!(json, ",\"pad\":\"{pad}\"");
        }
        json.push(b'}');
    }

    /// The events about these subjects were taken: others about them may follow.
    pub fn taken(&mut self, about: &[u64]) {
        if let Some(numbers) = &mut self.numbers {
            numbers.free(about);
        }
    }

    /// Gives back what the subjects' numbers have come to.
    #[must_use]
    pub fn into_numbers(self) -> Option<(Numbers, Subjects)> {
        self.numbers.map(|numbers| (numbers, self.subjects))
    }
}

/// A text of words; from each of its first [`TEXT_BYTES`] on there is enough for an event.
fn text(form: &Form) -> String {
    let (words, mut rng) = (WORDS.split(' ').collect::<Vec<_>>(), Rng::new(form.seed));
    let mut text = String::new();
    while text.len() < TEXT_BYTES + form.data_bytes {
        text.push_str(words[rng.below(words.len() as u64) as usize]);
        text.push(' ');
    }
    text
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// What the tests publish.
    pub fn form(batch: usize, data_bytes: usize) -> Form {
        Form {
            batch,
            data_bytes,
            words: false,
            ack: None,
            ids: None,
            in_turn: false,
            seed: 1,
            to: None,
        }
    }

    /// Events about these subjects, without numbers.
    pub fn events(subjects: &str, form: Form) -> Events {
        Events::new(Subjects::parse(subjects).unwrap(), form, None)
    }

    #[test]
    fn the_data_has_the_size_that_was_asked_for_and_the_stamp() {
        for bytes in [79, 30, 500] {
            for stamp in [7, 123_456_789_012_345] {
                let mut data = Vec::new();
                events("uniform:1-9", form(1, bytes)).push_data(stamp, None, &mut data);
                assert_eq!(data.len(), bytes);
                let data: Value = serde_json::from_slice(&data).unwrap();
                assert_eq!(data["t"], stamp);
            }
        }
        let mut data = Vec::new();
        events("uniform:1-9", form(1, 0)).push_data(5, Some(1), &mut data);
        assert_eq!(data, b"{\"t\":5,\"n\":1}");
    }

    #[test]
    fn of_a_subject_one_numbered_event_is_on_its_way() {
        let subjects = Subjects::parse("groups:3").unwrap();
        let numbers = Numbers::new(&subjects, 3).unwrap();
        let mut events = Events::new(subjects, form(1, 50), Some(numbers));
        let first: Vec<Drawn> = (0..3).map(|_| events.draw()).collect();
        assert!(first.iter().all(|event| event.number == Some(1)));
        let subjects: BTreeSet<u64> = first.iter().map(|event| event.subject).collect();
        assert_eq!(subjects.len(), 3, "each subject once");
        events.taken(&[1]);
        let next = events.draw();
        assert_eq!((next.subject, next.number, next.ordinal), (1, Some(2), 3));
    }
}
