//! `doctor`: checks a server from outside, and its machine where this is it. Each finding says what
//! to do.
//!
//! It changes nothing. A warning is what will hurt later or under load, a failure what hurts now;
//! the exit status is 1 if there is a failure.

mod machine;
mod server;

use serde_json::json;

use super::Context;
use crate::failure::{Failure, Result};

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Ok,
    /// It will hurt under load, or later.
    Warning,
    /// It hurts now.
    Failure,
}

/// One check's finding.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, in a word or two.
    pub check: &'static str,
    /// How it is.
    pub state: State,
    /// What is there.
    pub found: String,
    /// What to change; empty where nothing is wrong.
    pub remedy: String,
}

impl Finding {
    /// As it should be.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: State::Ok, found: found.into(), remedy: String::new() }
    }

    /// Not as it should be, and what to do.
    pub fn wrong(
        check: &'static str,
        state: State,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { check, state, found: found.into(), remedy: remedy.into() }
    }
}

/// Checks.
///
/// # Errors
/// If a check fails, or there is no server that could be checked.
pub fn run(context: &mut Context) -> Result<()> {
    let client = context.api()?;
    let status = match server::status(&client) {
        Ok(status) => status,
        Err(failure) => {
            // Why it isn't there may be on this machine.
            for finding in machine::without_server() {
                show(context, &finding)?;
            }
            return Err(failure);
        }
    };
    let mut findings = server::check(&client, &context.settings, &status);
    findings.extend(machine::check(&status));
    for finding in &findings {
        show(context, finding)?;
    }
    match findings.iter().filter(|finding| finding.state == State::Failure).count() {
        0 => Ok(()),
        1 => Err(Failure::Partly("1 check failed".to_owned())),
        failed => Err(Failure::Partly(format!("{failed} checks failed"))),
    }
}

fn show(context: &mut Context, finding: &Finding) -> Result<()> {
    let Finding { check, state, found, remedy } = finding;
    let word = match state {
        State::Ok => "ok",
        State::Warning => "warning",
        State::Failure => "failure",
    };
    let remedy = Some(remedy).filter(|remedy| !remedy.is_empty());
    context.out.either(
        &json!({ "check": check, "state": word, "found": found, "do": remedy }),
        || match remedy {
            None => format!("{word:8} {check:16} {found}"),
            Some(remedy) => format!("{word:8} {check:16} {found}\n{:25} -> {remedy}", ""),
        },
    )
}
