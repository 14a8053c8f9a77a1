//! `token`: makes users' tokens, and says what one contains and whether it is good. No server is
//! needed, but for `--ask`.

mod explain;
mod signer;

use std::io::Read;
use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use self::signer::Signer;
use super::Context;
use crate::clock::{now_ms, utc};
use crate::failure::{Failure, Result};

/// A file with keys is smaller.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Of `token`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a token, signed with a secret or a private key
    #[command(after_help = "Examples:\n  \
        halley token make bob --secret-file secret --expires 1h --subscribe 'live/*'\n  \
        halley token make bob --pem private.pem --kid 2026 --publish room/7 --history room/7\n  \
        export HALLEY_TOKEN=$(halley token make bob --secret-file secret)")]
    Make(Box<Make>),
    /// Show what a token contains, and check it
    #[command(after_help = "Examples:\n  halley token explain eyJ…\n  \
        halley token explain eyJ… --secret-file secret\n  \
        halley token explain - --ask < token.txt")]
    Explain(explain::Options),
}

/// What the token says, and who signs it.
#[derive(Debug, Args)]
struct Make {
    /// The user; without one it is a visitor's token
    user: Option<String>,
    #[command(flatten)]
    key: signer::Options,
    /// The key's name, for the header
    #[arg(long)]
    kid: Option<String>,
    /// How long it is valid: 90s, 15m, 12h, 30d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = seconds)]
    expires: u64,
    /// Valid only so long from now on
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    not_before: Option<u64>,
    /// The claim `iss`
    #[arg(long)]
    issuer: Option<String>,
    /// The claim `aud`
    #[arg(long)]
    audience: Option<String>,
    /// Right to publish about this subject, or a prefix with `*`; may be there several times
    #[arg(long, value_name = "PATTERN")]
    publish: Vec<String>,
    /// Right to publish to this user alone
    #[arg(long, value_name = "PATTERN")]
    to: Vec<String>,
    /// Right to follow
    #[arg(long, value_name = "PATTERN")]
    follow: Vec<String>,
    /// Right to subscribe
    #[arg(long, value_name = "PATTERN")]
    subscribe: Vec<String>,
    /// Right to see who is present
    #[arg(long, value_name = "PATTERN")]
    presence: Vec<String>,
    /// Right to read past events
    #[arg(long, value_name = "PATTERN")]
    history: Vec<String>,
    /// Right to set the session's state
    #[arg(long, value_name = "PATTERN")]
    state: Vec<String>,
}

/// Does one of them.
///
/// # Errors
/// If a key can't be used, or the token isn't good.
pub fn run(context: &mut Context, options: &Options) -> Result<()> {
    match &options.what {
        What::Make(options) => make(context, options),
        What::Explain(options) => explain::run(context, options),
    }
}

fn make(context: &mut Context, options: &Make) -> Result<()> {
    let signer = Signer::read(&options.key)?;
    let claims = claims(options, now_ms() / 1_000);
    let token = signer.sign(options.kid.as_deref(), &claims)?;
    context.out.either(&json!({ "token": token, "claims": claims }), || token.clone())
}

fn claims(options: &Make, now_s: u64) -> Value {
    let mut claims = Map::new();
    let mut put = |name: &str, value: Value| claims.insert(name.to_owned(), value);
    if let Some(user) = &options.user {
        put("sub", json!(user));
    }
    put("iat", json!(now_s));
    put("exp", json!(now_s + options.expires));
    if let Some(wait) = options.not_before {
        put("nbf", json!(now_s + wait));
    }
    if let Some(issuer) = &options.issuer {
        put("iss", json!(issuer));
    }
    if let Some(audience) = &options.audience {
        put("aud", json!(audience));
    }
    let rights: Map<String, Value> = [
        ("publish", &options.publish),
        ("to", &options.to),
        ("follow", &options.follow),
        ("subscribe", &options.subscribe),
        ("presence", &options.presence),
        ("history", &options.history),
        ("state", &options.state),
    ]
    .into_iter()
    .filter(|(_, patterns)| !patterns.is_empty())
    .map(|(name, patterns)| (name.to_owned(), json!(patterns)))
    .collect();
    if !rights.is_empty() {
        put("halley", Value::Object(rights));
    }
    Value::Object(claims)
}

/// A time span in seconds, from a number with its unit.
fn seconds(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("{text} is no time: a number with s, m, h or d behind it, such as 15m");
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    // A hundred years.
    number.checked_mul(unit).filter(|seconds| *seconds <= 3_155_760_000).ok_or_else(wrong)
}

/// Reads a small file whole.
fn read(path: &Path) -> Result<Vec<u8>> {
    let name = path.display();
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(Failure::io(format!("can't read {name}")))?;
    Ok(bytes)
}

/// Reads a secret as the server does: line ends at the end of the file are none of it.
fn read_secret(path: &Path) -> Result<Vec<u8>> {
    let mut secret = read(path)?;
    while secret.last().is_some_and(|byte| b"\r\n".contains(byte)) {
        secret.pop();
    }
    Ok(secret)
}

/// A time of a claim, as a person reads it, with how far it is from now.
fn moment(seconds: u64, now_s: u64) -> String {
    let (apart, word) = match seconds.checked_sub(now_s) {
        Some(ahead) => (ahead, "from now"),
        None => (now_s - seconds, "ago"),
    };
    format!("{} ({apart} s {word})", utc(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_span_has_a_unit() {
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("30d"), Ok(2_592_000));
        for wrong in ["", "1", "h", "1y", "-1s", "99999999999999999999s", "18446744073709551615d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
