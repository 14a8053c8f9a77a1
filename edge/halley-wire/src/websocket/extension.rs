//! The one extension that is spoken: `permessage-deflate` (RFC 7692), and how it is agreed on.
//!
//! A client makes offers in `Sec-WebSocket-Extensions`, in the order in which it likes them; the
//! first that can be kept to the letter is accepted, an offer with anything else in it is declined
//! as a whole (RFC 7692 sections 5 and 7.1). Each message is compressed by itself in both
//! directions, so that nothing is kept between messages: the answer always says
//! `server_no_context_takeover` and `client_no_context_takeover`, which a server may ask for
//! though the offer doesn't name it (7.1.1.2).
//!
//! Bounds: none of its own; the header lines have theirs.

use std::borrow::Cow;

use crate::http1::head::Request;
use crate::http1::headers::is_tchar;

const NAME: &[u8] = b"permessage-deflate";
/// The parameters of an offer (7.1), by their places in [`agree`].
const PARAMETERS: [&[u8]; 4] = [
    b"server_no_context_takeover",
    b"client_no_context_takeover",
    b"server_max_window_bits",
    b"client_max_window_bits",
];
const SERVER_BITS: usize = 2;
const CLIENT_BITS: usize = 3;

/// The window of what this side compresses, as a power of two.
pub(super) const WINDOW_BITS: u8 = 12;
/// The bound that is kept for a client that allows less than [`WINDOW_BITS`]. Whatever compresses
/// a message refers to nothing before it, so a message that is no longer needs no larger window.
const NARROW_BITS: u8 = 9;

/// What both sides agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// The client says nothing about windows.
    Usual,
    /// The client allows a window of 4,096 bytes or more.
    Bounded,
    /// The client allows a window of 512 bytes or a little more: only messages that are no longer
    /// are compressed for it.
    Narrow,
}

impl Agreement {
    /// The value of the answer's `Sec-WebSocket-Extensions`.
    pub fn value(self) -> &'static str {
        match self {
            Agreement::Usual => {
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
            }
            Agreement::Bounded => {
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
                 server_max_window_bits=12"
            }
            Agreement::Narrow => {
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
                 server_max_window_bits=9"
            }
        }
    }

    /// Bytes of the longest message that may be compressed.
    pub fn compressed_bytes_max(self) -> usize {
        match self {
            Agreement::Usual | Agreement::Bounded => usize::MAX,
            Agreement::Narrow => 1 << NARROW_BITS,
        }
    }
}

/// What a client's offers come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offers {
    /// It offers no compression.
    None,
    /// It does, but nothing that can be accepted.
    Declined,
    /// The first of its offers that can be kept.
    Accepted(Agreement),
}

impl Offers {
    /// Those of a request.
    pub fn of(request: &Request<'_>) -> Offers {
        let named = |(name, _): &(&str, _)| name.eq_ignore_ascii_case("sec-websocket-extensions");
        Offers::in_lines(request.headers.iter().filter(named).map(|(_, value)| value))
    }

    /// Those in the values of all the request's `Sec-WebSocket-Extensions` lines, which are one
    /// list (RFC 6455 section 9.1).
    pub fn in_lines<'h>(lines: impl Iterator<Item = &'h [u8]>) -> Offers {
        let mut offers = Offers::None;
        for extension in lines.flat_map(|line| split(line, b',')) {
            let mut parts = split(extension, b';').map(<[u8]>::trim_ascii);
            if parts.next() == Some(NAME) {
                if let Some(agreement) = agree(parts) {
                    return Offers::Accepted(agreement);
                }
                offers = Offers::Declined;
            }
        }
        offers
    }
}

/// What is agreed on by accepting an offer with these parameters; `None` declines it.
fn agree<'o>(parameters: impl Iterator<Item = &'o [u8]>) -> Option<Agreement> {
    let mut agreement = Agreement::Usual;
    let mut seen = [false; PARAMETERS.len()];
    for parameter in parameters {
        let (name, value) = name_and_value(parameter)?;
        let place = PARAMETERS.iter().position(|known| *known == name)?;
        if std::mem::replace(&mut seen[place], true) {
            return None;
        }
        match (place, value) {
            (SERVER_BITS, Some(value)) => {
                agreement = match window_bits(&value)? {
                    WINDOW_BITS.. => Agreement::Bounded,
                    NARROW_BITS.. => Agreement::Narrow,
                    _ => return None,
                }
            }
            // What the client compresses is read with the largest window, whatever it offers.
            (CLIENT_BITS, Some(value)) => {
                window_bits(&value)?;
            }
            (SERVER_BITS, None) => return None,
            (CLIENT_BITS, None) => {}
            (_, Some(_)) => return None,
            (_, None) => {}
        }
    }
    Some(agreement)
}

/// "A decimal integer value without leading zeroes between 8 to 15, inclusive" (7.1.2).
fn window_bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

/// A name, and a value if there is one.
type Parameter<'p> = (&'p [u8], Option<Cow<'p, [u8]>>);

/// `token [ "=" ( token | quoted-string ) ]` (RFC 6455 section 9.1, with the white space that
/// RFC 2616 allows around separators); `None` for what isn't that.
fn name_and_value(parameter: &[u8]) -> Option<Parameter<'_>> {
    let Some(equals) = parameter.iter().position(|&byte| byte == b'=') else {
        return Some((parameter, None));
    };
    let (name, value) = (parameter[..equals].trim_ascii(), parameter[equals + 1..].trim_ascii());
    let value = match value {
        [b'"', quoted @ .., b'"'] => Cow::Owned(unquoted(quoted)?),
        plain => Cow::Borrowed(plain),
    };
    let is_token = !value.is_empty() && value.iter().all(|&byte| is_tchar(byte));
    is_token.then_some((name, Some(value)))
}

/// What stands between quotes, its escapes taken away.
fn unquoted(quoted: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    let mut bytes = quoted.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => return None,
            b'\\' => value.push(*bytes.next()?),
            _ => value.push(byte),
        }
    }
    Some(value)
}

/// The parts of a list; a separator within quotes separates nothing.
fn split(list: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    list.split(move |&byte| {
        if escaped {
            escaped = false;
        } else if quoted && byte == b'\\' {
            escaped = true;
        } else if byte == b'"' {
            quoted = !quoted;
        } else {
            return !quoted && byte == separator;
        }
        false
    })
}
