//! `export`: all follows as lines for `import`, by `GET /v1/users` and each user's following.
//!
//! Users are read page by page, and the users of a page several at a time; their lines are written
//! in the order of the users. After each page the file is synced and the state says how far it is,
//! so the run after a kill cuts the file there and goes on.
//!
//! It is no snapshot: it has each follow that stood from its beginning to its end, and some of
//! those that come or go meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Args, value_parser};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Context;
use super::lists::page;
use crate::client::{Client, patiently, segment};
use crate::failure::{Failure, Result};
use crate::out::{Out, count, note};
use crate::progress::Progress;
use crate::whole_file::{Held, with_suffix};

/// Users, or subjects, of one page.
const PAGE: u64 = 1_000;
const STATE_BYTES_MAX: u64 = 1 << 16;

/// Where to, and how.
#[derive(Debug, Args)]
pub struct Options {
    /// The file; `-` is stdout
    file: PathBuf,
    /// The lines' form
    #[arg(long, value_parser = ["edges", "ndjson"], default_value = "ndjson")]
    format: String,
    /// Where it is kept how far the export is [default: FILE.halley-export]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Begin anew, whatever the state says
    #[arg(long)]
    restart: bool,
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u8).range(1..))]
    in_flight: u8,
    /// Seconds for which a request is repeated while the server is away or overloaded
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
}

/// How far the export is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    /// The server.
    url: String,
    /// The lines' form.
    format: String,
    /// Users up to this one are in the file; empty at the beginning.
    after: String,
    /// Bytes of the file that are theirs.
    bytes: u64,
    /// Users that follow anything.
    users: u64,
    /// Lines of the file.
    follows: u64,
}

/// Where lines go.
enum Sink<'a> {
    File { file: File, state: Held },
    Stdout(&'a mut Out),
}

/// Exports.
///
/// # Errors
/// If the server refuses or stays away, an id doesn't fit the form, or the file takes no more.
pub fn run(context: &mut Context, options: &Options) -> Result<()> {
    let client = context.api()?;
    // A wrong address is noticed before a file is there.
    client.knock()?;
    let is_json = context.out.is_json();
    let (mut sink, mut done) = open(context, options)?;
    if done.users > 0 {
        note(&format!("going on behind {} users, where the run before ended", count(done.users)));
    }
    let before = done.follows;
    let patience = Duration::from_secs(options.patience);
    let mut progress = Progress::new("follows", None);
    loop {
        let after = Some(done.after.as_str()).filter(|after| !after.is_empty());
        let found = patiently(patience, || page(&client, "/v1/users", after, PAGE))?;
        let users: Vec<&str> =
            found["users"].as_array().into_iter().flatten().filter_map(|id| id.as_str()).collect();
        for lines in read_all(&client, &users, options, patience) {
            let (text, follows) = lines?;
            sink.put(text.as_bytes())?;
            done.bytes += text.len() as u64;
            done.follows += follows;
            done.users += 1;
        }
        progress.set(done.bytes, done.follows, done.follows - before);
        let Some(next) = found["next"].as_str() else { break };
        done.after = next.to_owned();
        sink.keep(&done)?;
    }
    let seconds = progress.finish();
    let to_file = sink.finish()?;
    let value = json!({ "users": done.users, "follows": done.follows, "bytes": done.bytes,
        "seconds": (seconds * 1000.0).round() / 1000.0 });
    let words = || format!("{} follows of {} users", count(done.follows), count(done.users));
    // On stdout are the lines.
    match (to_file, is_json) {
        (true, _) => context.out.either(&value, words),
        (false, true) => {
            note(&value.to_string());
            Ok(())
        }
        (false, false) => {
            note(&words());
            Ok(())
        }
    }
}

fn open<'a>(context: &'a mut Context, options: &Options) -> Result<(Sink<'a>, Done)> {
    let fresh = Done {
        url: context.settings.url.clone(),
        format: options.format.clone(),
        ..Done::default()
    };
    if options.file == Path::new("-") {
        if options.state.is_some() {
            let why = "what went to stdout can't be gone on with, so there is no state";
            return Err(Failure::Usage(why.to_owned()));
        }
        return Ok((Sink::Stdout(&mut context.out), fresh));
    }
    let beside = || with_suffix(&options.file, ".halley-export");
    let path = options.state.clone().unwrap_or_else(beside);
    let name = options.file.display().to_string();
    let cannot = || Failure::io(format!("can't write {name}"));
    let is_there = !options.restart && options.file.exists();
    let there = || Err(Failure::Usage(format!("{name} is there already; --restart replaces it")));
    // Before a state is there, which would make it a file that was begun.
    if is_there && !path.exists() {
        return there();
    }
    let (mut state, text) = Held::take(&path, STATE_BYTES_MAX, &state_text(&fresh)?)?;
    let done = if options.restart { None } else { done_of(&path, &text, &fresh)? };
    if is_there && done.is_none() {
        return there();
    }
    let is_new = done.is_none();
    let done = done.unwrap_or(fresh);
    if is_new {
        // Before there is a file: a run that was killed in between knows it.
        state.write(state_text(&done)?.as_bytes())?;
    }
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(is_new)
        .open(&options.file)
        .map_err(cannot())?;
    if file.metadata().map_err(cannot())?.len() < done.bytes {
        return Err(Failure::Usage(format!("{name} was cut; --restart begins anew")));
    }
    file.set_len(done.bytes).map_err(cannot())?;
    file.seek(SeekFrom::End(0)).map_err(cannot())?;
    Ok((Sink::File { file, state }, done))
}

