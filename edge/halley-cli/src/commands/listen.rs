//! `listen`: a client of the public listener, as NDJSON, that comes back with its cursor.
//!
//! Each event is printed at least once. After a break the stream goes on with the last cursor. With
//! `--cursor-file` the next run does so too, and events of the last second may come again, with the
//! same ids.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Context;
use super::events::words;
use crate::client::{Client, Door, segment};
use crate::failure::{Failure, Result};
use crate::out::{note, shown};
use crate::whole_file;

/// Heartbeats come at least so often; a stream that is silent for longer is broken.
const SILENCE: Duration = Duration::from_secs(90);
/// Between two tries to come back: doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A line that is longer is no message: an event's data is far below it.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// How often the cursor's file is written.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// What to listen to.
#[derive(Debug, Args)]
pub struct Options {
    /// Subjects to subscribe to, besides what the user follows
    subjects: Vec<String>,
    /// The user, where Halley needs no token (auth.mode = none)
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Begin with the newest N events about the subjects
    #[arg(long, value_name = "N", requires = "subjects")]
    last: Option<u64>,
    /// Begin with what was missed since this cursor
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Begin where the run before ended: its cursor is kept in this file
    #[arg(long, value_name = "FILE", conflicts_with = "cursor")]
    cursor_file: Option<PathBuf>,
    /// End after N events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print the cursors, too (with --json)
    #[arg(long, requires = "json")]
    cursors: bool,
}

