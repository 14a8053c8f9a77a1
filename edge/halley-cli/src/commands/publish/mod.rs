//! `publish`: one event from arguments, or one per line from stdin, each acknowledged.

mod pipe;

use std::io::Read;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use serde_json::value::RawValue;
use ureq::http::Method;

use super::Context;
use crate::client::patiently;
use crate::failure::{Failure, Result};
use crate::out::{cell, count};
use crate::random::random_id;

/// The most of stdin that is one event's data; the server's own bound is below it.
const DATA_BYTES_MAX: u64 = 16 << 20;

/// A person who waits wants to know soon; what writes into a pipe outlives a server's restart.
const PATIENCE: Duration = Duration::from_secs(5);
const PIPE_PATIENCE: Duration = Duration::from_secs(30);

/// What to publish.
#[derive(Debug, Args)]
pub struct Options {
    /// The subject. Without it, events come from stdin, one JSON object per line
    #[arg(requires = "data")]
    subject: Option<String>,
    /// The data, as JSON; `-` reads it from stdin
    data: Option<String>,
    /// The data is text, not JSON
    #[arg(long, requires = "subject")]
    text: bool,
    /// A further subject of the same event; may be there several times
    #[arg(long, value_name = "SUBJECT", requires = "data")]
    also: Vec<String>,
    /// For this user alone; may be there several times. DATA is then the only argument
    #[arg(long, value_name = "USER", conflicts_with_all = ["also", "data"], requires = "subject")]
    to: Vec<String>,
    /// The event's id; a repetition with the same id publishes nothing
    #[arg(long, requires = "subject")]
    id: Option<String>,
    /// Keep it as the subject's latest value
    #[arg(long, requires = "data")]
    keep: bool,
    /// When the server answers: when the event is on disk, or at once
    #[arg(long, value_parser = ["disk", "memory"], requires = "subject")]
    ack: Option<String>,
    /// Seconds for which an event without an answer is sent again, under the same id [default: 5;
    /// 30 for events from stdin]
    #[arg(long, value_name = "SECONDS")]
    patience: Option<u64>,
}

/// Publishes.
///
/// # Errors
/// If an event was refused, or has no answer when the patience is over.
pub fn run(context: &mut Context, options: &Options) -> Result<()> {
    if options.subject.is_none() && options.to.is_empty() {
        let patience = options.patience.map_or(PIPE_PATIENCE, Duration::from_secs);
        return pipe::run(context, patience);
    }
    let patience = options.patience.map_or(PATIENCE, Duration::from_secs);
    let event = event(options)?;
    let client = context.api()?;
    let answer = patiently(patience, || {
        let body = Some(("application/json", event.as_bytes()));
        client.send(Method::POST, "/v1/events", body)?.ok()?.object_with("id")
    })?;
    context.out.either(&answer, || {
        let sessions = count(answer["sessions"].as_u64().unwrap_or(0));
        format!("{} sent to {sessions} sessions", cell(&answer["id"]))
    })
}

/// The event as JSON. Its data is the text that was given: numbers stay as they were written.
fn event(options: &Options) -> Result<String> {
    let given = if options.to.is_empty() { &options.data } else { &options.subject };
    let mut text = given.clone().unwrap_or_default();
    if text == "-" {
        text.clear();
        let mut stdin = std::io::stdin().lock().take(DATA_BYTES_MAX);
        stdin.read_to_string(&mut text).map_err(Failure::io("can't read the data from stdin"))?;
    }
    let data = if options.text { json!(text).to_string() } else { text };
    let data: &RawValue = serde_json::from_str(&data).map_err(|_| no_json(&data))?;
    let whom = match &options.subject {
        _ if !options.to.is_empty() => json!({ "to": options.to }),
        Some(subject) if options.also.is_empty() => json!({ "subject": subject }),
        subject => {
            let subjects: Vec<&String> = subject.iter().chain(&options.also).collect();
            json!({ "subjects": subjects })
        }
    };
    let mut event = whom;
    // A repetition after a lost answer must be the same event.
    event["id"] = json!(options.id.clone().unwrap_or_else(random_id));
    if options.keep {
        event["keep"] = json!(true);
    }
    if let Some(ack) = &options.ack {
        event["ack"] = json!(ack);
    }
    let members = event.to_string();
    let members = members.strip_suffix('}').unwrap_or(&members);
    Ok(format!("{members},\"data\":{data}}}"))
}

fn no_json(text: &str) -> Failure {
    let start: String = text.chars().take(40).collect();
    Failure::Usage(format!("the data isn't JSON: {start}; --text publishes it as text"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn event_of(words: &[&str]) -> Result<String> {
        event(&Line::try_parse_from([&["publish"], words].concat()).unwrap().options)
    }

    #[test]
    fn the_data_stays_as_it_was_written() {
        assert_eq!(
            event_of(&["ann", "{\"n\":1.50, \"b\":{}}", "--id", "i}"]).unwrap(),
            r#"{"id":"i}","subject":"ann","data":{"n":1.50, "b":{}}}"#
        );
        assert_eq!(
            event_of(&["--to", "bob", "hi", "--text", "--id", "1"]).unwrap(),
            r#"{"id":"1","to":["bob"],"data":"hi"}"#
        );
        assert_eq!(
            event_of(&["ann", "1", "--also", "room/7", "--id", "1", "--ack", "memory"]).unwrap(),
            r#"{"ack":"memory","id":"1","subjects":["ann","room/7"],"data":1}"#
        );
    }

    #[test]
    fn an_event_without_an_id_gets_one() {
        let ids = [(); 2].map(|()| event_of(&["ann", "1"]).unwrap());
        assert_ne!(ids[0], ids[1]);
    }

    #[test]
    fn what_is_no_json_is_refused_here() {
        assert!(matches!(event_of(&["ann", "hello"]), Err(Failure::Usage(_))));
    }
}
