//! `sessions` and `close`: a user's connections, sessions that are behind, and sessions that ended.

use clap::Args;
use serde_json::Value;

use super::Context;
use crate::client::segment;
use crate::clock::utc;
use crate::failure::Result;
use crate::out::{cell, count, note, table};

/// Which sessions are shown.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Options {
    /// Those of this user
    user: Option<String>,
    /// Those that don't take what waits for them, of all users, the 20 with most waiting
    #[arg(long)]
    behind: bool,
    /// The last that ended for this reason, such as slow_consumer
    #[arg(long, value_name = "REASON")]
    ended: Option<String>,
}

/// Which are closed.
#[derive(Debug, Args)]
pub struct Close {
    /// The user
    user: String,
    /// End their subscriptions to this subject alone; the sessions go on
    #[arg(long, value_name = "SUBJECT")]
    subscription: Option<String>,
}

/// `sessions`.
///
/// # Errors
/// If the server refuses.
pub fn run(context: &mut Context, options: &Options) -> Result<()> {
    const HEADING: [&str; 7] =
        ["user", "worker", "edge", "transport", "state", "outbox_bytes", "outbox_ms"];
    let client = context.api()?;
    if let Some(reason) = &options.ended {
        let answer = client.get(&format!("/v1/ended?reason={}", segment(reason)))?;
        return rows(context, &answer["ended"], &["at", "user", "reason", "worker"], None);
    }
    if options.behind {
        let answer = client.get("/v1/behind")?;
        return rows(context, &answer["behind"], &HEADING, None);
    }
    let user = options.user.as_deref().unwrap_or_default();
    let answer = client.get(&format!("/v1/users/{}/sessions", segment(user)))?;
    rows(context, &answer["sessions"], &HEADING, Some(user))?;
    let total = answer["sessions_total"].as_u64().unwrap_or(0);
    let shown = answer["sessions"].as_array().map_or(0, Vec::len) as u64;
    if total > shown {
        note(&format!("halley: {} more sessions aren't listed", count(total - shown)));
    }
    Ok(())
}

/// Each object of the list as a line of JSON, or all as a table of these members.
fn rows(context: &mut Context, list: &Value, members: &[&str], user: Option<&str>) -> Result<()> {
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    if context.out.is_json() {
        return list.iter().try_for_each(|item| context.out.value(item));
    }
    let text = |item: &Value, member: &str| match (member, user) {
        ("user", Some(user)) => user.to_owned(),
        ("at", _) => utc(item["at"].as_u64().unwrap_or(0) / 1_000),
        _ => cell(&item[member]),
    };
    let mut lines = vec![members.iter().map(|member| member.to_uppercase()).collect::<Vec<_>>()];
    lines.extend(list.iter().map(|item| members.iter().map(|name| text(item, name)).collect()));
    context.out.line(&table(&lines))
}

/// `close`.
///
/// # Errors
/// If the server refuses.
pub fn close(context: &mut Context, options: &Close) -> Result<()> {
    let user = segment(&options.user);
    let client = context.api()?;
    let (answer, member, words) = match &options.subscription {
        None => {
            (client.delete(&format!("/v1/users/{user}/sessions"))?, "closed", "sessions closed")
        }
        Some(subject) => {
            let path = format!("/v1/users/{user}/subscriptions/{}", segment(subject));
            (client.delete(&path)?, "ended", "subscriptions ended")
        }
    };
    context.out.either(&answer, || format!("{} {words}", cell(&answer[member])))
}
