//! `status`: the server's figures of this second, by `GET /v1/status`.

use serde_json::{Map, Value};
use ureq::http::Method;

use super::Context;
use crate::client::Client;
use crate::failure::Result;
use crate::out::{bytes, cell, count};

/// Prints them.
///
/// # Errors
/// If there is no answer, or the key may not read.
pub fn run(context: &mut Context) -> Result<()> {
    let status = read(&context.api()?, "/v1/status")?;
    context.out.either(&status, || words(&status))
}

/// The status by this path, with its newest sample alone.
///
/// # Errors
/// If there is no answer, or it is none of a Halley.
pub fn read(client: &Client, path: &str) -> Result<Value> {
    client.send(Method::GET, path, None)?.ok()?.object_with("state").map(brief)
}

/// The answer with the newest sample alone, its values by name in `now`; what is for pages that
/// draw ten minutes is left out.
#[must_use]
fn brief(mut status: Value) -> Value {
    let columns = status["columns"].take();
    let samples = status["samples"].take();
    let newest = samples.as_array().and_then(|samples| samples.last()).cloned();
    let newest = newest.unwrap_or_default();
    let mut now = Map::new();
    now.insert("at".to_owned(), newest[0].clone());
    for (place, column) in columns.as_array().into_iter().flatten().enumerate() {
        if let Some(name) = column.as_str() {
            now.insert(name.to_owned(), newest[place + 1].clone());
        }
    }
    if let Some(members) = status.as_object_mut() {
        for name in ["columns", "samples", "counted", "since"] {
            members.remove(name);
        }
        members.insert("now".to_owned(), Value::Object(now));
    }
    status
}

fn words(status: &Value) -> String {
    let now = &status["now"];
    let number = |name: &str| now[name].as_u64().unwrap_or(0);
    let state = match status["why"].as_str() {
        Some(why) => format!("{}: {why}", cell(&status["state"])),
        None => cell(&status["state"]),
    };
    let workers = status["workers"].as_array().map_or(&[][..], Vec::as_slice);
    let behind = workers.iter().filter(|worker| worker["behind"] == true).count();
    let uptime_s = status["uptime_s"].as_u64().unwrap_or(0);
    let (hours, minutes) = (uptime_s / 3_600, uptime_s / 60 % 60);
    let since = format!("up {hours} h {minutes} min {} s", uptime_s % 60);
    let rows = [
        (
            "node",
            format!("{}, version {}, {since}", cell(&status["node"]), cell(&status["version"])),
        ),
        ("state", state),
        (
            "sessions",
            format!(
                "{} of {} users, {} connections",
                count(number("sessions")),
                count(number("users")),
                count(number("connections"))
            ),
        ),
        ("events", format!("{} published since the start", count(number("events")))),
        (
            "memory",
            format!(
                "brain {}, edge {}",
                bytes(number("brain_rss_bytes")),
                bytes(number("edge_rss_bytes"))
            ),
        ),
        ("workers", format!("{}, {behind} behind", workers.len())),
        ("tokens", cell(&status["auth_mode"])),
    ];
    rows.map(|(name, value)| format!("{name:9} {value}")).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_sample_has_names() {
        let status = brief(json!({"node": "h@1", "columns": ["sessions", "users"],
            "samples": [[1, 2, 3], [4, 5, 6]], "counted": {}, "since": 1, "uptime_s": 61}));
        assert_eq!(status["now"], json!({"at": 4, "sessions": 5, "users": 6}));
        assert!(status.get("samples").is_none());
        assert!(words(&status).contains("5 of 6 users"));
        assert!(words(&status).contains("up 0 h 1 min 1 s"));
    }
}
