//! `docs/reference/command-line.md`, made of the options of all commands.

use std::fmt::Write;

use clap::{Arg, Command};

use crate::failure::STATUSES;

const HEAD: &str = include_str!("../reference-head.txt");

/// The whole page, for this root command.
#[must_use]
pub fn page(root: &Command) -> String {
    let mut page = HEAD.to_owned();
    page += "## Exit status\n\n| status | meaning |\n| --- | --- |\n";
    for (status, meaning) in STATUSES {
        // A `String` takes everything.
        let _ = writeln!(page, "| {status} | {meaning} |");
    }
    page += "\n## Commands\n\n`halley COMMAND --help` says the same.\n";
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        section(&mut page, command, "halley", "###");
    }
    page
}

fn section(page: &mut String, command: &Command, before: &str, marks: &str) {
    let name = format!("{before} {}", command.get_name());
    let _ = write!(page, "\n{marks} {name}\n\n{}.\n", text(command.get_about()));
    let options: Vec<&Arg> = command.get_arguments().filter(|arg| is_own(arg)).collect();
    if !options.is_empty() {
        *page += "\n| argument | what |\n| --- | --- |\n";
    }
    for arg in options {
        let default: Vec<_> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let takes_values = arg.get_action().takes_values();
        let default = match default.as_slice() {
            values if takes_values && !values.is_empty() => format!(" (`{}`)", values.join(" ")),
            _ => String::new(),
        };
        let _ = writeln!(page, "| `{}` | {}{default} |", shape(arg), text(arg.get_help()));
    }
    if let Some(examples) = command.get_after_help() {
        let lines = examples.to_string();
        let lines = lines.strip_prefix("Examples:\n").unwrap_or(&lines).lines();
        *page += "\n```\n";
        for line in lines {
            let _ = writeln!(page, "{}", line.trim_start());
        }
        *page += "```\n";
    }
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        section(page, command, &name, "####");
    }
}

/// Flags that all commands have are in the head's table.
fn is_own(arg: &Arg) -> bool {
    !arg.is_global_set() && !["help", "version"].contains(&arg.get_id().as_str())
}

fn shape(arg: &Arg) -> String {
    let name = arg.get_value_names().and_then(|names| names.first()).map(|name| name.to_string());
    let name = name.unwrap_or_else(|| arg.get_id().as_str().to_uppercase());
    match arg.get_long() {
        None if arg.get_action().takes_values() && arg.is_required_set() => name,
        None => format!("[{name}]"),
        Some(long) if arg.get_action().takes_values() => format!("--{long} {name}"),
        Some(long) => format!("--{long}"),
    }
}

fn text(words: Option<&clap::builder::StyledStr>) -> String {
    words.map(ToString::to_string).unwrap_or_default().replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory;

    use crate::arguments::Arguments;

    /// `cargo run -p halley-cli -- reference` prints what the page must be.
    #[test]
    fn the_reference_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/command-line.md");
        let written = std::fs::read_to_string(path).unwrap();
        let page = super::page(&Arguments::command());
        for (number, (is, must)) in written.lines().zip(page.lines()).enumerate() {
            assert_eq!(is, must, "line {}: `make docs` writes it anew", number + 1);
        }
        assert!(written == page, "`make docs` writes it anew");
    }

    #[test]
    fn clap_finds_no_fault_with_the_options() {
        Arguments::command().debug_assert();
    }
}
