//! The header fields of a parsed head.

use memchr::memchr;

/// The header fields of a request in their order, found again in the head at each walk.
///
/// The fields are not kept in an array, so a request is a few pointers. What makes the walk safe
/// and simple is that `httparse` has accepted these very bytes: every line is `name:value CRLF`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers<'b> {
    /// The lines after the request line, each with its CRLF, without the empty line at the end.
    lines: &'b [u8],
}

impl<'b> Headers<'b> {
    /// `lines` must be header lines that a strict parser accepted.
    pub(super) fn of_accepted(lines: &'b [u8]) -> Headers<'b> {
        Headers { lines }
    }

    /// The value of the first field of this name, whatever the case of its letters.
    pub fn get(&self, name: &str) -> Option<&'b [u8]> {
        let found = self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// All fields: names as they came, values without the white space around them.
    pub fn iter(&self) -> Iter<'b> {
        Iter { rest: self.lines }
    }

    /// The fields that travel on, without those that concern this connection or the body's framing
    /// alone (RFC 9110 section 7.6.1, link.md 8.2): the hop-by-hop fields, those that `Connection`
    /// names, `Content-Length` and `Expect`.
    pub fn end_to_end(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + use<'b> {
        let all = *self;
        let listed = self.connection_options().any(|option| !is_usual(option));
        let stays = move |name: &str| stays_at_edge(name) || (listed && all.connection_names(name));
        self.iter().filter(move |(name, _)| !stays(name))
    }

    fn connection_names(&self, name: &str) -> bool {
        self.connection_options().any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    }

    fn connection_options(&self) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        let connection = |(name, _): &(&str, _)| name.eq_ignore_ascii_case("connection");
        self.iter().filter(connection).flat_map(|(_, value)| members(value))
    }
}

/// Whether a connection option is one of those that nearly all requests have, and that name no
/// field which would not stay at the edge anyway.
fn is_usual(option: &[u8]) -> bool {
    let usual: [&[u8]; 3] = [b"keep-alive", b"close", b"upgrade"];
    usual.iter().any(|other| option.eq_ignore_ascii_case(other))
}

impl<'b> IntoIterator for Headers<'b> {
    type Item = (&'b str, &'b [u8]);
    type IntoIter = Iter<'b>;

    fn into_iter(self) -> Iter<'b> {
        self.iter()
    }
}

/// A walk over [`Headers`]: `(name, value)`.
#[derive(Debug, Clone)]
pub struct Iter<'b> {
    rest: &'b [u8],
}

impl<'b> Iterator for Iter<'b> {
    type Item = (&'b str, &'b [u8]);

    fn next(&mut self) -> Option<(&'b str, &'b [u8])> {
        let end = memchr(b'\n', self.rest)?;
        let (line, rest) = self.rest.split_at(end + 1);
        self.rest = rest;
        let colon = memchr(b':', line)?;
        let name = std::str::from_utf8(&line[..colon]).ok()?;
        Some((name, line[colon + 1..].trim_ascii()))
    }
}

/// Whether a field of this name concerns the connection or the framing, in requests and responses
/// alike, and so never travels between the edge and the brain.
pub fn stays_at_edge(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    NAMES.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// Whether names of methods and fields may have this byte (RFC 9110 section 5.6.2).
pub fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether the comma-separated list `value` has `token` as a member, whatever the case.
pub(crate) fn list_has(value: &[u8], token: &[u8]) -> bool {
    members(value).any(|member| member.eq_ignore_ascii_case(token))
}

/// The members of a comma-separated list; empty ones are none (RFC 9110 section 5.6.1.2).
pub(crate) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}
