//! Events from a pipe: one JSON object per line, each with one result.
//!
//! One request is on its way at a time, with all lines that have come meanwhile, so events stay in
//! their order and a slow writer's event leaves at once. A line without an `id` gets one, so a
//! request whose answer was lost is repeated and publishes nothing twice, within the retention.
//! When the patience is over, the lines without an answer are named and nothing more is read.

use std::io::BufRead;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use ureq::http::Method;

use crate::client::{Client, patiently};
use crate::commands::Context;
use crate::failure::{Failure, Refusal, Result};
use crate::out::{count, note, shown};
use crate::random::random_id;

/// Lines of one request; the server takes 100,000.
const LINES_MAX: usize = 10_000;
/// Bytes of one request, but for its last line: with that it is below 1 MiB, the longest body that
/// nginx passes on by default.
const BYTES_MAX: usize = 1 << 19;
/// A line that is longer is refused here: the server's bound for an event's data is far below.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Lines that are read ahead of the request.
const AHEAD_MAX: usize = 1_024;

/// A line of stdin by its number, from 1 on, with what is to be sent or why not.
type Line = (u64, std::result::Result<String, String>);

#[derive(Default)]
struct Counts {
    published: u64,
    refused: u64,
}

/// Publishes each line of stdin.
///
/// # Errors
/// If a line was refused, or has no answer when the patience is over.
pub fn run(context: &mut Context, patience: Duration) -> Result<()> {
    let client = context.api()?;
    let lines = read_ahead();
    let mut counts = Counts::default();
    while let Some((batch, failure)) = next_batch(&lines) {
        let last = batch.last().map_or(0, |line| line.0);
        let sent = send(context, &client, patience, batch, &mut counts);
        let printed = context.out.flush();
        sent.and(printed).map_err(|failure| without_reader(failure, last))?;
        if let Some(failure) = failure {
            return Err(failure);
        }
    }
    if !context.settings.json {
        context.out.line(&format!("{} events published", count(counts.published)))?;
    }
    match counts.refused {
        0 => Ok(()),
        refused => Err(Failure::Partly(format!("{} events were refused", count(refused)))),
    }
}

/// A reader of the results that has gone doesn't want the events unpublished.
fn without_reader(failure: Failure, last: u64) -> Failure {
    match failure {
        Failure::NoReader => Failure::Io(
            format!(
                "stdout takes no results; whether lines up to {last} were published isn't known, \
                 later ones were not"
            ),
            std::io::ErrorKind::BrokenPipe.into(),
        ),
        other => other,
    }
}

