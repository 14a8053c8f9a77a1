//! `import`: follows from a file of any size, by `POST /v1/follows`, or their end by `DELETE`.
//!
//! The file goes out in blocks of whole lines, several at a time, each on a connection of its own.
//! A thread reads, others send, and the main one counts answers in the order of the lines: what is
//! done without a hole is written to the state's file twice a second. After a kill of this program,
//! of the server or of both the next run goes on there. A block may then be sent twice, which
//! changes nothing: its follows are `already`.
//!
//! It doesn't judge lines: the server does, and a bad line spoils no other.

mod blocks;
mod state;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use serde_json::{Value, json};
use ureq::http::Method;

use self::blocks::{Block, Blocks, Place};
use self::state::{Done, Job, Mark, State, is_of_another};
use super::Context;
use crate::client::{Client, Door, patiently};
use crate::failure::{Failure, Result};
use crate::out::{cell, count, note, shown};
use crate::progress::Progress;
use crate::whole_file::with_suffix;

/// A block that is sent again before the server is through with it makes the server slower still.
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_secs(120);
/// How often the state is written.
const SAVE_EVERY: Duration = Duration::from_millis(500);
/// Errors that are shown; the others are counted.
const ERRORS_SHOWN_MAX: u64 = 100;

/// What to import, and how.
#[derive(Debug, Args)]
pub struct Options {
    /// The file, with `USER SUBJECT` or {"user":U,"subject":S} on each line; `-` is stdin
    file: PathBuf,
    /// End these follows
    #[arg(long)]
    unfollow: bool,
    /// The lines' form [default: the first character tells it]
    #[arg(long, value_parser = ["edges", "ndjson"])]
    format: Option<String>,
    /// Where it is kept how far the import is [default: FILE.halley-import]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Begin anew, whatever the state says
    #[arg(long)]
    restart: bool,
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u8).range(1..))]
    in_flight: u8,
    /// Seconds for which a request is repeated while the server is away or overloaded
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
}

/// A block's outcome.
struct Sent {
    place: Place,
    answer: Result<Value>,
}

/// How the blocks are sent.
struct Sender<'a> {
    client: Client,
    method: Method,
    /// What each answer counts.
    counts: &'static str,
    media_type: &'a str,
    patience: Duration,
    /// Nothing more is to be sent.
    stop: AtomicBool,
}

/// Imports.
///
/// # Errors
/// If the file can't be read, the server refuses a request or a line, or stays away.
pub fn run(context: &mut Context, options: &Options) -> Result<()> {
    let mut settings = context.settings.clone();
    settings.answer_timeout = settings.answer_timeout.max(ANSWER_TIMEOUT_MIN);
    let client = Client::new(&settings, Door::Api)?;
    let mut input = open(options)?;
    let start = input.start().map_err(Failure::io("can't read the input"))?;
    let form = form(options, &start);
    let job = Job { url: settings.url, unfollow: options.unfollow, form: form.to_owned() };
    let (mut state, mut done) = match state_path(options) {
        Some(path) => {
            let (state, done) = State::take(&path, job, options.restart)?;
            (Some(state), done)
        }
        None => (None, Done::default()),
    };
    let total = input.length();
    let blocks = input.blocks(options, &start, &done)?;
    let before = done.lines;
    if before > 0 {
        note(&format!("going on behind line {}, where the run before ended", count(before)));
    } else {
        // A wrong address is noticed now, and not when the patience is over.
        client.knock()?;
    }
    let sender = Sender {
        client,
        method: if options.unfollow { Method::DELETE } else { Method::POST },
        counts: counts(options)[0],
        media_type: form,
        patience: Duration::from_secs(options.patience),
        stop: AtomicBool::new(false),
    };
    let mut progress = Progress::new("lines", total);
    let result = send_all(blocks, &sender, options, &mut done, |done| {
        progress.set(done.offset, done.lines, done.lines - before);
        state.as_mut().map_or(Ok(()), |state| state.write(done))
    });
    let seconds = progress.finish();
    if let Err(failure) = result {
        // What isn't kept now is sent again, which changes nothing.
        let _ = state.map_or(Ok(()), |mut state| state.write(&done));
        return Err(failure);
    }
    state.map_or(Ok(()), State::remove)?;
    report(context, options, &done, before, seconds)
}

