//! Halley's command line: what its HTTP listeners offer, for people and scripts.
//!
//! One program without the server's files: it may run on another machine. `halley.in`, the launcher
//! on the server's machine, has the commands that need these files and hands all others on to this
//! program. Each command is a file below `commands/`; `docs/reference/command-line.md` is made of
//! their options.
//!
//! It is not: the server, nor a client library. It keeps nothing but the files that are named on
//! its command line.

#![forbid(unsafe_code)]

mod arguments;
mod client;
mod clock;
mod commands;
mod failure;
mod out;
mod progress;
mod random;
mod settings;
mod whole_file;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Command};
use crate::commands::Context;
use crate::failure::{Failure, Result};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && std::env::args_os().any(|word| word == "--json") => {
            return ended(&Failure::Usage(usage(&error.to_string())), true);
        }
        Err(error) => error.exit(),
    };
    let json = arguments.flags.json;
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ended(&failure, json),
    }
}

/// Says why, and gives the exit status.
fn ended(failure: &Failure, json: bool) -> ExitCode {
    match failure {
        Failure::NoReader => {}
        _ if json => out::note(&failure.json().to_string()),
        _ => out::note(&format!("halley: {}", out::shown(&failure.to_string()))),
    }
    ExitCode::from(failure.status())
}

/// The reason in a message of clap's, which has hints behind an empty line.
fn usage(message: &str) -> String {
    let reason = message.split("\n\n").next().unwrap_or_default();
    reason.strip_prefix("error: ").unwrap_or(reason).trim().to_owned()
}

fn run(arguments: Arguments) -> Result<()> {
    let mut context = Context::new(&arguments.flags)?;
    dispatch(&mut context, arguments.command)?;
    context.out.flush()
}

fn dispatch(context: &mut Context, command: Command) -> Result<()> {
    match command {
        Command::Status => commands::status::run(context),
        Command::Top(options) => commands::top::run(context, &options),
        Command::Doctor => commands::doctor::run(context),
        Command::Publish(options) => commands::publish::run(context, &options),
        Command::Follow(options) => commands::follows::follow(context, &options),
        Command::Unfollow(options) => commands::follows::unfollow(context, &options),
        Command::Followers(options) => commands::lists::followers(context, &options),
        Command::Following(options) => commands::lists::following(context, &options),
        Command::Listen(options) => commands::listen::run(context, &options),
        Command::Events(options) => commands::events::run(context, &options),
        Command::Trace(options) => commands::trace::run(context, &options),
        Command::Sessions(options) => commands::sessions::run(context, &options),
        Command::Close(options) => commands::sessions::close(context, &options),
        Command::Users(options) => commands::users::run(context, &options),
        Command::Import(options) => commands::import::run(context, &options),
        Command::Export(options) => commands::export::run(context, &options),
        Command::Token(options) => commands::token::run(context, &options),
        Command::Completion(options) => {
            commands::completion::run(context, &options, &mut Arguments::command())
        }
        Command::Reference => context.out.raw(&commands::reference::page(&Arguments::command())),
        Command::Key(options) => commands::elsewhere::run("key", &options),
        Command::Hooks(options) => commands::elsewhere::run("hooks", &options),
        Command::Postgres(options) => commands::elsewhere::run("postgres", &options),
        Command::Backup(options) => commands::elsewhere::run("backup", &options),
        Command::Restore(options) => commands::elsewhere::run("restore", &options),
        Command::Config(options) => commands::elsewhere::run("config", &options),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_wrong_command_line_has_one_reason() {
        let error = Arguments::try_parse_from(["halley", "status", "--timeout", "soon"]);
        let reason = usage(&error.unwrap_err().to_string());
        assert!(reason.starts_with("invalid value 'soon' for '--timeout"), "{reason}");
        assert!(!reason.contains('\n'), "{reason}");
    }
}
