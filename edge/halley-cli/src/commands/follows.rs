//! `follow` and `unfollow`: one user and some subjects, by `/v1/follows`.

use clap::Args;
use serde_json::{Value, json};
use ureq::http::Method;

use super::Context;
use crate::failure::{Failure, Result};
use crate::out::{cell, count, note, shown};

/// Of both.
#[derive(Debug, Args)]
pub struct Options {
    /// The user who follows
    pub user: String,
    /// The subjects
    #[arg(required = true)]
    pub subjects: Vec<String>,
}

/// `follow`.
///
/// # Errors
/// If the server refuses one of them; the others are done.
pub fn follow(context: &mut Context, options: &Options) -> Result<()> {
    change(context, options, Method::POST, ["added", "already"], ["new", "there already"])
}

/// `unfollow`.
///
/// # Errors
/// If the server refuses one of them; the others are done.
pub fn unfollow(context: &mut Context, options: &Options) -> Result<()> {
    change(context, options, Method::DELETE, ["removed", "absent"], ["ended", "not there"])
}

fn change(
    context: &mut Context,
    options: &Options,
    method: Method,
    members: [&str; 2],
    words: [&str; 2],
) -> Result<()> {
    let lines: Vec<String> = options
        .subjects
        .iter()
        .map(|subject| format!("{}\n", json!({"user": options.user, "subject": subject})))
        .collect();
    let body = lines.concat();
    let client = context.api()?;
    let answer = client
        .send(method, "/v1/follows", Some(("application/x-ndjson", body.as_bytes())))?
        .ok()?
        .object_with(members[0])?;
    context.out.either(&answer, || {
        let of = |member: &str| count(answer[member].as_u64().unwrap_or(0));
        format!("{} {}, {} {}", of(members[0]), words[0], of(members[1]), words[1])
    })?;
    let errors = answer["errors"].as_array().map_or(&[][..], Vec::as_slice);
    for error in errors {
        let line = error["line"].as_u64().and_then(|line| usize::try_from(line).ok()).unwrap_or(1);
        let subject = options.subjects.get(line.saturating_sub(1)).map_or("", String::as_str);
        note(&format!("halley: {}: {}", json!(subject), shown(&message(&error["error"]))));
    }
    match answer["errors_total"].as_u64().unwrap_or(errors.len() as u64) {
        0 => Ok(()),
        failed => Err(Failure::Partly(format!("{failed} of {} were refused", lines.len()))),
    }
}

fn message(error: &Value) -> String {
    format!("{} ({})", cell(&error["message"]), cell(&error["code"]))
}