/// Prints events until it is ended.
///
/// # Errors
/// If the server refuses the stream, or can't be reached at the start.
pub fn run(context: &mut Context, options: &Options) -> Result<()> {
    let client = Client::new(&context.settings, Door::Public)?;
    let cursor = options.cursor.clone();
    let mut listener = Listener { cursor, printed: 0, heard: false, saved: None };
    if let Some(path) = &options.cursor_file {
        listener.cursor = read_cursor(path)?;
    }
    let mut was_there = false;
    let mut pause = PAUSE_MIN;
    loop {
        let ended = match client.stream(&listener.path(options), NDJSON, SILENCE) {
            Ok(stream) => {
                was_there = true;
                let read = listener.read(context, options, BufReader::new(stream));
                // Also where it ends for good, so that the next run repeats nothing.
                listener.save(options)?;
                let ended = read?;
                // What accepts a stream and says nothing isn't asked again and again.
                if std::mem::take(&mut listener.heard) {
                    pause = PAUSE_MIN;
                }
                ended
            }
            Err(failure @ Failure::Unreachable(_)) if was_there => {
                Ended::Broken(failure.to_string())
            }
            Err(Failure::Refused(refusal)) if was_there && refusal.is_passing() => {
                Ended::Broken(refusal.to_string())
            }
            Err(failure) => return Err(failure),
        };
        match ended {
            Ended::Counted => return Ok(()),
            Ended::Broken(why) => {
                note(&format!("halley: {}; coming back in {pause:?}", shown(&why)));
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

const NDJSON: &[(&str, &str)] = &[("accept", "application/x-ndjson")];

enum Ended {
    Counted,
    Broken(String),
}

struct Listener {
    cursor: Option<String>,
    printed: u64,
    /// A message has come since the stream was opened.
    heard: bool,
    saved: Option<Instant>,
}

impl Listener {
    fn path(&self, options: &Options) -> String {
        let mut path = "/v1/stream?".to_owned();
        let mut put = |name: &str, value: &str| path += &format!("{name}={}&", segment(value));
        if let Some(user) = &options.user {
            put("user", user);
        }
        for subject in &options.subjects {
            put("subject", subject);
        }
        if let Some(last) = options.last {
            put("last", &last.to_string());
        }
        if let Some(cursor) = &self.cursor {
            put("cursor", cursor);
        }
        path.truncate(path.len() - 1);
        path
    }

    fn read(
        &mut self,
        context: &mut Context,
        options: &Options,
        mut stream: impl BufRead,
    ) -> Result<Ended> {
        let mut line = String::new();
        loop {
            line.clear();
            match (&mut stream).take(LINE_BYTES_MAX).read_line(&mut line) {
                Ok(0) => return Ok(Ended::Broken("the stream has ended".to_owned())),
                Ok(_) => {}
                Err(error) => return Ok(Ended::Broken(format!("the stream broke off: {error}"))),
            }
            if line.len() as u64 == LINE_BYTES_MAX && !line.ends_with('\n') {
                let why = "a line of 16 MiB came: is --public-url the address of a Halley?";
                return Err(Failure::Unreachable(why.to_owned()));
            }
            let Some(message) = Message::of(&line, options.cursors) else { continue };
            self.heard = true;
            self.print(context, options, &message)?;
            if options.count.is_some_and(|count| self.printed >= count) {
                return Ok(Ended::Counted);
            }
            if let Some(End { reason }) = message.kind.end {
                return Err(ended(&reason));
            }
        }
    }

    /// The cursor counts only once what came with it is on its way to the reader.
    fn print(&mut self, context: &mut Context, options: &Options, message: &Message) -> Result<()> {
        if let Some(text) = &message.shown {
            context.out.either(text, || words(text))?;
            context.out.flush()?;
        }
        if message.kind.id.is_some() {
            self.printed += 1;
        }
        if let Some(cursor) = &message.kind.cursor {
            self.cursor = Some(cursor.clone());
            if self.saved.is_none_or(|saved| saved.elapsed() >= SAVE_EVERY) {
                self.save(options)?;
            }
        }
        Ok(())
    }

    fn save(&mut self, options: &Options) -> Result<()> {
        if let (Some(path), Some(cursor)) = (&options.cursor_file, &self.cursor) {
            whole_file::write(path, format!("{}\n", json!({ "cursor": cursor })).as_bytes())?;
            self.saved = Some(Instant::now());
        }
        Ok(())
    }
}

/// What decides about a message of the stream.
#[derive(Deserialize)]
struct Kind {
    cursor: Option<String>,
    id: Option<String>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct End {
    reason: String,
}

/// A message, with its text as it came.
struct Message {
    kind: Kind,
    /// Without the cursor, unless that is to be seen; `None` if nothing else was in it.
    shown: Option<Box<RawValue>>,
}

impl Message {
    /// Of one line; `None` if it is no JSON object.
    fn of(line: &str, with_cursor: bool) -> Option<Self> {
        let kind: Kind = serde_json::from_str(line).ok()?;
        let text = line.trim();
        // The first member (http-api.md, Cursors); no cursor has a quote in it.
        let rest = text.strip_prefix("{\"cursor\":\"").and_then(|rest| rest.split_once('"'));
        let shown = match rest {
            Some((_, rest)) if !with_cursor => {
                let members = rest.trim_start_matches(',');
                (members != "}").then(|| format!("{{{members}"))
            }
            _ => Some(text.to_owned()),
        };
        Some(Self { kind, shown: shown.and_then(|text| RawValue::from_string(text).ok()) })
    }
}

fn ended(reason: &str) -> Failure {
    Failure::Refused(crate::failure::Refusal {
        status: if reason.starts_with("token") { 401 } else { 400 },
        code: reason.to_owned(),
        message: "the server has ended the session".to_owned(),
        retry_after_s: None,
    })
}

/// The file's cursor; `None` if there is no file yet.
fn read_cursor(path: &Path) -> Result<Option<String>> {
    let name = path.display();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::Io(format!("can't read {name}"), error)),
    };
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    match value["cursor"].as_str() {
        Some(cursor) => Ok(Some(cursor.to_owned())),
        None => Err(Failure::Usage(format!("{name} is no file of `listen --cursor-file`"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_message_is_shown_without_its_cursor() {
        let line = r#"{"cursor":"AB","id":"i","data":1.50}"#;
        let shown = |line: &str, with_cursor| {
            Message::of(line, with_cursor).unwrap().shown.map(|shown| shown.get().to_owned())
        };
        assert_eq!(shown(line, false).unwrap(), r#"{"id":"i","data":1.50}"#);
        assert_eq!(shown(line, true).unwrap(), line);
        assert_eq!(shown("{\"cursor\":\"AB\"}\n", false), None);
        assert_eq!(Message::of(line, false).unwrap().kind.cursor.unwrap(), "AB");
        assert!(Message::of("", false).is_none());
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: crate::settings::Flags,
        #[command(flatten)]
        options: Options,
    }

    fn read_of(stream: impl Read) -> (Listener, Result<Ended>) {
        let line = ["listen", "--config", "/dev/null"];
        let Line { flags, options } = <Line as clap::Parser>::try_parse_from(line).unwrap();
        let mut context = Context::new(&flags).unwrap();
        let mut listener = Listener { cursor: None, printed: 0, heard: false, saved: None };
        let read = listener.read(&mut context, &options, BufReader::new(stream));
        (listener, read)
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let (listener, read) = read_of(std::io::repeat(b'x'));
        assert!(matches!(read, Err(Failure::Unreachable(_))));
        assert!(!listener.heard);
    }

    #[test]
    fn what_is_no_message_isnt_heard() {
        let (listener, read) = read_of(&b"<html>\n</html>\n"[..]);
        assert!(matches!(read, Ok(Ended::Broken(_))));
        assert!(!listener.heard);
        assert!(read_of(&b"{\"cursor\":\"AB\"}\n"[..]).0.heard);
    }
}
