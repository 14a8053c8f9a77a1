//! Checks of a server over HTTP.

use serde_json::Value;

use super::{Finding, State};
use crate::client::{Client, is_loopback};
use crate::clock::now_ms;
use crate::commands::status::read;
use crate::failure::Result;
use crate::out::{bytes, cell};
use crate::settings::Settings;

/// A sample is a second old at most, and its answer takes a moment.
const CLOCK_WARNING_MS: u64 = 3_000;
/// `auth.leeway` by default: tokens are refused.
const CLOCK_FAILURE_MS: u64 = 10_000;
/// Beyond it the oldest events leave before `history.retention` is over.
const HISTORY_FULL_PERCENT: u64 = 90;
/// Less than that, and connections are refused soon (`limits.memory_free_…_percent_min`).
const MEMORY_BYTES_MIN: u64 = 256 << 20;

/// The server's status.
///
/// # Errors
/// If there is no answer.
pub fn status(client: &Client) -> Result<Value> {
    read(client, "/v1/status")
}

/// All checks, for this status. A resource that the key may not read is a finding, too.
pub fn check(client: &Client, settings: &Settings, status: &Value) -> Vec<Finding> {
    let mut findings = vec![
        state(status),
        version(status),
        clock(status["now"]["at"].as_u64().unwrap_or(0), now_ms()),
        workers(status),
        memory(status),
    ];
    findings.push(match client.get("/v1/key") {
        Ok(key) => access(&key, &settings.url),
        Err(failure) => unread("key", &failure.to_string()),
    });
    match client.get("/v1/history") {
        Ok(answer) => findings.extend(history(&answer)),
        Err(failure) => findings.push(unread("history", &failure.to_string())),
    }
    findings
}

fn unread(check: &'static str, why: &str) -> Finding {
    Finding::wrong(check, State::Warning, format!("can't be read: {why}"), "use a key with `read`")
}

fn state(status: &Value) -> Finding {
    if status["state"] == "ready" {
        return Finding::ok("state", "ready");
    }
    let found = format!("{}: {}", cell(&status["state"]), cell(&status["why"]));
    Finding::wrong("state", State::Failure, found, "the server's log has the reason in full")
}

fn version(status: &Value) -> Finding {
    let (server, own) = (cell(&status["version"]), env!("CARGO_PKG_VERSION"));
    if server == own {
        return Finding::ok("version", server);
    }
    let found = format!("the server is {server}, this program {own}");
    Finding::wrong("version", State::Warning, found, "install the program of the server's version")
}

fn clock(server_ms: u64, own_ms: u64) -> Finding {
    let apart = server_ms.abs_diff(own_ms);
    let found = format!("{apart} ms from this machine's");
    let state = match apart {
        0..CLOCK_WARNING_MS => return Finding::ok("clock", found),
        CLOCK_WARNING_MS..CLOCK_FAILURE_MS => State::Warning,
        _ => State::Failure,
    };
    let remedy = "run chrony or systemd-timesyncd on both machines (`timedatectl` shows it): times \
                  of tokens are compared with the server's clock";
    Finding::wrong("clock", state, found, remedy)
}

fn workers(status: &Value) -> Finding {
    let workers = status["workers"].as_array().map_or(&[][..], Vec::as_slice);
    let behind = workers.iter().filter(|worker| worker["behind"] == true).count();
    let found = format!("{} linked, {behind} behind", workers.len());
    if workers.is_empty() {
        let remedy = "no edge serves clients: the server's log says why it isn't there";
        return Finding::wrong("edge", State::Failure, found, remedy);
    }
    if behind > 0 {
        let remedy = "the edge is slower than events come: `halley top` shows its load, \
                      `halley sessions --behind` clients that don't read";
        return Finding::wrong("edge", State::Warning, found, remedy);
    }
    Finding::ok("edge", found)
}