/// Reads stdin in a thread of its own, which ends with it.
fn read_ahead() -> Receiver<Result<Line>> {
    let (sender, receiver) = sync_channel(AHEAD_MAX);
    std::thread::spawn(move || {
        let run = random_id();
        let mut stdin = std::io::stdin().lock();
        for number in 1.. {
            let line = match read_line(&mut stdin) {
                Ok(None) => return,
                Ok(Some(line)) if line.trim_ascii().is_empty() => continue,
                Ok(Some(line)) => Ok((number, event_of(&line, &format!("{run}-{number}")))),
                Err(failure) => Err(failure),
            };
            let is_last = line.is_err();
            if sender.send(line).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

fn read_line(stdin: &mut impl BufRead) -> Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut part = std::io::Read::take(&mut *stdin, LINE_BYTES_MAX as u64 + 1);
    part.read_until(b'\n', &mut line).map_err(Failure::io("can't read stdin"))?;
    if line.len() > LINE_BYTES_MAX {
        return Err(Failure::Usage("a line of stdin is longer than 16 MiB".to_owned()));
    }
    Ok((!line.is_empty()).then_some(line))
}

/// What is to be sent of a line, or why it can't be.
fn event_of(line: &[u8], id: &str) -> std::result::Result<String, String> {
    let text = std::str::from_utf8(line).map_err(|_| "it isn't UTF-8".to_owned())?;
    with_id(text.trim(), id)
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// The event's text with this id, unless it has one. The rest stays as it was written.
fn with_id(text: &str, id: &str) -> std::result::Result<String, String> {
    let event: Event<'_> =
        serde_json::from_str(text).map_err(|error| format!("it isn't JSON: {error}"))?;
    let Some(members) = text.strip_prefix('{').filter(|_| event.id.is_none()) else {
        return Ok(text.to_owned());
    };
    let comma = if members.trim_start().starts_with('}') { "" } else { "," };
    Ok(format!("{{\"id\":\"{id}\"{comma}{members}"))
}

/// The lines that are there, one at least; `None` at the end of stdin.
fn next_batch(lines: &Receiver<Result<Line>>) -> Option<(Vec<Line>, Option<Failure>)> {
    let mut next = lines.recv().ok()?;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    loop {
        match next {
            Ok(line) => {
                bytes += line.1.as_ref().map_or(0, String::len);
                batch.push(line);
            }
            Err(failure) => return Some((batch, Some(failure))),
        }
        if batch.len() == LINES_MAX || bytes >= BYTES_MAX {
            return Some((batch, None));
        }
        match lines.try_recv() {
            Ok(line) => next = line,
            Err(_) => return Some((batch, None)),
        }
    }
}

fn send(
    context: &mut Context,
    client: &Client,
    patience: Duration,
    batch: Vec<Line>,
    counts: &mut Counts,
) -> Result<()> {
    let mut waiting = Vec::with_capacity(batch.len());
    for (number, text) in batch {
        match text {
            Ok(text) => waiting.push((number, text)),
            Err(why) => report(context, number, &refused(&why), counts)?,
        }
    }
    while !waiting.is_empty() {
        let outcome = patiently(patience, || {
            let body: Vec<u8> =
                waiting.iter().flat_map(|(_, text)| [text.as_bytes(), b"\n"].concat()).collect();
            let body = Some(("application/x-ndjson", body.as_slice()));
            let answer = client.send(Method::POST, "/v1/events", body)?.ok()?;
            let results = results(&answer.body)?;
            // What came before a failure that passes is done; the rest is sent again.
            let done = results.iter().take_while(|result| !is_passing(result)).count();
            if done == 0 { Err(passing(results.first())) } else { Ok((done, results)) }
        });
        let (done, results) = outcome.map_err(|failure| unanswered(failure, &waiting))?;
        if results.len() > waiting.len() {
            return Err(Failure::Unreachable("the answer has more results than events".to_owned()));
        }
        for ((number, _), result) in waiting.drain(..done).zip(&results) {
            report(context, number, result, counts)?;
        }
    }
    Ok(())
}

fn results(body: &[u8]) -> Result<Vec<Value>> {
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let results: Option<Vec<Value>> = lines.map(|line| serde_json::from_slice(line).ok()).collect();
    let is_result = |result: &Value| result["id"].is_string() || result["error"].is_object();
    results.filter(|results| results.iter().all(is_result)).ok_or_else(|| {
        let why = "the answer has no results of events: is this the address of a Halley?";
        Failure::Unreachable(why.to_owned())
    })
}

/// Whether a result says that its event may be published later.
fn is_passing(result: &Value) -> bool {
    const PASSING: [&str; 8] = [
        "overloaded",
        "unavailable",
        "disk_full",
        "history_failed",
        "data_dir_moved",
        "too_many_requests",
        "too_many_in_flight",
        "internal",
    ];
    result["error"]["code"].as_str().is_some_and(|code| PASSING.contains(&code))
}

fn passing(result: Option<&Value>) -> Failure {
    let error = result.map_or(&Value::Null, |result| &result["error"]);
    let text = |name: &str| error[name].as_str().unwrap_or("no result").to_owned();
    Failure::Refused(Refusal {
        status: 503,
        code: text("code"),
        message: text("message"),
        retry_after_s: None,
    })
}

fn refused(message: &str) -> Value {
    json!({ "error": { "code": "bad_json", "message": message } })
}

fn report(context: &mut Context, number: u64, result: &Value, counts: &mut Counts) -> Result<()> {
    let error = &result["error"];
    if error.is_null() {
        counts.published += 1;
    } else {
        counts.refused += 1;
        let message = error["message"].as_str().unwrap_or_default();
        note(&format!("halley: line {number}: {}", shown(message)));
    }
    if context.settings.json {
        let mut value = json!({ "line": number });
        for (name, member) in result.as_object().into_iter().flatten() {
            value[name] = member.clone();
        }
        context.out.value(&value)?;
    }
    Ok(())
}

fn unanswered(failure: Failure, waiting: &[(u64, String)]) -> Failure {
    let (first, last) =
        (waiting.first().map_or(0, |line| line.0), waiting.last().map_or(0, |l| l.0));
    let which = format!(
        "; whether lines {first} to {last} were published isn't known, later ones \
                         were not"
    );
    match failure {
        Failure::Unreachable(message) => Failure::Unreachable(message + &which),
        Failure::Refused(mut refusal) => {
            refusal.message += &which;
            Failure::Refused(refusal)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_line_without_an_id_gets_one_and_stays_as_it_was() {
        let given = r#"{"subject":"a","data":{"n":1.50}}"#;
        assert_eq!(with_id(given, "i").unwrap(), r#"{"id":"i","subject":"a","data":{"n":1.50}}"#);
        assert_eq!(with_id("{ }", "i").unwrap(), r#"{"id":"i" }"#);
        let own = r#"{"subject":"a","data":1,"id":"x"}"#;
        assert_eq!(with_id(own, "i").unwrap(), own);
        assert!(with_id("{", "i").is_err());
    }

    #[test]
    fn a_line_of_other_bytes_is_refused_and_not_changed() {
        let line = b"{\"subject\":\"a\",\"data\":\"caf\xe9\"}\n";
        assert_eq!(event_of(line, "i").unwrap_err(), "it isn't UTF-8");
        let line = "{\"id\":\"x\",\"data\":\"café\"}\r\n";
        assert_eq!(event_of(line.as_bytes(), "i").unwrap(), line.trim());
    }

    #[test]
    fn a_reader_that_has_gone_is_a_failure_here() {
        let failure = without_reader(Failure::NoReader, 7);
        assert_eq!(failure.status(), 7);
        assert!(failure.to_string().contains("up to 7"), "{failure}");
    }

    #[test]
    fn only_results_of_events_are_answers() {
        let good = br#"{"id":"i","sessions":1}
{"error":{"code":"bad_event","message":"no"}}
"#;
        assert_eq!(results(good).unwrap().len(), 2);
        for other in [&b"{}\n"[..], b"[]", b"<html>", b"{\"id\":\"i\"}\n{\"status\":\"ok\"}\n"] {
            assert!(matches!(results(other), Err(Failure::Unreachable(_))), "{other:?}");
        }
    }

    #[test]
    fn a_batch_is_what_is_there() {
        let (sender, receiver) = sync_channel(10);
        for number in 1..=3 {
            sender.send(Ok((number, Ok(String::new())))).unwrap();
        }
        drop(sender);
        let (batch, failure) = next_batch(&receiver).unwrap();
        assert_eq!(batch.len(), 3);
        assert!(failure.is_none());
        assert!(next_batch(&receiver).is_none());
    }
}
