//! The command line as clap reads it. Each command's own file does the work.

use clap::{Parser, Subcommand};

use crate::commands::{
    completion, elsewhere, events, export, follows, import, listen, lists, publish, sessions,
    token, top, trace, users,
};
use crate::settings::Flags;

/// Halley's command line
///
/// Talks to a Halley over HTTP, here or elsewhere. The address and the key come from flags, from
/// HALLEY_URL and HALLEY_KEY, or from ~/.config/halley.toml.
#[derive(Debug, Parser)]
#[command(name = "halley", bin_name = "halley", version, arg_required_else_help = true)]
#[command(after_help = "Exit status: 0 done, 1 refused, 2 usage, 3 no server reached, \
    4 try later, 5 key or token, 6 on the server's machine alone, 7 a file here")]
pub struct Arguments {
    /// Where the server is and who asks.
    #[command(flatten)]
    pub flags: Flags,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Each command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The server's state and its figures of this second
    #[command(after_help = "Examples:\n  halley status\n  \
        halley status --json | jq .now.sessions")]
    Status,
    /// Show the server's figures and its busiest subjects, anew each second
    #[command(after_help = "Examples:\n  halley top\n  halley top --count 1 --json")]
    Top(top::Options),
    /// Check a server and its machine: state, clock, versions, disk, limits, settings of the kernel
    #[command(after_help = "Examples:\n  halley doctor\n  halley doctor --json | jq 'select(.do)'")]
    Doctor,
    /// Publish an event, or one per line of stdin
    #[command(after_help = "Examples:\n  halley publish ann '{\"text\":\"hello\"}'\n  \
        halley publish --text room/7 'hello, all'\n  \
        halley publish --to bob --to eve '{\"text\":\"psst\"}'\n  \
        tail -f events.ndjson | halley publish --json")]
    Publish(publish::Options),
    /// Make a user follow subjects
    #[command(after_help = "Examples:\n  halley follow bob ann room/7")]
    Follow(follows::Options),
    /// End follows of a user
    #[command(after_help = "Examples:\n  halley unfollow bob ann")]
    Unfollow(follows::Options),
    /// List a subject's followers
    #[command(after_help = "Examples:\n  halley followers ann\n  \
        halley followers ann --limit 10 --json")]
    Followers(lists::Followers),
    /// List the subjects that a user follows
    #[command(after_help = "Examples:\n  halley following bob")]
    Following(lists::Following),
    /// Print events as they come, and come back after a break
    #[command(after_help = "Examples:\n  halley listen --user bob\n  \
        halley listen live/score --last 5 --json\n  \
        HALLEY_TOKEN=eyJ… halley listen --cursor-file ~/bob.cursor --json")]
    Listen(listen::Options),
    /// List past events about a subject, the newest first
    #[command(after_help = "Examples:\n  halley events room/7 --limit 100")]
    Events(events::Options),
    /// Say why a user has an event, or hasn't
    #[command(after_help = "Examples:\n  halley trace HODO72MSGH-2-0 bob")]
    Trace(trace::Options),
    /// List a user's connections, or those of all users that are slow or have ended
    #[command(after_help = "Examples:\n  halley sessions bob\n  halley sessions --behind\n  \
        halley sessions --ended slow_consumer")]
    Sessions(sessions::Options),
    /// Close a user's connections, or end its subscriptions to a subject
    #[command(after_help = "Examples:\n  halley close bob\n  \
        halley close bob --subscription room/7")]
    Close(sessions::Close),
    /// Show whether users are online, who is in a subject, or all users that follow anything
    #[command(after_help = "Examples:\n  halley users bob ann\n  \
        halley users --all\n  halley users --in room/7")]
    Users(users::Options),
    /// Make follows of a file's lines, at the server's full speed; may be killed and run again
    #[command(after_help = "Examples:\n  halley import follows.txt\n  \
        until halley import follows.txt; do sleep 5; done\n  \
        psql -Atc 'select json_build_object(...) from follows' | halley import -")]
    Import(import::Options),
    /// Write all follows to a file that `import` takes; may be killed and run again
    #[command(after_help = "Examples:\n  halley export follows.ndjson\n  \
        halley export - | gzip > follows.ndjson.gz\n  \
        halley export - --url http://old:8081 | halley import - --url http://new:8081")]
    Export(export::Options),
    /// Make users' tokens, and explain them
    Token(token::Options),
    /// Print what a shell needs to complete commands
    #[command(after_help = "Examples:\n  halley completion bash > \
        ~/.local/share/bash-completion/completions/halley\n  \
        halley completion zsh > ~/.zfunc/_halley\n  \
        halley completion fish > ~/.config/fish/completions/halley.fish")]
    Completion(completion::Options),
    /// Print docs/reference/command-line.md
    #[command(hide = true)]
    Reference,
    /// Server keys (on the server's machine)
    Key(elsewhere::Options),
    /// Check the hooks (on the server's machine)
    Hooks(elsewhere::Options),
    /// Check or set up PostgreSQL (on the server's machine)
    Postgres(elsewhere::Options),
    /// Copy the server's data (on the server's machine)
    Backup(elsewhere::Options),
    /// Bring a backup back (on the server's machine)
    Restore(elsewhere::Options),
    /// Check the server's configuration (on the server's machine)
    Config(elsewhere::Options),
}
