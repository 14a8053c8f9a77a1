//! `users`: who is online, who is in a subject, and who follows anything, by `GET /v1/users/U`,
//! `GET /v1/subjects/S/presence` and `GET /v1/users`.

use clap::Args;
use serde_json::{Value, json};

use super::Context;
use super::lists::page;
use crate::client::segment;
use crate::failure::Result;
use crate::out::{cell, count, note, table};

/// Users of one page.
const PAGE: u64 = 1_000;

/// Which users.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Options {
    /// These
    users: Vec<String>,
    /// Those that are present in this subject
    #[arg(long = "in", value_name = "SUBJECT")]
    subject: Option<String>,
    /// All that follow anything, one on a line
    #[arg(long)]
    all: bool,
}

/// Prints them.
///
/// # Errors
/// If the server refuses.
pub fn run(context: &mut Context, options: &Options) -> Result<()> {
    let client = context.api()?;
    if let Some(subject) = &options.subject {
        return present(context, subject);
    }
    if options.all {
        return list(context, "/v1/users");
    }
    const MEMBERS: [&str; 5] = ["user", "online", "sessions", "following", "followers"];
    let mut rows = vec![MEMBERS.map(str::to_uppercase).to_vec()];
    for user in &options.users {
        let answer = client.get(&format!("/v1/users/{}", segment(user)))?;
        if context.out.is_json() {
            context.out.value(&answer)?;
        } else {
            rows.push(MEMBERS.map(|member| cell(&answer[member])).to_vec());
        }
    }
    if context.out.is_json() { Ok(()) } else { context.out.line(&table(&rows)) }
}

fn present(context: &mut Context, subject: &str) -> Result<()> {
    list(context, &format!("/v1/subjects/{}/presence", segment(subject)))
}

/// All pages of users.
fn list(context: &mut Context, path: &str) -> Result<()> {
    let client = context.api()?;
    let mut after: Option<String> = None;
    loop {
        let page = page(&client, path, after.as_deref(), PAGE)?;
        let Value::Array(users) = &page["users"] else {
            let online = page["online"].as_u64().unwrap_or(0);
            note(&format!("halley: {} users are online: too many to be listed", count(online)));
            return Ok(());
        };
        for user in users {
            let value = json!({ "user": user });
            context.out.either(&value, || user.as_str().unwrap_or_default().to_owned())?;
        }
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => return Ok(()),
        }
    }
}
