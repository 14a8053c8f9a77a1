//! The client's address from a proxy: the header of the PROXY protocol, version 2, and
//! `X-Forwarded-For` (`protocol/http.md` 17).
//!
//! Version 2 of the PROXY protocol (HAProxy's `doc/proxy-protocol.txt`, section 2.2) begins a
//! connection with 16 bytes that have the length of the addresses and the rest after them. Version
//! 1, which is text, is not read: its first byte is an error.
//!
//! Neither says whom to believe; the caller asks them only about proxies that it trusts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const FIXED_BYTES: usize = 16;

/// A header that is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Its length: what is behind it is the client's.
    pub bytes: usize,
    /// The client. `None` where the proxy speaks for itself, as in a health check, or for one that
    /// has no such address: then the connection's own counts.
    pub client: Option<IpAddr>,
}

/// No such header, or none that may be here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadProxyHeader;

/// Reads the header at the beginning of `input`. `Ok(None)` when more is needed.
///
/// # Errors
/// At the first byte that can't be one of a header of at most `bytes_max`.
pub fn parse(input: &[u8], bytes_max: usize) -> Result<Option<ProxyHeader>, BadProxyHeader> {
    let seen = input.len().min(SIGNATURE.len());
    if input.get(..seen) != SIGNATURE.get(..seen) {
        return Err(BadProxyHeader);
    }
    let at = |place: usize| input.get(place).copied();
    let speaks_for_itself = match at(12) {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return Err(BadProxyHeader),
    };
    let addresses_bytes = match at(13) {
        None => return Ok(None),
        // What stands there is to be ignored, whatever it is.
        Some(_) if speaks_for_itself => 0,
        Some(0x00) => 0,
        // Streams over IPv4, IPv6 and Unix sockets.
        Some(0x11) => 12,
        Some(0x21) => 36,
        Some(0x31) => 216,
        Some(_) => return Err(BadProxyHeader),
    };
    let (Some(high), Some(low)) = (at(14), at(15)) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length < addresses_bytes || FIXED_BYTES + length > bytes_max {
        return Err(BadProxyHeader);
    }
    let bytes = FIXED_BYTES + length;
    let Some(addresses) = input.get(FIXED_BYTES..bytes) else { return Ok(None) };
    let client = match addresses_bytes {
        12 => addresses.first_chunk::<4>().map(|ip| IpAddr::V4(Ipv4Addr::from(*ip))),
        36 => addresses.first_chunk::<16>().map(|ip| IpAddr::V6(Ipv6Addr::from(*ip))),
        _ => None,
    };
    Ok(Some(ProxyHeader { bytes, client }))
}

/// The client that the lines of `X-Forwarded-For` name: the rightmost address that isn't trusted,
/// as each proxy adds on the right whom it heard. `None` if all are, or if there is something else
/// than an address in that place.
pub fn forwarded_for<'l>(
    lines: impl Iterator<Item = &'l [u8]>,
    trusted: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let members = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    members.filter(|member| !member.is_empty()).fold(None, |client, member| match address(member) {
        Some(ip) if trusted(ip) => client,
        other => other,
    })
}

