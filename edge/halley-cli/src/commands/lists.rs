//! `followers` and `following`: a subject's or a user's follows, page by page, one id on a line.

use clap::Args;
use serde_json::{Value, json};

use super::Context;
use crate::client::{Client, segment};
use crate::failure::Result;

/// Most ids in a page: the most that the server gives.
const PAGE: u64 = 1_000;

/// Of `followers`.
#[derive(Debug, Args)]
pub struct Followers {
    /// The subject
    pub subject: String,
    #[command(flatten)]
    range: Range,
}

/// Of `following`.
#[derive(Debug, Args)]
pub struct Following {
    /// The user
    pub user: String,
    #[command(flatten)]
    range: Range,
}

/// Which of them.
#[derive(Debug, Args)]
struct Range {
    /// At most so many [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Those after this id, which an earlier list had
    #[arg(long, value_name = "ID")]
    after: Option<String>,
}

/// `followers`.
///
/// # Errors
/// If the server refuses.
pub fn followers(context: &mut Context, options: &Followers) -> Result<()> {
    let path = format!("/v1/subjects/{}/followers", segment(&options.subject));
    list(context, &path, "followers", "user", &options.range)
}

/// `following`.
///
/// # Errors
/// If the server refuses.
pub fn following(context: &mut Context, options: &Following) -> Result<()> {
    let path = format!("/v1/users/{}/following", segment(&options.user));
    list(context, &path, "following", "subject", &options.range)
}

fn list(context: &mut Context, path: &str, member: &str, name: &str, range: &Range) -> Result<()> {
    let client = context.api()?;
    let limit = range.limit.unwrap_or(u64::MAX);
    let mut after = range.after.clone();
    let mut printed = 0;
    while printed < limit {
        let page = page(&client, path, after.as_deref(), PAGE.min(limit - printed))?;
        for id in page[member].as_array().into_iter().flatten() {
            let value = json!({ name: id });
            context.out.either(&value, || id.as_str().unwrap_or_default().to_owned())?;
            printed += 1;
        }
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    Ok(())
}

/// One page of a list of ids, behind the id `after`.
///
/// # Errors
/// If the server refuses.
pub fn page(client: &Client, path: &str, after: Option<&str>, limit: u64) -> Result<Value> {
    let after = after.map(|id| format!("&after={}", segment(id))).unwrap_or_default();
    client.get(&format!("{path}?limit={limit}{after}"))
}
