//! Where to connect: `http://host:port`, or `https` for clients.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use crate::error::{Failure, Result};

/// The schemes that are understood, and the port that each means where none is given.
const SCHEMES: [(&str, u16); 5] =
    [("http", 80), ("ws", 80), ("nats", 4222), ("https", 443), ("wss", 443)];

/// Those of TLS.
const TLS_SCHEMES: [&str; 2] = ["https", "wss"];

/// A server's address, and what to call it in `Host`.
#[derive(Debug, Clone)]
pub struct Target {
    /// The first address that the name resolves to.
    pub address: SocketAddr,
    /// Name and port as given.
    pub host: String,
    /// Is TLS spoken there?
    pub tls: bool,
}

impl Target {
    /// The target of who doesn't speak TLS: it would be most of what is measured.
    ///
    /// # Errors
    /// If it is one of TLS.
    pub fn plain(self) -> Result<Self> {
        if self.tls {
            let what = format!("{}: TLS is for clients alone; expected http://", self.host);
            return Err(Failure::Message(what));
        }
        Ok(self)
    }
}

impl FromStr for Target {
    type Err = Failure;

    /// Takes `http://host[:port]` with nothing after it but a slash; `ws` and `nats` likewise.
    fn from_str(url: &str) -> Result<Self> {
        let bad = |what: &str| {
            let right = "expected http://host:port, as in http://127.0.0.1:8080";
            Failure::Message(format!("{url}: {what}; {right}"))
        };
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let known = SCHEMES.iter().find(|(name, _)| *name == scheme);
        let (_, port) = known.ok_or_else(|| bad("not an http, ws or nats URL"))?;
        let host = rest.strip_suffix('/').unwrap_or(rest);
        if host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) {
            return Err(bad("no path, query or user is possible here"));
        }
        let with_port =
            if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
                host.to_owned()
            } else {
                format!("{host}:{port}")
            };
        let mut addresses = with_port
            .to_socket_addrs()
            .map_err(|error| bad(&format!("can't resolve it ({error})")))?;
        let address = addresses.next().ok_or_else(|| bad("it has no address"))?;
        Ok(Self { address, host: host.to_owned(), tls: TLS_SCHEMES.contains(&scheme) })
    }
}

/// Appends `text` percent-encoded, so that it is one segment of a path or one value of a query
/// (RFC 3986, 2.3: all but the unreserved characters).
pub fn push_encoded(text: &str, request: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            request.push(byte);
        } else {
            let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
            request.extend_from_slice(&[b'%', digits[0], digits[1]]);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn urls() {
        let target: Target = "http://127.0.0.1:8080/".parse().unwrap();
        assert_eq!(target.address.to_string(), "127.0.0.1:8080");
        assert_eq!(target.host, "127.0.0.1:8080");
        let target: Target = "http://127.0.0.1".parse().unwrap();
        assert_eq!(target.address.port(), 80);
        let target: Target = "nats://127.0.0.1".parse().unwrap();
        assert_eq!(target.address.port(), 4222);
        assert!(target.plain().is_ok());
        let target: Target = "wss://127.0.0.1:8443".parse().unwrap();
        assert!(target.tls && target.address.port() == 8443);
        assert!(target.plain().is_err());
        for bad in ["127.0.0.1:80", "ftp://a:1", "http://", "http://127.0.0.1:80/v1", "http://:x:"]
        {
            let message = bad.parse::<Target>().unwrap_err().to_string();
            assert!(message.contains("expected http://host:port"), "{message}");
        }
    }

    #[test]
    fn everything_but_the_unreserved_is_encoded() {
        let mut request = Vec::new();
        push_encoded("aZ9-._~ /&é", &mut request);
        assert_eq!(request, b"aZ9-._~%20%2F%26%C3%A9");
    }
}
