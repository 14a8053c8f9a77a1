//! `completion`: what a shell needs to complete commands and options.

use clap::{Args, Command};
use clap_complete::Shell;

use super::Context;
use crate::failure::Result;

/// For which shell.
#[derive(Debug, Args)]
pub struct Options {
    /// The shell: bash, zsh or fish
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    pub shell: String,
}

/// Prints the script, for this root command.
///
/// # Errors
/// If stdout takes no more.
pub fn run(context: &mut Context, options: &Options, root: &mut Command) -> Result<()> {
    let shell = match options.shell.as_str() {
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, root, "halley", &mut script);
    context.out.raw(&String::from_utf8_lossy(&script))
}
