//! A second reader of what clients send, to be compared with the first: written from
//! `protocol/http.md` alone, over whole inputs, one line after the other, without a care for speed.
//! Where the two find different requests, frames or bodies in the same bytes, one of them is wrong;
//! that is what request smuggling lives on (RFC 9112 11.2).
//!
//! It says no reasons: a head, a body or a frame is there, isn't there yet, or is refused.

pub mod frames;
pub mod inflate;

/// The limits of a head, as clauses 1.4 and 1.8 have them.
#[derive(Clone, Copy)]
pub struct Limits {
    pub request_line_bytes_max: usize,
    pub header_bytes_max: usize,
    pub headers_max: usize,
}

/// A head that is accepted.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    pub method: Vec<u8>,
    /// Path and query.
    pub target: Vec<u8>,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Body,
    pub keep_alive: bool,
    /// Where the body begins.
    pub end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    None,
    Length(u64),
    Chunked,
}

/// What a piece of the input is.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// It is there.
    Is(T),
    /// Its end has not come.
    Unfinished,
    Refused,
}

use Verdict::{Is, Refused, Unfinished};

/// The head that `input` begins with.
pub fn head(input: &[u8], limits: &Limits) -> Verdict<Head> {
    let empty = input.chunks(2).take_while(|pair| pair == b"\r\n").count() * 2;
    let Some(lines) = lines_to_empty(&input[empty..]) else { return Unfinished };
    let lines_bytes: usize = lines.iter().map(|line| line.len() + 2).sum();
    let end = empty + lines_bytes + 2;
    let (line, fields) = (lines[0], &lines[1..]);
    let fields_bytes = lines_bytes - line.len();
    let fits = empty + line.len() <= limits.request_line_bytes_max
        && fields_bytes <= limits.header_bytes_max
        && fields.len() <= limits.headers_max;
    match accepted(line, fields) {
        Some(head) if fits => Is(Head { end, ..head }),
        _ => Refused,
    }
}

/// The lines up to the first empty one, without their CR LF; `None` if there is no empty one.
fn lines_to_empty(input: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut lines, mut rest) = (Vec::new(), input);
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        if end == 0 {
            return Some(lines);
        }
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
}

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The head of these lines, whose end is still 0.
fn accepted(line: &[u8], lines: &[&[u8]]) -> Option<Head> {
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [method, target, version] = words[..] else { return None };
    let modern = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ => return None,
    };
    let named = !method.is_empty() && method.len() <= 24 && method.iter().all(is_tchar);
    if !named || method == b"CONNECT" {
        return None;
    }
    let fields: Fields = lines.iter().map(|line| field(line)).collect::<Option<_>>()?;
    let (authority, path) = path(method, target)?;
    let body = framing(&fields, modern)?;
    let hosts = values(&fields, "host");
    let host_fits = match hosts[..] {
        [] => !modern,
        [host] => {
            host.iter().all(is_host_byte) && authority.is_none_or(|named| same_host(&named, host))
        }
        _ => false,
    };
    let expected = values(&fields, "expect");
    let known = expected.iter().all(|value| value.eq_ignore_ascii_case(b"100-continue"));
    let options = members(&values(&fields, "connection"));
    let typed = values(&fields, "content-type").len();
    let content = members(&values(&fields, "content-encoding"));
    let plain = content.iter().all(|coding| coding.eq_ignore_ascii_case(b"identity"));
    let sent = body != Body::None;
    if !host_fits || !known || options.len() > 16 || typed > 1 || sent && !plain {
        return None;
    }
    let has =
        |name: &str| options.iter().any(|option| option.eq_ignore_ascii_case(name.as_bytes()));
    let keep_alive = !has("close") && (modern || has("keep-alive"));
    Some(Head { method: method.to_vec(), target: path, fields, body, keep_alive, end: 0 })
}

/// Clause 1.7.
fn field(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let clean = |byte: &u8| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f;
    let fits = !name.is_empty() && name.iter().all(is_tchar) && value.iter().all(clean);
    fits.then(|| (name.to_vec(), trim(value).to_vec()))
}

/// Clause 1.6: the authority of the absolute form, then path and query.
fn path(method: &[u8], target: &[u8]) -> Option<(Option<Authority>, Vec<u8>)> {
    if target.is_empty() || !target.iter().all(|&byte| byte.is_ascii_graphic() && byte != b'#') {
        return None;
    }
    if target[0] == b'/' || target == b"*" && method == b"OPTIONS" {
        return Some((None, target.to_vec()));
    }
    let lower = target.to_ascii_lowercase();
    let (rest, port) = if lower.starts_with(b"http://") {
        (&target[7..], b":80".as_slice())
    } else if lower.starts_with(b"https://") {
        (&target[8..], b":443".as_slice())
    } else {
        return None;
    };
    let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    if host.is_empty() || !host.iter().all(is_host_byte) {
        return None;
    }
    let root: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
    let authority = Authority { host: host.to_vec(), port: port.to_vec() };
    Some((Some(authority), [root, path].concat()))
}

/// What the absolute form names, and the port that its scheme means without saying it.
struct Authority {
    host: Vec<u8>,
    port: Vec<u8>,
}

