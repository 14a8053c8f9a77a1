//! Where the server is and who asks: from flags, the environment and `halley.toml`, in this order.
//!
//! The program that a server's launcher has started also knows the launcher's own configuration:
//! the addresses of `api.listen` and `public.listen` come last. Another `halley.conf` is never
//! read: a folder that a stranger has prepared would get the key.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use crate::failure::{Failure, Result};

/// The environment variable by which the launcher says that it runs the program: its own path.
pub const LAUNCHER: &str = "HALLEY_LAUNCHER";
const API_LISTEN: &str = "127.0.0.1:8081";
const PUBLIC_LISTEN: &str = "127.0.0.1:8080";
const CONFIG_BYTES_MAX: u64 = 1 << 20;
const TIMEOUT_S: u64 = 30;
/// A day.
const TIMEOUT_S_MAX: u64 = 86_400;

/// The flags that each command has.
#[derive(Debug, Args, Clone, Default)]
#[command(next_help_heading = "Server")]
pub struct Flags {
    /// The API listener, such as https://halley.example.org:8081
    #[arg(long, global = true, env = "HALLEY_URL", value_name = "URL")]
    pub url: Option<String>,
    /// The public listener, for `listen`
    #[arg(long, global = true, env = "HALLEY_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<String>,
    /// A server key. Other users of this machine can see arguments: prefer HALLEY_KEY or the file
    #[arg(long, global = true, env = "HALLEY_KEY", value_name = "KEY", hide_env_values = true)]
    pub key: Option<String>,
    /// A user's token, for `listen`
    #[arg(long, global = true, env = "HALLEY_TOKEN", value_name = "JWT", hide_env_values = true)]
    pub token: Option<String>,
    /// A file with certificates of CAs, in PEM, in place of the public ones
    #[arg(long, global = true, env = "HALLEY_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Seconds to wait for a connection, and for each answer
    #[arg(long, global = true, env = "HALLEY_TIMEOUT", value_name = "SECONDS",
        value_parser = timeout)]
    pub timeout: Option<u64>,
    /// The file with the settings [default: ~/.config/halley.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON, one value on each line
    #[arg(long, global = true)]
    pub json: bool,
}

/// What is in force.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Base of the API listener, without a slash at its end.
    pub url: String,
    /// Base of the public listener.
    pub public_url: String,
    /// The server key.
    pub key: Option<String>,
    /// The user's token.
    pub token: Option<String>,
    /// The CAs' file.
    pub ca: Option<PathBuf>,
    /// For a connection.
    pub timeout: Duration,
    /// For each answer: the same, unless a command's requests take longer.
    pub answer_timeout: Duration,
    /// JSON is printed.
    pub json: bool,
}

/// `halley.toml`: the same names.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    url: Option<String>,
    public_url: Option<String>,
    key: Option<String>,
    token: Option<String>,
    ca: Option<PathBuf>,
    timeout: Option<u64>,
}

impl Settings {
    /// Those of these flags, with what is missing from the file or its default.
    ///
    /// # Errors
    /// If the file is named and not there, isn't valid, or an address is none.
    pub fn of(flags: &Flags) -> Result<Self> {
        let file = read_file(flags.config.as_deref())?;
        let server = Listeners::of_launcher();
        let url = given(&flags.url).or(file.url);
        let public_url = given(&flags.public_url).or(file.public_url);
        let public_url = match (public_url, &url) {
            (Some(public_url), _) => public_url,
            (None, Some(url)) => beside(url),
            (None, None) => server.public,
        };
        let timeout = flags.timeout.filter(|seconds| *seconds > 0).or(file.timeout);
        let timeout = timeout.unwrap_or(TIMEOUT_S).clamp(1, TIMEOUT_S_MAX);
        let timeout = Duration::from_secs(timeout);
        Ok(Self {
            url: base(&url.unwrap_or(server.api))?,
            public_url: base(&public_url)?,
            key: given(&flags.key).or(file.key),
            token: given(&flags.token).or(file.token),
            ca: flags.ca.clone().filter(|path| !path.as_os_str().is_empty()).or(file.ca),
            timeout,
            answer_timeout: timeout,
            json: flags.json,
        })
    }
}

/// A variable that is set to nothing is as good as not set, as in the files of containers.
fn given(flag: &Option<String>) -> Option<String> {
    flag.clone().filter(|text| !text.is_empty())
}

/// Seconds; 0 if the variable is set to nothing.
fn timeout(text: &str) -> std::result::Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse()
        .ok()
        .filter(|seconds| (1..=TIMEOUT_S_MAX).contains(seconds))
        .ok_or_else(|| format!("a time is 1 to {TIMEOUT_S_MAX} seconds"))
}

fn read_file(named: Option<&Path>) -> Result<File> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => match default_file() {
            Some(path) if path.exists() => path,
            _ => return Ok(File::default()),
        },
    };
    let name = path.display().to_string();
    let length = std::fs::metadata(&path).map_err(Failure::io(format!("can't read {name}")))?.len();
    if length > CONFIG_BYTES_MAX {
        return Err(Failure::Usage(format!("{name} is larger than 1 MiB: it has settings alone")));
    }
    let text = std::fs::read_to_string(&path).map_err(Failure::io(format!("can't read {name}")))?;
    toml::from_str(&text).map_err(|error| {
        let before = error.span().map_or(0, |span| span.start);
        let line = 1 + text.bytes().take(before).filter(|byte| *byte == b'\n').count();
        Failure::Usage(format!("{name}, line {line}: {}", error.message().replace('\n', " ")))
    })
}

