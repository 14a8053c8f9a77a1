//! `token explain`: the parts of a token in words, and whether it is good: by the keys of a file,
//! by the server itself, or, without either, by its times alone.

use std::io::Read;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use halley_token::{Keys, Rules};
use serde_json::{Value, json};
use ureq::http::Method;

use super::{moment, read, read_secret};
use crate::client::{Client, Door};
use crate::clock::now_ms;
use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::out::{cell, note};

/// The server's default of `limits.token_bytes_max` is smaller.
const TOKEN_BYTES_MAX: u64 = 1 << 16;

/// Which token, and what it is checked by.
#[derive(Debug, Args)]
pub struct Options {
    /// The token; `-` reads it from stdin
    token: String,
    /// Check it with the keys of this JWK Set, the file of auth.keys
    #[arg(long, value_name = "FILE", conflicts_with_all = ["secret_file", "ask"])]
    keys: Option<PathBuf>,
    /// Check it with this secret, the file of auth.hmac_secret_file
    #[arg(long, value_name = "FILE", conflicts_with = "ask")]
    secret_file: Option<PathBuf>,
    /// Show it to the server at --public-url, which says whether it accepts it
    #[arg(long)]
    ask: bool,
    /// The `iss` that it must have
    #[arg(long)]
    issuer: Option<String>,
    /// The audience that it must have
    #[arg(long)]
    audience: Option<String>,
    /// Seconds by which the clocks may differ
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    leeway: u64,
}

/// Explains it.
///
/// # Errors
/// If it isn't good.
pub fn run(context: &mut Context, options: &Options) -> Result<()> {
    let token = given(options)?;
    let now_s = now_ms() / 1_000;
    let parts: Vec<&str> = token.split('.').collect();
    let decoded = match parts.as_slice() {
        [header, claims, _] => part(header).zip(part(claims)),
        _ => None,
    };
    let Some((header, claims)) = decoded else {
        return Err(Failure::Partly(
            "this is no signed token: a JWT has three parts of base64url with dots between, the \
             first two of JSON"
                .to_owned(),
        ));
    };
    let verdict = if options.ask {
        by_server(context, &token)?
    } else {
        by_keys(options, &token, now_s)?.unwrap_or_else(|| by_time(&claims, options.leeway, now_s))
    };
    let value = json!({ "header": header, "claims": claims, "verdict": verdict });
    context.out.either(&value, || words(&header, &claims, &verdict, now_s))?;
    match verdict["good"].as_bool() {
        Some(false) => Err(Failure::Partly(cell(&verdict["message"]))),
        _ => Ok(()),
    }
}

fn given(options: &Options) -> Result<String> {
    let mut token = options.token.clone();
    if token == "-" {
        token.clear();
        let mut stdin = std::io::stdin().lock().take(TOKEN_BYTES_MAX);
        stdin.read_to_string(&mut token).map_err(Failure::io("can't read the token from stdin"))?;
    }
    let token = token.trim();
    Ok(token.strip_prefix("Bearer ").unwrap_or(token).to_owned())
}

fn part(text: &str) -> Option<Value> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object)
}

/// What the keys say, as the server would; nothing without keys.
fn by_keys(options: &Options, token: &str, now_s: u64) -> Result<Option<Value>> {
    let set = match (&options.keys, &options.secret_file) {
        (Some(path), _) => read(path)?,
        (None, Some(path)) => {
            let secret = URL_SAFE_NO_PAD.encode(read_secret(path)?);
            json!({ "keys": [{ "kty": "oct", "alg": "HS256", "k": secret }] }).to_string().into()
        }
        (None, None) => return Ok(None),
    };
    let (keys, unusable) = Keys::parse(&set);
    for key in unusable {
        note(&format!("halley: key {} of the set can't be used: it {}", key.place, key.why));
    }
    let rules = Rules {
        issuer: options.issuer.clone().unwrap_or_default(),
        audience: options.audience.clone().unwrap_or_default(),
        leeway_s: options.leeway,
        token_bytes_max: TOKEN_BYTES_MAX as usize,
        nobody_allowed: true,
    };
    Ok(Some(match keys.check(token.as_bytes(), &rules, now_s) {
        Ok(_) => json!({ "good": true, "by": "keys", "code": null, "message": "it is good" }),
        Err(why) => verdict("keys", why.code(), why.message()),
    }))
}

