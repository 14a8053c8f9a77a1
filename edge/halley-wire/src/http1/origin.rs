//! Origins as a person writes them, made into what browsers and web views send (HTML standard,
//! 7.1.1; RFC 6454 section 6.2). `protocol/origins.json` has examples, which the brain's check of
//! the setting reads as well.

use std::net::Ipv6Addr;

/// An origin as clients send it, or `None` for what no client can send: a path or a user in it, a
/// scheme that pages never have, no host. `null` is none either: pages of any site can have it.
pub(super) fn normalized(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let (scheme, rest) = (scheme.to_ascii_lowercase(), rest.to_ascii_lowercase());
    let mut letters = scheme.bytes();
    let is_scheme = letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    match scheme.as_str() {
        _ if !is_scheme => None,
        // A page that a WebSocket is opened from is one of http or https.
        "ws" | "wss" => None,
        // What web views of files say; browsers say `null`.
        "file" => rest.is_empty().then(|| "file://".to_owned()),
        _ => {
            let (host, port) = host_and_port(&rest)?;
            let default = match scheme.as_str() {
                "http" => Some(80),
                "https" => Some(443),
                _ => None,
            };
            Some(match port.filter(|port| Some(*port) != default) {
                Some(port) => format!("{scheme}://{host}:{port}"),
                None => format!("{scheme}://{host}"),
            })
        }
    }
}

fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(inside) => {
            let (address, port) = inside.split_once(']')?;
            (format!("[{}]", address.parse::<Ipv6Addr>().ok()?), port)
        }
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if host.is_empty() || !host.bytes().all(allowed) {
                return None;
            }
            (host.to_owned(), port)
        }
    };
    if port.is_empty() {
        return Some((host, None));
    }
    let digits = port.strip_prefix(':')?;
    let are_digits = matches!(digits.len(), 1..=5) && digits.bytes().all(|b| b.is_ascii_digit());
    let port = if are_digits { digits.parse().ok() } else { None };
    port.map(|port| (host, Some(port)))
}