/// What a state's text says; nothing is done where there is none.
fn done_of(path: &Path, text: &str, fresh: &Done) -> Result<Option<Done>> {
    if text.is_empty() {
        return Ok(None);
    }
    let name = path.display();
    match serde_json::from_str::<Done>(text) {
        Ok(done) if done.url == fresh.url && done.format == fresh.format => Ok(Some(done)),
        Ok(done) => Err(Failure::Usage(format!(
            "{name} is of another export, of {} as {}; --restart begins anew",
            done.url, done.format
        ))),
        Err(_) => {
            Err(Failure::Usage(format!("{name} is no state of an export; --restart begins anew")))
        }
    }
}

fn state_text(done: &Done) -> Result<String> {
    let text = serde_json::to_string(done)
        .map_err(|error| Failure::Io("can't write the state".into(), error.into()))?;
    Ok(format!("{text}\n"))
}

impl Sink<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::File { file, .. } => {
                file.write_all(bytes).map_err(Failure::io("can't write the file"))
            }
            Self::Stdout(out) => out.raw(&String::from_utf8_lossy(bytes)),
        }
    }

    /// What was put so far is on disk, and the state says so.
    fn keep(&mut self, done: &Done) -> Result<()> {
        match self {
            Self::File { file, state } => {
                file.sync_data().map_err(Failure::io("can't write the file"))?;
                state.write(state_text(done)?.as_bytes())
            }
            Self::Stdout(out) => out.flush(),
        }
    }

    /// All is there. Gives whether it is a file.
    fn finish(self) -> Result<bool> {
        match self {
            Self::File { file, state } => {
                file.sync_all().map_err(Failure::io("can't write the file"))?;
                state.remove().map(|()| true)
            }
            Self::Stdout(out) => out.flush().map(|()| false),
        }
    }
}

/// The lines of each of these users, and how many, in their order.
fn read_all(
    client: &Client,
    users: &[&str],
    options: &Options,
    patience: Duration,
) -> Vec<Result<(String, u64)>> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::with_capacity(users.len()));
    std::thread::scope(|scope| {
        for _ in 0..usize::from(options.in_flight).min(users.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(user) = users.get(place) else { return };
                    let lines = lines_of(client, user, &options.format, patience);
                    if lines.is_err() {
                        // No further user is begun.
                        next.store(users.len(), Ordering::Relaxed);
                    }
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((place, lines));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(place, _)| *place);
    // A user behind a failure may be missing: the failure comes first.
    found.sort_by_key(|(_, lines)| lines.is_ok());
    found.into_iter().map(|(_, lines)| lines).collect()
}

fn lines_of(
    client: &Client,
    user: &str,
    format: &str,
    patience: Duration,
) -> Result<(String, u64)> {
    let path = format!("/v1/users/{}/following", segment(user));
    let (mut text, mut follows) = (String::new(), 0);
    let mut after: Option<String> = None;
    loop {
        let found = patiently(patience, || page(client, &path, after.as_deref(), PAGE))?;
        for subject in found["following"].as_array().into_iter().flatten() {
            let subject = subject.as_str().unwrap_or_default();
            push_line(&mut text, user, subject, format)?;
            follows += 1;
        }
        match found["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => return Ok((text, follows)),
        }
    }
}

fn push_line(text: &mut String, user: &str, subject: &str, format: &str) -> Result<()> {
    if format == "ndjson" {
        text.push_str(&json!({ "user": user, "subject": subject }).to_string());
    } else {
        for id in [user, subject] {
            if id.contains(' ') || id.starts_with('{') {
                let what = json!(id);
                return Err(Failure::Usage(format!(
                    "{what} has a blank or begins with a brace, which `USER SUBJECT` can't have: \
                     use --format ndjson"
                )));
            }
        }
        text.push_str(user);
        text.push(' ');
        text.push_str(subject);
    }
    text.push('\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn lines_are_those_that_import_takes() {
        let line = |user: &str, subject: &str, format: &str| {
            let mut text = String::new();
            push_line(&mut text, user, subject, format).map(|()| text)
        };
        assert_eq!(
            line("bob", "a b", "ndjson").unwrap(),
            "{\"subject\":\"a b\",\"user\":\"bob\"}\n"
        );
        assert_eq!(line("bob", "ann", "edges").unwrap(), "bob ann\n");
        assert!(matches!(line("bob", "a b", "edges"), Err(Failure::Usage(_))));
        assert!(matches!(line("{bob", "ann", "edges"), Err(Failure::Usage(_))));
    }
}
