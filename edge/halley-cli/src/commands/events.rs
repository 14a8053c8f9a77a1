//! `events`: past events about a subject, the newest first, by `GET /v1/subjects/S/events`.

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use ureq::http::Method;

use super::Context;
use crate::client::segment;
use crate::clock::utc;
use crate::failure::{Failure, Result};

/// Events of one page: the most that the server gives by default.
const PAGE: u64 = 1_000;

/// Which events.
#[derive(Debug, Args)]
pub struct Options {
    /// The subject
    pub subject: String,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u64,
    /// Those up to this cursor
    #[arg(long, value_name = "CURSOR")]
    before: Option<String>,
    /// Those published since this cursor
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
}

/// Prints them.
///
/// # Errors
/// If the server refuses.
pub fn run(context: &mut Context, options: &Options) -> Result<()> {
    let client = context.api()?;
    let path = format!("/v1/subjects/{}/events", segment(&options.subject));
    let after = options.after.as_ref().map(|cursor| format!("&after={}", segment(cursor)));
    let after = after.unwrap_or_default();
    let mut before = options.before.clone();
    let mut left = options.limit;
    while left > 0 {
        let up_to = before.as_ref().map(|cursor| format!("&before={}", segment(cursor)));
        let up_to = up_to.unwrap_or_default();
        let target = format!("{path}?limit={}{up_to}{after}", left.min(PAGE));
        let answer = client.send(Method::GET, &target, None)?.ok()?;
        let page: Page = serde_json::from_slice(&answer.body).map_err(|_| {
            Failure::Unreachable("the answer isn't a page of events: is this a Halley?".into())
        })?;
        if let Some(kept) = page.kept.filter(|_| before.is_none()) {
            context.out.either(&json!({ "kept": kept }), || format!("kept: {}", words(&kept)))?;
        }
        for event in &page.events {
            context.out.either(event, || words(event))?;
        }
        left = left.saturating_sub(page.events.len() as u64);
        for gap in page.gaps {
            context.out.either(&json!({ "gap": gap }), || format!("gap: {gap}"))?;
        }
        match page.next {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    Ok(())
}

/// A page; its events stay as they were published, numbers too.
#[derive(Deserialize)]
struct Page {
    events: Vec<Box<RawValue>>,
    gaps: Vec<Value>,
    next: Option<String>,
    kept: Option<Box<RawValue>>,
}

/// What a person wants to see of an event.
#[derive(Deserialize)]
struct Event<'a> {
    id: String,
    at: u64,
    subject: Option<String>,
    subjects: Option<Vec<String>>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// An event for a person: when, about what, its data and its id. Other JSON stays as it is.
#[must_use]
pub fn words(event: &RawValue) -> String {
    let Ok(Event { id, at, subject, subjects, data }) = serde_json::from_str(event.get()) else {
        return event.get().to_owned();
    };
    let about = subject.or_else(|| subjects.map(|subjects| subjects.join(", ")));
    let about = about.unwrap_or_else(|| "(private)".to_owned());
    format!("{}  {about}  {data}  {id}", utc(at / 1_000))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_events_data_is_shown_as_it_was_published() {
        let shown = |text: &str| words(&RawValue::from_string(text.to_owned()).unwrap());
        let line = r#"{"id":"i","subject":"a","at":1000,"data":{"n":1.50}}"#;
        assert_eq!(shown(line), r#"1970-01-01 00:00:01Z  a  {"n":1.50}  i"#);
        let line = r#"{"id":"i","private":true,"at":0,"data":1}"#;
        assert_eq!(shown(line), "1970-01-01 00:00:00Z  (private)  1  i");
        assert_eq!(shown(r#"{"gap":{}}"#), r#"{"gap":{}}"#);
    }
}