/// Clause 1.9: are they one, the scheme's own port aside?
fn same_host(named: &Authority, host: &[u8]) -> bool {
    let bare = |host: &[u8]| {
        let host = host.to_ascii_lowercase();
        host.strip_suffix(named.port.as_slice()).map(<[u8]>::to_vec).unwrap_or(host)
    };
    bare(&named.host) == bare(host)
}

/// Clause 2.
fn framing(fields: &Fields, modern: bool) -> Option<Body> {
    let lengths = values(fields, "content-length");
    let codings = values(fields, "transfer-encoding");
    match (&lengths[..], &codings[..]) {
        ([], []) => Some(Body::None),
        ([length], []) => {
            let text = std::str::from_utf8(length).ok()?;
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            match text.parse().ok().filter(|_| digits)? {
                0 => Some(Body::None),
                length => Some(Body::Length(length)),
            }
        }
        ([], [_]) if modern => {
            trim(codings[0]).eq_ignore_ascii_case(b"chunked").then_some(Body::Chunked)
        }
        _ => None,
    }
}

/// The chunked body that `input` begins with, and where it ends (clauses 2.6 and 2.7).
pub fn chunked(input: &[u8]) -> Verdict<(Vec<u8>, usize)> {
    let (mut body, mut at, mut extensions) = (Vec::new(), 0, 0);
    loop {
        let Some(line) = line(&input[at..]) else { return Unfinished };
        at += line.len() + 2;
        let Some((size, extension)) = chunk_size(line) else { return Refused };
        extensions += extension;
        if extensions > 4_096 {
            return Refused;
        }
        if size == 0 {
            break;
        }
        let Some(end) = usize::try_from(size).ok().and_then(|size| at.checked_add(size)) else {
            return Unfinished;
        };
        match input.get(end..end.saturating_add(2)) {
            None => return Unfinished,
            Some(b"\r\n") => body.extend_from_slice(&input[at..end]),
            Some(_) => return Refused,
        }
        at = end + 2;
    }
    let Some(trailers) = lines_to_empty(&input[at..]) else { return Unfinished };
    // A line's LF is not counted, nor is the first byte of its name.
    let counted: usize = trailers.iter().map(|line| line.len()).sum();
    if counted > 8_192 || !trailers.iter().all(|line| field(line).is_some()) {
        return Refused;
    }
    let trailers_bytes: usize = trailers.iter().map(|line| line.len() + 2).sum();
    Is((body, at + trailers_bytes + 2))
}

fn line(input: &[u8]) -> Option<&[u8]> {
    let end = input.windows(2).position(|pair| pair == b"\r\n")?;
    Some(&input[..end])
}

/// The size and how many bytes of the line, its CR included, count as extension.
fn chunk_size(line: &[u8]) -> Option<(u64, usize)> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, extension) = line.split_at(digits);
    let size = std::str::from_utf8(size).ok()?;
    let size = u64::from_str_radix(size, 16).ok().filter(|_| digits <= 16)?;
    if extension.is_empty() {
        return Some((size, 0));
    }
    let blank = extension.iter().take_while(|byte| b" \t".contains(byte)).count();
    let fits = extension.get(blank) == Some(&b';') && extensions(&extension[blank..]);
    // All but the semicolon itself, and the CR.
    fits.then_some((size, extension.len()))
}

/// RFC 9112 7.1.1, one extension after the other; nothing may follow the last.
fn extensions(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Some(named) = skip_blank(rest).strip_prefix(b";") else { return false };
        let named = skip_blank(named);
        let name = named.iter().take_while(|byte| is_tchar(byte)).count();
        if name == 0 {
            return false;
        }
        rest = &named[name..];
        let Some(value) = skip_blank(rest).strip_prefix(b"=") else { continue };
        let value = skip_blank(value);
        let length = if value.starts_with(b"\"") {
            quoted(value)
        } else {
            value.iter().take_while(|byte| is_tchar(byte)).count()
        };
        if length == 0 {
            return false;
        }
        rest = &value[length..];
    }
    true
}

/// The length of the quoted string at the beginning, 0 if it has no end.
fn quoted(text: &[u8]) -> usize {
    let mut at = 1;
    loop {
        match text.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 1,
            Some(_) => {}
            None => return 0,
        }
        if text.get(at).is_none_or(|byte| *byte != b'\t' && byte.is_ascii_control()) {
            return 0;
        }
        at += 1;
    }
}

fn skip_blank(text: &[u8]) -> &[u8] {
    let blank = text.iter().take_while(|byte| b" \t".contains(byte)).count();
    &text[blank..]
}

/// The values of all fields of this name.
fn values<'f>(fields: &'f Fields, name: &str) -> Vec<&'f [u8]> {
    let named = fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
    named.map(|(_, value)| value.as_slice()).collect()
}

/// The members of lists; empty ones are none.
fn members<'v>(values: &[&'v [u8]]) -> Vec<&'v [u8]> {
    let all = values.iter().flat_map(|value| value.split(|&byte| byte == b','));
    all.map(trim).filter(|member| !member.is_empty()).collect()
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

fn is_tchar(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

fn is_host_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=:[]".contains(byte)
}
