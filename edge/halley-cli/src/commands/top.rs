//! `top`: the server's figures and its busiest subjects, anew with each sample, by `/v1/status` and
//! `/v1/top`.
//!
//! Rates are differences of counters between two samples. A terminal gets a page that is drawn
//! anew; a pipe or `--json` gets a line for each sample.

use std::io::IsTerminal;

use clap::Args;
use serde_json::{Value, json};

use super::Context;
use super::status::read;
use crate::client::{Client, patiently};
use crate::failure::Result;
use crate::out::{bytes, cell, count, shown, table};

/// How long a server may be away: a brain that starts again is shown as soon as it is back.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
/// Moves to the corner and clears what is below: the page is drawn over the one before.
const HOME_AND_CLEAR: &str = "\x1b[H\x1b[J";

/// How much is shown.
#[derive(Debug, Args)]
pub struct Options {
    /// So many subjects
    #[arg(long, value_name = "N", default_value_t = 10)]
    subjects: usize,
    /// End after N samples [default: never]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Shows them until it is ended.
///
/// # Errors
/// If the server refuses, or is away for a minute.
pub fn run(context: &mut Context, options: &Options) -> Result<()> {
    let client = context.api()?;
    let mut before = read(&client, "/v1/status")?;
    // A terminal without cursor movements gets lines.
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
    let is_page = !context.out.is_json() && !is_dumb && std::io::stdout().is_terminal();
    for _ in 0..options.count.unwrap_or(u64::MAX) {
        let mut now = patiently(PATIENCE, || next(&client, &before))?;
        let top = patiently(PATIENCE, || client.get("/v1/top"))?;
        let subjects = top["by_events"].as_array().map_or(&[][..], Vec::as_slice);
        now["subjects"] = json!(&subjects[..subjects.len().min(options.subjects)]);
        if context.out.is_json() {
            context.out.value(&now)?;
        } else if is_page {
            let page = page(&before, &now, cell_u64(&top["over_ms"]));
            context.out.raw(&format!("{HOME_AND_CLEAR}{}\n", shown(&page)))?;
        } else {
            context.out.line(&line(&before, &now))?;
        }
        context.out.flush()?;
        before = now;
    }
    Ok(())
}

/// The status of the next sample, for which the server waits.
fn next(client: &Client, before: &Value) -> Result<Value> {
    let after = cell_u64(&before["now"]["at"]);
    read(client, &format!("/v1/status?after={after}"))
}

fn cell_u64(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn now_of(status: &Value, name: &str) -> u64 {
    cell_u64(&status["now"][name])
}

/// How much a counter grew in a second. A brain that began anew counts from 0.
fn rate(before: &Value, now: &Value, name: &str) -> u64 {
    let ms = now_of(now, "at").saturating_sub(now_of(before, "at")).max(1);
    now_of(now, name).saturating_sub(now_of(before, name)).saturating_mul(1_000) / ms
}

fn line(before: &Value, now: &Value) -> String {
    format!(
        "{}  {} sessions, {} events/s, {} deliveries/s, brain {}, edge {}",
        cell(&now["state"]),
        count(now_of(now, "sessions")),
        count(rate(before, now, "events")),
        count(rate(before, now, "deliveries")),
        bytes(now_of(now, "brain_rss_bytes")),
        bytes(now_of(now, "edge_rss_bytes"))
    )
}

fn page(before: &Value, now: &Value, over_ms: u64) -> String {
    let mut lines = vec![
        format!(
            "{}  {}  up {} s    Ctrl-C ends",
            cell(&now["node"]),
            cell(&now["version"]),
            count(cell_u64(&now["uptime_s"]))
        ),
        line(before, now),
        format!(
            "{} users, {} connections",
            count(now_of(now, "users")),
            count(now_of(now, "connections"))
        ),
        String::new(),
    ];
    let mut workers = vec![row(["EDGE", "WORKER", "SESSIONS", "WAITING", "OUTBOX", "BEHIND"])];
    for worker in now["workers"].as_array().into_iter().flatten() {
        let outbox = bytes(cell_u64(&worker["outbox_bytes"]));
        let edge = worker["edge"].to_string();
        workers.push(row([
            &edge,
            &cell(&worker["worker"]),
            &cell(&worker["sessions"]),
            &cell(&worker["waiting"]),
            &outbox,
            &cell(&worker["behind"]),
        ]));
    }
    lines.push(table(&workers));
    lines.push(String::new());
    let mut subjects = vec![row(["SUBJECT", "EVENTS/S", "DELIVERIES/S"])];
    for subject in now["subjects"].as_array().into_iter().flatten() {
        let of = |name: &str| {
            let per_s = subject[name].as_f64().unwrap_or(0.0) * 1_000.0 / over_ms.max(1) as f64;
            format!("{per_s:.1}")
        };
        subjects.push(row([&cell(&subject["subject"]), &of("events"), &of("sessions")]));
    }
    lines.push(table(&subjects));
    lines.join("\n")
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_per_second_and_never_below_zero() {
        let status = |at: u64, events: u64| json!({"now": {"at": at, "events": events}});
        assert_eq!(rate(&status(1_000, 5), &status(3_000, 25), "events"), 10);
        assert_eq!(rate(&status(1_000, 5), &status(2_000, 0), "events"), 0);
        assert_eq!(rate(&status(1_000, 0), &status(1_000, 5), "events"), 5_000);
    }
}
