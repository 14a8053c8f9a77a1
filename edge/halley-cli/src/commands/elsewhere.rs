//! Commands of the server's machine: the launcher there has them, with the server's files.
//!
//! The launcher runs its own commands before this program sees them, so they come here only where
//! the program is installed alone, on a laptop say.

use clap::Args;

use crate::failure::{Failure, Result};

/// What was to be passed on.
#[derive(Debug, Args)]
pub struct Options {
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// Says where it works.
///
/// # Errors
/// Always: nothing was done.
pub fn run(name: &str, options: &Options) -> Result<()> {
    if name == "restore" {
        return Err(Failure::Elsewhere(
            "a backup is restored on the server's machine: start Halley there with data.dir = the \
             backup's folder, or a copy of it"
                .to_owned(),
        ));
    }
    let words = std::iter::once(name).chain(options.arguments.iter().map(String::as_str));
    let line = words.collect::<Vec<_>>().join(" ");
    Err(Failure::Elsewhere(format!(
        "`{name}` works with the server's own files: run `./halley {line}` on its machine, in the \
         folder where Halley was built"
    )))
}
