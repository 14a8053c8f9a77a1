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
use crate::out::{count, shown};
use crate::random::random_id;

/// Lines of one request; the server takes 100,000.
const LINES_MAX: usize = 10_000;
/// Bytes of one request, but for its last line.
const BYTES_MAX: usize = 4 << 20;
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
        let result = send(context, &client, patience, batch, &mut counts);
        context.out.flush()?;
        result?;
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

/// Reads stdin in a thread of its own, which ends with it.
fn read_ahead() -> Receiver<Result<Line>> {
    let (sender, receiver) = sync_channel(AHEAD_MAX);
    std::thread::spawn(move || {
        let run = random_id();
        let mut stdin = std::io::stdin().lock();
        for number in 1.. {
            let line = match read_line(&mut stdin) {
                Ok(None) => return,
                Ok(Some(text)) if text.trim().is_empty() => continue,
                Ok(Some(text)) => Ok((number, with_id(text.trim(), &format!("{run}-{number}")))),
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

fn read_line(stdin: &mut impl BufRead) -> Result<Option<String>> {
    let mut line = Vec::new();
    let mut part = std::io::Read::take(&mut *stdin, LINE_BYTES_MAX as u64 + 1);
    part.read_until(b'\n', &mut line).map_err(Failure::io("can't read stdin"))?;
    if line.len() > LINE_BYTES_MAX {
        return Err(Failure::Usage("a line of stdin is longer than 16 MiB".to_owned()));
    }
    // The server says what is wrong with a line that isn't UTF-8, in its place.
    Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// The event's text with this id, unless it has one. The rest stays as it was written.
fn with_id(text: &str, id: &str) -> std::result::Result<String, String> {
    let event: Event<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
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
            Err(why) => {
                report(context, number, &refused(&format!("it isn't JSON: {why}")), counts)?
            }
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
    lines.map(serde_json::from_slice).collect::<std::result::Result<_, _>>().map_err(|_| {
        Failure::Unreachable("the answer isn't JSON: is this the address of a Halley?".into())
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
        eprintln!("halley: line {number}: {}", shown(message));
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