/// What the server says: a request that changes nothing.
fn by_server(context: &Context, token: &str) -> Result<Value> {
    let mut settings = context.settings.clone();
    settings.token = Some(token.to_owned());
    let client = Client::new(&settings, Door::Public)?;
    let answer = client.send(Method::GET, "/v1/me/follows?limit=1", None)?;
    if answer.status < 300 {
        let message = "the server accepts it";
        return Ok(json!({ "good": true, "by": "server", "code": null, "message": message }));
    }
    let refusal = answer.refusal();
    if refusal.status != 401 {
        return Err(Failure::Refused(refusal));
    }
    Ok(verdict("server", &refusal.code, &refusal.message))
}

/// Without a key: what can be seen.
fn by_time(claims: &Value, leeway_s: u64, now_s: u64) -> Value {
    let time = |name: &str| claims[name].as_f64().map(|seconds| seconds as u64);
    match (time("exp"), time("nbf")) {
        (None, _) => verdict("time", "token_expiry", "it has no `exp`, which a token must have"),
        (Some(expires), _) if expires.saturating_add(leeway_s) <= now_s => {
            verdict("time", "token_expired", "it has expired")
        }
        (_, Some(begins)) if begins > now_s.saturating_add(leeway_s) => {
            verdict("time", "token_not_yet", "it isn't valid yet")
        }
        _ => json!({ "good": null, "by": "time", "code": null,
            "message": "its times are right; its signature wasn't checked (--secret-file, --keys \
                        or --ask does)" }),
    }
}

fn verdict(by: &str, code: &str, message: &str) -> Value {
    json!({ "good": false, "by": by, "code": code, "message": message })
}

fn words(header: &Value, claims: &Value, verdict: &Value, now_s: u64) -> String {
    let mut lines = vec![
        format!("signed by  {}, key {}", cell(&header["alg"]), cell(&header["kid"])),
        match claims["sub"].as_str() {
            Some(user) => format!("user       {user}"),
            None => "user       none: it is a visitor's token".to_owned(),
        },
    ];
    for (name, word) in [("iat", "issued"), ("nbf", "begins"), ("exp", "expires")] {
        if let Some(seconds) = claims[name].as_f64() {
            lines.push(format!("{word:10} {}", moment(seconds as u64, now_s)));
        }
    }
    for (name, word) in [("iss", "issuer"), ("aud", "audience")] {
        if !claims[name].is_null() {
            lines.push(format!("{word:10} {}", cell(&claims[name])));
        }
    }
    let rights = claims["halley"].as_object();
    for (right, patterns) in rights.into_iter().flatten() {
        let patterns: Vec<String> = patterns.as_array().into_iter().flatten().map(cell).collect();
        lines.push(format!("may        {right}: {}", patterns.join(", ")));
    }
    lines.push(format!("verdict    {}", cell(&verdict["message"])));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_key_the_times_decide() {
        let code = |claims: Value| by_time(&claims, 10, 1_000)["code"].clone();
        assert_eq!(code(json!({})), "token_expiry");
        assert_eq!(code(json!({"exp": 990})), "token_expired");
        assert_eq!(code(json!({"exp": 991})), Value::Null);
        assert_eq!(code(json!({"exp": 5000, "nbf": 1011})), "token_not_yet");
        assert_eq!(by_time(&json!({"exp": 5000}), 10, 1_000)["good"], Value::Null);
        // A claim of a stranger's token may be any number, and so may the leeway.
        assert_eq!(code(json!({"exp": 1e300})), Value::Null);
        let late = json!({"exp": 2, "nbf": 1e300});
        assert_eq!(by_time(&late, u64::MAX, 1_000)["good"], Value::Null);
    }
}