/// `halley.toml` in XDG_CONFIG_HOME or ~/.config.
fn default_file() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty());
    let folder = folder
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(folder.join("halley.toml"))
}

/// The public listener of a server whose API has this address, where both have their default ports
/// or a proxy serves both.
fn beside(url: &str) -> String {
    url.trim_end_matches('/')
        .strip_suffix(":8081")
        .map_or_else(|| url.to_owned(), |host| format!("{host}:8080"))
}

/// An address as a base for paths.
fn base(url: &str) -> Result<String> {
    let is_valid = ["http://", "https://"].iter().any(|scheme| {
        url.strip_prefix(scheme).is_some_and(|rest| {
            !rest.is_empty() && !rest.starts_with('/') && !rest.contains(['?', '#', '@', ' '])
        })
    });
    if is_valid {
        Ok(url.trim_end_matches('/').to_owned())
    } else if url.contains('@') {
        // There may be a password before it.
        let why = "an address has no user before its host: a key goes into HALLEY_KEY or --key";
        Err(Failure::Usage(why.to_owned()))
    } else {
        Err(Failure::Usage(format!(
            "{url} is no address of a server: it begins with http:// or https://, such as \
             http://{API_LISTEN}"
        )))
    }
}

/// `data.dir` of the server whose launcher runs this program; nothing without a launcher.
#[must_use]
pub fn data_dir_of_launcher() -> Option<PathBuf> {
    std::env::var_os(LAUNCHER)?;
    let given = std::env::var("HALLEY_DATA_DIR").ok();
    let dir = given.or_else(|| of_conf(&launcher_conf(), "data.dir"));
    Some(dir.map_or_else(|| PathBuf::from("data"), PathBuf::from))
}

/// Where the server of this machine listens.
struct Listeners {
    api: String,
    public: String,
}

impl Listeners {
    /// By the launcher's configuration, if it runs this program; else by the defaults.
    fn of_launcher() -> Self {
        let launched = std::env::var_os(LAUNCHER).is_some();
        let conf = if launched { launcher_conf() } else { String::new() };
        let value = |key: &str| {
            let variable = format!("HALLEY_{}", key.to_uppercase().replace('.', "_"));
            let given = std::env::var(variable).ok().filter(|_| launched);
            given.or_else(|| of_conf(&conf, key))
        };
        let address = |listener: &str, default: &str| {
            let tls = value(&format!("{listener}.tls.certificate")).is_some();
            let listen = value(&format!("{listener}.listen"));
            listened(&listen.unwrap_or_else(|| default.to_owned()), tls)
        };
        Self { api: address("api", API_LISTEN), public: address("public", PUBLIC_LISTEN) }
    }
}

fn launcher_conf() -> String {
    let path = std::env::var_os("HALLEY_CONF").filter(|path| !path.is_empty());
    std::fs::read_to_string(path.unwrap_or_else(|| "halley.conf".into())).unwrap_or_default()
}

/// The value of a key in the text of a `halley.conf`.
fn of_conf(conf: &str, key: &str) -> Option<String> {
    conf.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// The address by which this machine reaches a listener of its own.
fn listened(listen: &str, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    let listen = match listen.rsplit_once(':') {
        Some(("0.0.0.0" | "[::]" | "*", port)) => format!("127.0.0.1:{port}"),
        _ => listen.to_owned(),
    };
    format!("{scheme}://{listen}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_address_is_a_base_for_paths() {
        assert_eq!(base("http://localhost:8081/").unwrap(), "http://localhost:8081");
        assert_eq!(base("https://h.example.org/halley/").unwrap(), "https://h.example.org/halley");
        for wrong in
            ["localhost:8081", "ftp://h", "http://", "http:///x", "http://u:p@h", "http://h?x"]
        {
            assert!(matches!(base(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_not_repeated() {
        assert!(!base("http://u:secret@h").unwrap_err().to_string().contains("secret"));
    }

    #[test]
    fn what_is_set_to_nothing_isnt_set() {
        let nothing = || Some(String::new());
        let flags = Flags {
            url: nothing(),
            public_url: nothing(),
            key: nothing(),
            token: nothing(),
            ca: Some(PathBuf::new()),
            timeout: Some(timeout("").unwrap()),
            config: Some("/dev/null".into()),
            json: false,
        };
        let settings = Settings::of(&flags).unwrap();
        assert_eq!(settings.url, format!("http://{API_LISTEN}"));
        assert_eq!(settings.public_url, format!("http://{PUBLIC_LISTEN}"));
        assert_eq!((settings.key, settings.token, settings.ca), (None, None, None));
        assert_eq!(settings.timeout.as_secs(), TIMEOUT_S);
        for wrong in ["0", "soon", "-1", "18446744073709551615"] {
            assert!(timeout(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_public_listener_is_beside_the_api() {
        assert_eq!(beside("http://h:8081"), "http://h:8080");
        assert_eq!(beside("https://h.example.org"), "https://h.example.org");
    }

    #[test]
    fn a_listener_of_this_machine_is_reached_by_loopback() {
        assert_eq!(listened("0.0.0.0:9000", false), "http://127.0.0.1:9000");
        assert_eq!(listened("[::]:9000", true), "https://127.0.0.1:9000");
        assert_eq!(listened("10.0.0.1:1", false), "http://10.0.0.1:1");
    }

    #[test]
    fn a_key_of_halley_conf_is_found_by_its_whole_name() {
        let conf = "# api.listen = 1\nxapi.listen = 2\n api.listen = 3 \n";
        assert_eq!(of_conf(conf, "api.listen").as_deref(), Some("3"));
        assert_eq!(of_conf(conf, "public.listen"), None);
    }
}