fn memory(status: &Value) -> Finding {
    let free = status["workers"].as_array().into_iter().flatten();
    match free.filter_map(|worker| worker["memory_available_bytes"].as_u64()).min() {
        None => Finding::ok("memory", "not known"),
        Some(free) if free >= MEMORY_BYTES_MIN => {
            Finding::ok("memory", format!("{} available", bytes(free)))
        }
        Some(free) => Finding::wrong(
            "memory",
            State::Failure,
            format!("{} available", bytes(free)),
            "give the machine, or the container, more memory: connections are refused otherwise",
        ),
    }
}

fn access(key: &Value, url: &str) -> Finding {
    let scopes: Vec<&str> =
        key["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if key["open"] == true {
        let found = "the API needs none: whoever reaches it may do everything";
        if is_loopback(url) {
            return Finding::ok("key", found);
        }
        let remedy = "`./halley key create web --scope publish,follow` on the server's machine";
        return Finding::wrong("key", State::Failure, found, remedy);
    }
    Finding::ok("key", format!("may {}", scopes.join(", ")))
}

fn history(answer: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    let number = |name: &str| answer[name].as_u64().unwrap_or(0);
    let (used, most) = (number("bytes"), number("bytes_max"));
    let found = format!("{} of {}", bytes(used), bytes(most));
    findings.push(match answer["refusing"].as_str() {
        Some("disk_full") => Finding::wrong(
            "disk",
            State::Failure,
            "the disk of data.dir is full",
            "free some of it: nothing is published until then",
        ),
        Some(why) => Finding::wrong(
            "disk",
            State::Failure,
            format!("publishing is refused: {why}"),
            "the server's log has the reason",
        ),
        None if most > 0 && used / (most / 100).max(1) >= HISTORY_FULL_PERCENT => Finding::wrong(
            "history",
            State::Warning,
            found,
            "raise history.bytes, or lower history.retention: the oldest events leave too early",
        ),
        None => Finding::ok("history", found),
    });
    if number("damaged_total") > 0 {
        let found = format!("{} ranges of the history can't be read", number("damaged_total"));
        let remedy = "look at the disk (`dmesg`, SMART); clients get a gap for these times";
        findings.push(Finding::wrong("history files", State::Failure, found, remedy));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn clocks_apart_are_a_warning_before_tokens_are_refused() {
        assert_eq!(clock(5_000, 7_000).state, State::Ok);
        assert_eq!(clock(5_000, 9_000).state, State::Warning);
        assert_eq!(clock(50_000, 9_000).state, State::Failure);
    }

    #[test]
    fn an_open_api_is_fine_on_loopback_alone() {
        let open = json!({"open": true, "scopes": []});
        assert_eq!(access(&open, "http://localhost:8081").state, State::Ok);
        for url in ["http://h.example.org", "http://localhost.example.org"] {
            assert_eq!(access(&open, url).state, State::Failure, "{url}");
        }
        let key = json!({"open": false, "scopes": ["read"]});
        assert_eq!(access(&key, "http://h.example.org"), Finding::ok("key", "may read"));
    }

    #[test]
    fn a_history_that_refuses_or_is_full_is_named() {
        let states = |answer: Value| history(&answer).iter().map(|f| f.state).collect::<Vec<_>>();
        assert_eq!(states(json!({"bytes": 1, "bytes_max": 1000})), [State::Ok]);
        assert_eq!(states(json!({"bytes": 950, "bytes_max": 1000})), [State::Warning]);
        let full = json!({"refusing": "disk_full", "bytes_max": 1, "damaged_total": 2});
        assert_eq!(states(full), [State::Failure, State::Failure]);
    }

    #[test]
    fn a_server_without_an_edge_serves_nobody() {
        assert_eq!(workers(&json!({"workers": []})).state, State::Failure);
        assert_eq!(workers(&json!({"workers": [{"behind": true}]})).state, State::Warning);
        assert_eq!(state(&json!({"state": "draining", "why": "x"})).state, State::Failure);
    }
}