/// The members of answers that count what was changed, and what was so already.
fn counts(options: &Options) -> [&'static str; 2] {
    if options.unfollow { ["removed", "absent"] } else { ["added", "already"] }
}

fn report(
    context: &mut Context,
    options: &Options,
    done: &Done,
    before: u64,
    seconds: f64,
) -> Result<()> {
    let [changed, same] = counts(options);
    let rate = ((done.lines - before) as f64 / seconds.max(0.001)) as u64;
    let value = json!({
        "lines": done.lines, changed: done.changed, same: done.same, "errors": done.errors,
        "resumed_behind_line": before, "seconds": (seconds * 1000.0).round() / 1000.0,
        "lines_per_s": rate,
    });
    context.out.either(&value, || {
        format!(
            "{} lines: {} {changed}, {} {same}; {:.1} s, {}/s",
            count(done.lines),
            count(done.changed),
            count(done.same),
            seconds,
            count(rate)
        )
    })?;
    match done.errors {
        0 => Ok(()),
        errors => Err(Failure::Partly(format!("{} lines were refused", count(errors)))),
    }
}

enum Input {
    File(File),
    /// It can't be read again, so there is no state.
    Stdin,
}

/// What the editors of some systems put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// So much of the input tells its form.
const START_BYTES_MAX: usize = 1 << 12;

impl Input {
    fn length(&self) -> Option<u64> {
        match self {
            Self::File(file) => file.metadata().ok().map(|metadata| metadata.len()),
            Self::Stdin => None,
        }
    }

    /// Its beginning, up to where there is some text.
    fn start(&mut self) -> io::Result<Vec<u8>> {
        let mut start = vec![0; START_BYTES_MAX];
        let mut length = 0;
        while text(&start[..length]).is_none() && length < START_BYTES_MAX {
            let read = match self {
                Self::File(file) => file.read(&mut start[length..]),
                Self::Stdin => io::stdin().read(&mut start[length..]),
            };
            match read {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        start.truncate(length);
        Ok(start)
    }

    /// The blocks from where the import goes on.
    fn blocks(
        self,
        options: &Options,
        start: &[u8],
        done: &Done,
    ) -> Result<Blocks<Box<dyn Read + Send>>> {
        let unread = |error| Failure::Io("can't read the input".to_owned(), error);
        // At the beginning the mark of bytes is all that is to be passed over.
        let marked = if start.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let offset = if done.mark.is_empty() { marked as u64 } else { done.offset };
        let (mark, rest): (_, Box<dyn Read + Send>) = match self {
            Self::File(mut file) => {
                file.rewind().map_err(unread)?;
                let mark = Mark::of_next(&file, offset).map_err(unread)?;
                let is_same = |mark: &Mark| done.mark.is_empty() || mark.text() == done.mark;
                let mark = mark.filter(is_same).ok_or_else(|| other_input(options))?;
                (mark, Box::new(file))
            }
            Self::Stdin => {
                let mut mark = Mark::new();
                mark.add(&start[..marked]);
                let start = io::Cursor::new(start[marked..].to_vec());
                (mark, Box::new(start.chain(io::stdin())))
            }
        };
        Ok(Blocks::new(rest, offset, mark, done.lines))
    }
}

fn other_input(options: &Options) -> Failure {
    is_of_another(&state_path(options).unwrap_or_default(), "input")
}

/// What comes behind a byte order mark and blanks, if anything.
fn text(start: &[u8]) -> Option<&[u8]> {
    let text = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start).trim_ascii_start();
    (!text.is_empty() && !BYTE_ORDER_MARK.starts_with(text)).then_some(text)
}

fn open(options: &Options) -> Result<Input> {
    if options.file == Path::new("-") {
        return match options.state {
            None => Ok(Input::Stdin),
            Some(_) => Err(Failure::Usage(
                "stdin can't be read again, so there is no state: import a file".to_owned(),
            )),
        };
    }
    let name = options.file.display();
    let cannot = || Failure::io(format!("can't read {name}"));
    let file = File::open(&options.file).map_err(cannot())?;
    if file.metadata().map_err(cannot())?.is_file() {
        Ok(Input::File(file))
    } else {
        Err(Failure::Usage(format!(
            "{name} is no file that can be read again, so there is no state: `halley import -` \
             reads stdin"
        )))
    }
}

/// The state's file; stdin has none.
fn state_path(options: &Options) -> Option<PathBuf> {
    let beside = || with_suffix(&options.file, ".halley-import");
    (options.file != Path::new("-")).then(|| options.state.clone().unwrap_or_else(beside))
}

/// The lines' `Content-Type`.
fn form(options: &Options, start: &[u8]) -> &'static str {
    let is_ndjson = match options.format.as_deref() {
        Some(format) => format == "ndjson",
        None => text(start).is_some_and(|text| text.starts_with(b"{")),
    };
    if is_ndjson { "application/x-ndjson" } else { "text/plain" }
}

