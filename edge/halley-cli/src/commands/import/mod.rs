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
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use serde_json::{Value, json};
use ureq::http::Method;

use self::blocks::{Block, Blocks};
use self::state::{Done, Job};
use super::Context;
use crate::client::{Client, Door, patiently};
use crate::failure::{Failure, Result};
use crate::out::{cell, count, shown};
use crate::progress::Progress;

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
    end: u64,
    first_line: u64,
    lines: u64,
    answer: Result<Value>,
}

/// How the blocks are sent.
struct Sender<'a> {
    client: Client,
    method: Method,
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
    let (mut input, path) = open(options)?;
    let (job, mut done) = match (&path, &mut input) {
        (Some(path), Input::File(file)) => begin(&context.settings.url, options, path, file)?,
        _ => (None, Done::default()),
    };
    // A wrong address is noticed now, and not when the patience is over.
    client.get("/healthz")?;
    let before = done.lines;
    if before > 0 {
        eprintln!("going on behind line {}, where the run before ended", count(before));
    }
    let total = input.length();
    let (media_type, blocks) = lines(input, options, &done)?;
    let sender = Sender {
        client,
        method: if options.unfollow { Method::DELETE } else { Method::POST },
        media_type,
        patience: Duration::from_secs(options.patience),
        stop: AtomicBool::new(false),
    };
    let mut progress = Progress::new("lines", total);
    let keep = |done: &Done| match (&path, &job) {
        (Some(path), Some(job)) => state::write(path, job, done),
        _ => Ok(()),
    };
    let result = send_all(blocks, &sender, options, &mut done, |done| {
        progress.set(done.offset, done.lines, done.lines - before);
        keep(done)
    });
    let seconds = progress.finish();
    if let Err(failure) = result {
        keep(&done)?;
        return Err(failure);
    }
    if let Some(path) = path.filter(|path| path.exists()) {
        let name = path.display().to_string();
        std::fs::remove_file(path).map_err(Failure::io(format!("can't remove {name}")))?;
    }
    report(context, options, &done, before, seconds)
}

fn report(
    context: &mut Context,
    options: &Options,
    done: &Done,
    before: u64,
    seconds: f64,
) -> Result<()> {
    let [changed, same] =
        if options.unfollow { ["removed", "absent"] } else { ["added", "already"] };
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
    Stdin,
}

impl Input {
    fn length(&self) -> Option<u64> {
        match self {
            Self::File(file) => file.metadata().ok().map(|metadata| metadata.len()),
            Self::Stdin => None,
        }
    }
}

/// The input, and the state's file, which stdin has none of: it can't be read again.
fn open(options: &Options) -> Result<(Input, Option<PathBuf>)> {
    if options.file == Path::new("-") {
        return match options.state {
            None => Ok((Input::Stdin, None)),
            Some(_) => Err(Failure::Usage(
                "stdin can't be read again, so there is no state: import a file".to_owned(),
            )),
        };
    }
    let name = options.file.display();
    let file = File::open(&options.file).map_err(Failure::io(format!("can't read {name}")))?;
    let state = options.state.clone().unwrap_or_else(|| {
        let mut path = options.file.as_os_str().to_owned();
        path.push(".halley-import");
        path.into()
    });
    Ok((Input::File(file), Some(state)))
}

fn begin(
    url: &str,
    options: &Options,
    path: &Path,
    file: &mut File,
) -> Result<(Option<Job>, Done)> {
    let reread = |error| Failure::Io("can't read the input from its beginning".to_owned(), error);
    let job = |bytes| {
        let mut file = file.try_clone().map_err(reread)?;
        file.rewind().map_err(reread)?;
        Job::of(url, options.unfollow, &file, bytes)
    };
    if options.restart {
        return Ok((Some(job(None)?), Done::default()));
    }
    let (before, done) = state::read(path, job)?;
    let length = file.metadata().map_err(reread)?.len();
    if done.offset > length {
        return Err(Failure::Usage(format!(
            "the input is shorter than the {} bytes that were imported; --restart begins anew",
            count(done.offset)
        )));
    }
    // Its mark grows with an input that was shorter than a mark.
    let job = if done.offset == 0 { job(None)? } else { before };
    Ok((Some(job), done))
}

