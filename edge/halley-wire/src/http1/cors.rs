//! Which web pages may read what this server answers (Fetch standard, section 3.2 "CORS protocol").

use std::fmt;

use super::origin::normalized;
use super::response::{Head, ResponseOptions};

/// The origins that may read answers, as the setting `cors_origins` names them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origins {
    any: bool,
    localhost: bool,
    exact: Vec<Box<str>>,
}

/// A member of the setting that is no origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOrigin(pub String);

impl fmt::Display for BadOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no origin: use *, localhost, or one like https://app.example.org or \
             capacitor://localhost",
            self.0
        )
    }
}

impl std::error::Error for BadOrigin {}

/// What one response tells the browser about the origin that asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cors<'r> {
    /// The value of `Access-Control-Allow-Origin`.
    pub allow_origin: Option<&'r [u8]>,
    /// Whether the answer depends on the origin, which caches must know.
    pub vary: bool,
    /// The origin that isn't let in, for the person who looks for the reason in the browser's
    /// tools: the page itself can't read it.
    pub refused: Option<&'r [u8]>,
}

impl Origins {
    /// Reads the setting: origins separated by commas, `*` for all of them, `localhost` for those
    /// of this machine on any port; empty for none.
    ///
    /// # Errors
    /// The first member that is no origin.
    pub fn parse(setting: &str) -> Result<Origins, BadOrigin> {
        let mut origins = Origins::default();
        let members = setting.split(',').map(str::trim);
        for member in members.filter(|member| !member.is_empty()) {
            match member {
                "*" => origins.any = true,
                "localhost" => origins.localhost = true,
                _ => {
                    let origin = normalized(member).ok_or_else(|| BadOrigin(member.to_owned()))?;
                    origins.exact.push(origin.into());
                }
            }
        }
        Ok(origins)
    }

    /// What to tell a request that had this `Origin` header.
    pub fn grant<'r>(&self, origin: Option<&'r [u8]>) -> Cors<'r> {
        if self.any {
            return Cors { allow_origin: Some(b"*"), ..Cors::default() };
        }
        Cors {
            allow_origin: origin.filter(|origin| self.allows(origin)),
            vary: self.localhost || !self.exact.is_empty(),
            refused: None,
        }
    }

    /// Whether pages of this origin may read answers.
    pub fn allows(&self, origin: &[u8]) -> bool {
        self.any
            || (self.localhost && is_localhost(origin))
            || self.exact.iter().any(|exact| exact.as_bytes().eq_ignore_ascii_case(bare(origin)))
    }
}

/// The origin without the scheme's own port, which browsers leave out and others may not.
fn bare(origin: &[u8]) -> &[u8] {
    let port: &[u8] = match strip_scheme(origin) {
        None => return origin,
        Some(_) if origin.starts_with(b"https") => b":443",
        Some(_) => b":80",
    };
    origin.strip_suffix(port).unwrap_or(origin)
}

/// Whether a page of this origin comes from the same place as the server with this `Host` (RFC 6454
/// section 5). Behind `tls` the page's scheme must be https; without it either may be, as a proxy
/// may have ended the TLS.
pub fn is_same_origin(origin: &[u8], host: Option<&[u8]>, tls: bool) -> bool {
    let (Some(of_page), Some(host)) = (strip_scheme(origin), host) else { return false };
    let https = origin.starts_with(b"https");
    let port: &[u8] = if https { b":443" } else { b":80" };
    let bare = |host: &[u8]| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
    (https || !tls) && !of_page.is_empty() && bare(of_page) == bare(host)
}

impl Cors<'_> {
    pub(super) fn write(&self, head: &mut Head<'_>) {
        if let Some(origin) = self.allow_origin {
            head.header("Access-Control-Allow-Origin", origin);
            head.header("Access-Control-Expose-Headers", EXPOSE_HEADERS);
        }
        if let Some(origin) = self.refused {
            let origin = if is_nameable(origin) { origin } else { b"this page's origin" };
            head.header("Halley-Refused", &[b"cors.origins lacks ", origin].concat());
        }
        if self.vary || self.refused.is_some() {
            head.header("Vary", b"Origin");
        }
    }
}

/// Whether an origin, which a client chose, may be repeated where a person reads it.
pub fn is_nameable(origin: &[u8]) -> bool {
    (1..=NAMED_BYTES_MAX).contains(&origin.len()) && origin.iter().all(u8::is_ascii_graphic)
}

/// Appends the answer to OPTIONS: 204 with the methods of the path, comma-separated, and, if the
/// origin is granted, what a preflight asks for.
pub fn preflight(out: &mut Vec<u8>, methods: &str, options: &ResponseOptions<'_>) {
    let options = ResponseOptions { allow: None, ..*options };
    let mut head = Head::begin(out, 204, &options);
    head.header("Allow", methods.as_bytes());
    if options.cors.allow_origin.is_some() {
        head.header("Access-Control-Allow-Methods", methods.as_bytes());
        head.header("Access-Control-Allow-Headers", ALLOW_HEADERS);
        head.header("Access-Control-Max-Age", MAX_AGE_S);
    }
    head.bodyless();
}

/// What EventSource polyfills and fetch send to streams and to the API.
const ALLOW_HEADERS: &[u8] = b"accept, authorization, cache-control, content-type, last-event-id";

/// What a page may read besides what any page may: when to come back.
const EXPOSE_HEADERS: &[u8] = b"retry-after";

/// Longer ones are no person's page.
const NAMED_BYTES_MAX: usize = 255;

/// Two hours: Chromium's upper bound.
const MAX_AGE_S: &[u8] = b"7200";

/// An origin of this machine: browsers serialize it in lower case.
fn is_localhost(origin: &[u8]) -> bool {
    let Some(rest) = strip_scheme(origin) else {
        return false;
    };
    let hosts: [&[u8]; 3] = [b"localhost", b"127.0.0.1", b"[::1]"];
    let port = hosts.iter().find_map(|host| rest.strip_prefix(*host));
    match port {
        Some([]) => true,
        Some([b':', digits @ ..]) => {
            matches!(digits.len(), 1..=5) && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

fn strip_scheme(origin: &[u8]) -> Option<&[u8]> {
    let after = |scheme: &[u8]| origin.strip_prefix(scheme);
    after(b"http://").or_else(|| after(b"https://"))
}