/// Sends all blocks; `done` has what is done without a hole, also where it fails.
fn send_all(
    blocks: Blocks<Box<dyn Read + Send>>,
    sender: &Sender<'_>,
    options: &Options,
    done: &mut Done,
    mut keep: impl FnMut(&Done) -> Result<()>,
) -> Result<()> {
    let in_flight = usize::from(options.in_flight);
    let (to_send, waiting) = sync_channel(in_flight);
    let (to_count, sent) = sync_channel(in_flight);
    let waiting = Mutex::new(waiting);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(blocks, to_send, sender));
        for _ in 0..in_flight {
            let to_count = to_count.clone();
            scope.spawn(|| send_blocks(&waiting, to_count, sender));
        }
        drop(to_count);
        let counted = count_all(&sent, done, &mut keep);
        // Whoever waits to hand something over goes on, and ends.
        sender.stop.store(true, Ordering::Relaxed);
        drop(sent);
        let read = reader.join();
        counted.and(read.unwrap_or_else(|_| {
            Err(Failure::Io("the input's reader".into(), std::io::ErrorKind::Other.into()))
        }))
    })?;
    keep(done)
}

fn read_all(
    mut blocks: Blocks<Box<dyn Read + Send>>,
    to_send: SyncSender<Block>,
    sender: &Sender<'_>,
) -> Result<()> {
    while let Some(block) = blocks.next()? {
        if sender.stop.load(Ordering::Relaxed) || to_send.send(block).is_err() {
            break;
        }
    }
    Ok(())
}

/// Sends what waits, until nothing comes any more. After a stop it still takes what was read, so
/// that the reader isn't left waiting.
fn send_blocks(waiting: &Mutex<Receiver<Block>>, to_count: SyncSender<Sent>, sender: &Sender<'_>) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(block) = next else { return };
        if sender.stop.load(Ordering::Relaxed) {
            continue;
        }
        let answer = patiently(sender.patience, || {
            let body = Some((sender.media_type, block.bytes.as_slice()));
            let answer = sender.client.send(sender.method.clone(), "/v1/follows", body)?;
            answer.ok()?.object_with(sender.counts)
        });
        if answer.is_err() {
            sender.stop.store(true, Ordering::Relaxed);
        }
        // Nobody counts any more after the first failure.
        let _ = to_count.send(Sent { place: block.place, answer });
    }
}

/// Counts answers in the order of the lines; gives the failure of the first that has none.
fn count_all(
    sent: &Receiver<Sent>,
    done: &mut Done,
    keep: &mut impl FnMut(&Done) -> Result<()>,
) -> Result<()> {
    let mut early = BTreeMap::new();
    let mut failure: Option<(u64, Failure)> = None;
    let mut kept = Instant::now();
    for Sent { place, answer } in sent {
        let first_line = place.first_line;
        match answer {
            Ok(answer) => {
                early.insert(first_line, (place, answer));
            }
            Err(error) if failure.as_ref().is_none_or(|(line, _)| first_line < *line) => {
                failure = Some((first_line, error));
            }
            Err(_) => {}
        }
        while let Some((place, answer)) = early.remove(&(done.lines + 1)) {
            add(done, place, &answer);
        }
        if kept.elapsed() >= SAVE_EVERY {
            keep(done)?;
            kept = Instant::now();
        }
    }
    failure.map_or(Ok(()), |(_, failure)| Err(failure))
}