/// The blocks from where the import goes on, and the `Content-Type` of the lines.
fn lines(
    input: Input,
    options: &Options,
    done: &Done,
) -> Result<(&'static str, Blocks<Box<dyn Read + Send>>)> {
    let unread = |error| Failure::Io("can't read the input".to_owned(), error);
    let mut start = [0; 1 << 12];
    let (start, rest): (Vec<u8>, Box<dyn Read + Send>) = match input {
        Input::File(mut file) => {
            file.rewind().map_err(unread)?;
            let length = file.read(&mut start).map_err(unread)?;
            file.seek(SeekFrom::Start(done.offset)).map_err(unread)?;
            (start[..length].to_vec(), Box::new(file))
        }
        Input::Stdin => {
            let length = std::io::stdin().read(&mut start).map_err(unread)?;
            let start = start[..length].to_vec();
            let rest = std::io::Cursor::new(start.clone()).chain(std::io::stdin());
            (start, Box::new(rest))
        }
    };
    let is_ndjson = match options.format.as_deref() {
        Some(format) => format == "ndjson",
        None => start.trim_ascii_start().first() == Some(&b'{'),
    };
    let media_type = if is_ndjson { "application/x-ndjson" } else { "text/plain" };
    Ok((media_type, Blocks::new(rest, done.offset, done.lines)))
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
            sender.client.send(sender.method.clone(), "/v1/follows", body)?.ok()?.json()
        });
        let Block { end, first_line, lines, .. } = block;
        if answer.is_err() {
            sender.stop.store(true, Ordering::Relaxed);
        }
        // Nobody counts any more after the first failure.
        let _ = to_count.send(Sent { end, first_line, lines, answer });
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
    for Sent { end, first_line, lines, answer } in sent {
        match answer {
            Ok(answer) => {
                early.insert(first_line, (end, lines, answer));
            }
            Err(error) if failure.as_ref().is_none_or(|(line, _)| first_line < *line) => {
                failure = Some((first_line, error));
            }
            Err(_) => {}
        }
        while let Some((end, lines, answer)) = early.remove(&(done.lines + 1)) {
            add(done, end, lines, &answer);
        }
        if kept.elapsed() >= SAVE_EVERY {
            keep(done)?;
            kept = Instant::now();
        }
    }
    failure.map_or(Ok(()), |(_, failure)| Err(failure))
}

fn add(done: &mut Done, end: u64, lines: u64, answer: &Value) {
    let of = |names: [&str; 2]| names.iter().filter_map(|name| answer[*name].as_u64()).sum::<u64>();
    let listed = answer["errors"].as_array().map_or(&[][..], Vec::as_slice);
    for error in listed {
        if done.errors < ERRORS_SHOWN_MAX {
            let line = done.lines + error["line"].as_u64().unwrap_or(0);
            let (code, message) = (&error["error"]["code"], &error["error"]["message"]);
            eprintln!("halley: line {line}: {} ({})", shown(&cell(message)), shown(&cell(code)));
        }
        done.errors += 1;
    }
    let unlisted = answer["errors_total"].as_u64().unwrap_or(0).saturating_sub(listed.len() as u64);
    done.errors += unlisted;
    done.changed += of(["added", "removed"]);
    done.same += of(["already", "absent"]);
    done.lines += lines;
    done.offset = end;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn sent(first_line: u64, answer: Result<Value>) -> Sent {
        Sent { end: first_line * 10, first_line, lines: 1, answer }
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
        assert_eq!((done.lines, done.changed, done.offset), (3, 3, 30));
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

    #[test]
    fn refused_lines_are_counted_beyond_those_that_are_listed() {
        let error = json!({"line": 1, "error": {"code": "bad_line", "message": "no"}});
        let answer = json!({"added": 0, "already": 0, "errors": [error], "errors_total": 7});
        let (done, _) = count_of(vec![sent(1, Ok(answer))]);
        assert_eq!(done.errors, 7);
    }
}