/// An address, with a port or without.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse().or_else(|_| text.parse().map(|with: std::net::SocketAddr| with.ip()));
    ip.ok().map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 300;

    /// A header with these bytes behind its fixed part.
    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut out = SIGNATURE.to_vec();
        out.extend([command, family]);
        out.extend((rest.len() as u16).to_be_bytes());
        out.extend(rest);
        out
    }

    fn client(input: &[u8]) -> Result<Option<IpAddr>, BadProxyHeader> {
        parse(input, MAX).map(|header| {
            let header = header.filter(|header| header.bytes == input.len());
            header.map_or(Some(Ipv4Addr::BROADCAST.into()), |header| header.client)
        })
    }

    /// http.md 17.1: IPv4, IPv6, with more behind the addresses; LOCAL and what has no address.
    #[test]
    fn headers_of_proxies() {
        let v4 = [192, 0, 2, 1, 10, 0, 0, 1, 0x30, 0x39, 0, 80];
        let ip: IpAddr = [192, 0, 2, 1].into();
        assert_eq!(client(&header(0x21, 0x11, &v4)), Ok(Some(ip)));
        let more = [&v4[..], &[4, 0, 1, 0]].concat();
        assert_eq!(client(&header(0x21, 0x11, &more)), Ok(Some(ip)));
        let mut v6 = [0; 36];
        v6[0] = 0x20;
        v6[15] = 7;
        let ip: IpAddr = [0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7].into();
        assert_eq!(client(&header(0x21, 0x21, &v6)), Ok(Some(ip)));
        assert_eq!(client(&header(0x20, 0x00, &[])), Ok(None), "LOCAL");
        assert_eq!(client(&header(0x20, 0x7f, &[1, 2, 3])), Ok(None), "the family is ignored");
        assert_eq!(client(&header(0x21, 0x00, &[9; 5])), Ok(None), "no family");
        assert_eq!(client(&header(0x21, 0x31, &[9; 216])), Ok(None), "a Unix socket");
    }

    /// 17.2: "A connection without such a header".
    #[test]
    fn what_is_none() {
        let v4 = [0; 12];
        for (command, family, rest) in [
            (0x11, 0x11, &v4[..]), // version 1
            (0x31, 0x11, &v4[..]),
            (0x22, 0x11, &v4[..]),
            (0x2f, 0x11, &v4[..]),
            (0x21, 0x12, &v4[..]), // datagrams
            (0x21, 0x01, &v4[..]),
            (0x21, 0x41, &[0; 40][..]),
            (0x21, 0x11, &v4[..11]), // too short for its addresses
            (0x21, 0x21, &v4[..]),
            (0x21, 0x31, &v4[..]),
            (0x20, 0x00, &[0; MAX - FIXED_BYTES + 1][..]), // too long for us
        ] {
            let input = header(command, family, rest);
            assert_eq!(client(&input), Err(BadProxyHeader), "{command:x} {family:x}");
        }
        for text in ["PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "GET / HTTP/1.1\r\n", "\u{16}\u{3}"]
        {
            assert_eq!(client(text.as_bytes()), Err(BadProxyHeader));
        }
        assert_eq!(
            parse(&header(0x20, 0, &[0; MAX - FIXED_BYTES]), MAX).map(|h| h.is_some()),
            Ok(true)
        );
    }

    /// 17.4: "the rightmost address that isn't trusted".
    #[test]
    fn forwarded() {
        let trusted = |ip: IpAddr| ip.to_string().starts_with("10.");
        let of = |lines: &[&str]| {
            let lines = lines.iter().map(|line| line.as_bytes());
            forwarded_for(lines, trusted).map(|ip| ip.to_string())
        };
        let is = |lines: &[&str], ip: &str| assert_eq!(of(lines).as_deref(), Some(ip), "{lines:?}");
        is(&["192.0.2.1"], "192.0.2.1");
        is(&["198.51.100.7, 192.0.2.1"], "192.0.2.1");
        is(&["192.0.2.1, 10.0.0.1 ,10.0.0.2"], "192.0.2.1");
        is(&["198.51.100.7", "192.0.2.1, 10.0.0.1", "10.0.0.2"], "192.0.2.1");
        is(&["anything, \u{fffd}, 192.0.2.1"], "192.0.2.1");
        is(&["192.0.2.1:8443"], "192.0.2.1");
        is(&["[2001:db8::1]:8443"], "2001:db8::1");
        is(&["[2001:db8::1]"], "2001:db8::1");
        is(&["2001:db8::1,"], "2001:db8::1");
        is(&["::ffff:192.0.2.1, ::ffff:10.0.0.1"], "192.0.2.1");
        for none in [&["10.0.0.1"][..], &[], &[""], &[",,"], &["192.0.2.1, unknown"]] {
            assert_eq!(of(none), None, "{none:?}");
        }
        assert_eq!(of(&["192.0.2.1, unknown, 10.0.0.1"]), None, "nobody is guessed");
    }

    proptest! {
        /// However it is cut, and whatever it is.
        #[test]
        fn cuts_change_nothing(
            rest in proptest::collection::vec(any::<u8>(), 0..60),
            command in 0x1fu8..0x23,
            family in prop_oneof![Just(0u8), Just(0x11), Just(0x21), Just(0x31), any::<u8>()],
            bytes_max in 0usize..90,
        ) {
            let input = header(command, family, &rest);
            let whole = parse(&input, bytes_max);
            let first = (0..=input.len())
                .map(|end| parse(&input[..end], bytes_max))
                .find(|said| *said != Ok(None));
            prop_assert_eq!(first.unwrap_or(Ok(None)), whole);
            if let Ok(Some(header)) = whole {
                prop_assert!(header.bytes == input.len() && header.bytes <= bytes_max);
            }
        }

        #[test]
        fn nothing_panics(input in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&input, 100);
            let _ = forwarded_for([&*input].into_iter(), |ip| ip.is_ipv6());
        }
    }
}