fn add(done: &mut Done, place: Place, answer: &Value) {
    let of = |names: [&str; 2]| names.iter().filter_map(|name| answer[*name].as_u64()).sum::<u64>();
    let listed = answer["errors"].as_array().map_or(&[][..], Vec::as_slice);
    for error in listed {
        if done.errors < ERRORS_SHOWN_MAX {
            let line = done.lines.saturating_add(error["line"].as_u64().unwrap_or(0));
            let (code, message) = (&error["error"]["code"], &error["error"]["message"]);
            let (code, message) = (shown(&cell(code)), shown(&cell(message)));
            note(&format!("halley: line {line}: {message} ({code})"));
        }
        done.errors += 1;
    }
    let unlisted = answer["errors_total"].as_u64().unwrap_or(0).saturating_sub(listed.len() as u64);
    done.errors += unlisted;
    done.changed += of(["added", "removed"]);
    done.same += of(["already", "absent"]);
    done.lines += place.lines;
    (done.offset, done.mark) = (place.end, place.mark);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn sent(first_line: u64, answer: Result<Value>) -> Sent {
        let (end, mark) = (first_line * 10, first_line.to_string());
        Sent { place: Place { end, mark, first_line, lines: 1 }, answer }
    }

    fn count_of(all: Vec<Sent>) -> (Done, Result<()>) {
        let (sender, receiver) = sync_channel(all.len());
        all.into_iter().for_each(|each| sender.send(each).unwrap());
        drop(sender);
        let mut done = Done::default();
        let result = count_all(&receiver, &mut done, &mut |_| Ok(()));
        (done, result)
    }

    #[test]
    fn answers_count_in_the_order_of_the_lines() {
        let answer = || Ok(json!({"added": 1, "already": 0, "errors": []}));
        let (done, result) =
            count_of(vec![sent(2, answer()), sent(3, answer()), sent(1, answer())]);
        result.unwrap();
        assert_eq!((done.lines, done.changed, done.offset, done.mark), (3, 3, 30, "3".into()));
    }

    #[test]
    fn nothing_behind_a_failure_counts() {
        let answer = || Ok(json!({"added": 1, "already": 0, "errors": []}));
        let away = |why: &str| Err(Failure::Unreachable(why.to_owned()));
        let all = vec![
            sent(4, away("late")),
            sent(3, answer()),
            sent(1, answer()),
            sent(2, away("early")),
        ];
        let (done, result) = count_of(all);
        assert_eq!(done.lines, 1);
        assert_eq!(result.unwrap_err().to_string(), "early");
    }

    fn options_of(file: &Path) -> Options {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        <Line as clap::Parser>::try_parse_from([Path::new("import"), file]).unwrap().options
    }

    /// Form and first block of a file with these bytes.
    fn begun(name: &str, bytes: &[u8], done: &Done) -> (&'static str, Result<Option<Block>>) {
        let path = std::env::temp_dir().join(format!("halley-cli-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let options = options_of(&path);
        let mut input = open(&options).unwrap();
        let start = input.start().unwrap();
        let blocks = input.blocks(&options, &start, done);
        std::fs::remove_file(&path).unwrap();
        (form(&options, &start), blocks.and_then(|mut blocks| blocks.next()))
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_user() {
        let (form, block) = begun("bom", b"\xef\xbb\xbf {\"user\":1}\n", &Done::default());
        assert_eq!(form, "application/x-ndjson");
        let block = block.unwrap().unwrap();
        assert_eq!((block.bytes.as_slice(), block.place.end), (&b" {\"user\":1}\n"[..], 15));
    }

    #[test]
    fn an_input_that_begins_otherwise_isnt_gone_on_with() {
        let mut mark = Mark::new();
        mark.add(b"a b\n");
        let done = Done { offset: 4, mark: mark.text(), lines: 1, ..Done::default() };
        let block = begun("grown", b"a b\nc d\n", &done).1.unwrap().unwrap();
        assert_eq!((block.bytes.as_slice(), block.place.first_line), (&b"c d\n"[..], 2));
        for (name, other) in [("other", &b"a x\nc d\n"[..]), ("cut", &b"a b"[..])] {
            assert!(matches!(begun(name, other, &done).1, Err(Failure::Usage(_))), "{name}");
        }
    }

    #[test]
    fn refused_lines_are_counted_beyond_those_that_are_listed() {
        let error = json!({"line": 1, "error": {"code": "bad_line", "message": "no"}});
        let answer = json!({"added": 0, "already": 0, "errors": [error], "errors_total": 7});
        let (done, _) = count_of(vec![sent(1, Ok(answer))]);
        assert_eq!(done.errors, 7);
    }
}
