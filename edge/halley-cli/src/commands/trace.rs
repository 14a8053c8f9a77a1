//! `trace`: why a user has an event, or hasn't, by `GET /v1/events/ID/trace`.

use clap::Args;
use serde_json::Value;

use super::Context;
use crate::client::segment;
use crate::clock::utc;
use crate::failure::Result;
use crate::out::cell;

/// Which event and which user.
#[derive(Debug, Args)]
pub struct Options {
    /// The event's id
    pub id: String,
    /// The user
    pub user: String,
}

/// Prints the verdict and what it comes from.
///
/// # Errors
/// If the event is unknown, or the server refuses.
pub fn run(context: &mut Context, options: &Options) -> Result<()> {
    let (id, user) = (segment(&options.id), segment(&options.user));
    let trace = context.api()?.get(&format!("/v1/events/{id}/trace?user={user}"))?;
    context.out.either(&trace, || words(&trace))
}

fn words(trace: &Value) -> String {
    let event = &trace["event"];
    let at = |value: &Value| value.as_u64().map_or("-".to_owned(), |at| utc(at / 1_000));
    let mut lines = vec![
        cell(&trace["verdict"]),
        format!(
            "event     {} at {}, sent to {} sessions",
            cell(&event["id"]),
            at(&event["at"]),
            cell(&event["sessions"])
        ),
        format!(
            "followed  {}, unfollowed {}",
            cell(&trace["followed"]),
            at(&trace["unfollowed_at"])
        ),
    ];
    for session in trace["sessions"].as_array().into_iter().flatten() {
        lines.push(format!(
            "session   {} on worker {}, {}: passed {}, began {}, {} bytes wait",
            cell(&session["transport"]),
            cell(&session["worker"]),
            cell(&session["state"]),
            cell(&session["passed"]),
            cell(&session["began"]),
            cell(&session["outbox_bytes"])
        ));
    }
    for ended in trace["ended"].as_array().into_iter().flatten() {
        lines.push(format!("ended     {}: {}", at(&ended["at"]), cell(&ended["reason"])));
    }
    lines.join("\n")
}
