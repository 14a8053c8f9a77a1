//! `users`: who is online, by `GET /v1/users/U` and `GET /v1/subjects/S/presence`.

use clap::Args;
use serde_json::{Value, json};

use super::Context;
use crate::client::segment;
use crate::failure::Result;
use crate::out::{cell, count, table};

/// Which users.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Options {
    /// These
    users: Vec<String>,
    /// Those that are present in this subject
    #[arg(long = "in", value_name = "SUBJECT")]
    subject: Option<String>,
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
    let client = context.api()?;
    let path = format!("/v1/subjects/{}/presence?limit=1000", segment(subject));
    let mut after = String::new();
    loop {
        let page = client.get(&format!("{path}{after}"))?;
        let Value::Array(users) = &page["users"] else {
            let online = page["online"].as_u64().unwrap_or(0);
            eprintln!("halley: {} users are online: too many to be listed", count(online));
            return Ok(());
        };
        for user in users {
            let value = json!({ "user": user });
            context.out.either(&value, || user.as_str().unwrap_or_default().to_owned())?;
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", segment(next)),
            None => return Ok(()),
        }
    }
}
