//! Conclusions from a whole head: framing, persistence, expectation, upgrade.
//!
//! Everything that two parsers could read differently is refused, not repaired: an attacker's
//! request inside a body must stay a body (RFC 9112 sections 6.3 and 11.2).

use httparse::Header;

use super::head::{BodyFraming, Version};
use super::headers::{list_has, members};
use crate::HttpError;

/// Options that the `Connection` fields of a request may have together.
const CONNECTION_OPTIONS_MAX: usize = 16;

/// See the fields of the same names in [`super::head::Request`].
pub(super) struct Conclusions {
    pub body: BodyFraming,
    pub keep_alive: bool,
    pub expect_continue: bool,
    pub upgrade_websocket: bool,
}

/// The authority of a target in absolute form.
#[derive(Clone, Copy)]
pub(super) struct Authority<'b> {
    pub host: &'b str,
    /// The scheme's own port, as `:80`.
    pub scheme_port: &'static str,
}

impl Authority<'_> {
    /// Whether a `Host` of this value names the same, the scheme's own port aside.
    fn is(&self, host: &[u8]) -> bool {
        let port = self.scheme_port.as_bytes();
        let own = self.host.as_bytes();
        let bare = |host| <[u8]>::strip_suffix(host, port).unwrap_or(host).to_ascii_lowercase();
        bare(own) == bare(host)
    }
}

/// The fields that matter here, gathered in one walk.
#[derive(Default)]
struct Gathered<'b> {
    authority: Option<Authority<'b>>,
    hosts: usize,
    content_length: Option<u64>,
    transfer_codings: usize,
    content_types: usize,
    content_coded: bool,
    connection_options: usize,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    websocket: bool,
    expect_continue: bool,
}

impl Conclusions {
    /// # Errors
    /// 400 for `Host`, `Content-Type` and the framing fields, 413 for a length above 64 bits, 415
    /// for a content coding, 417 for an unknown expectation, 501 for an unknown transfer coding.
    pub fn of(
        version: Version,
        authority: Option<Authority<'_>>,
        headers: &[Header<'_>],
    ) -> Result<Conclusions, HttpError> {
        let mut gathered = Gathered { authority, ..Gathered::default() };
        for header in headers {
            gathered.take(header)?;
        }
        let modern = version == Version::Http11;
        if gathered.hosts == 0 && modern {
            return Err(BAD_HOST);
        }
        let body = gathered.framing(modern)?;
        if gathered.content_coded && body != BodyFraming::None {
            return Err(HttpError::new(
                415,
                "content_coding_unknown",
                "The request's body has a content coding; send it as it is, without \
                 Content-Encoding.",
            ));
        }
        Ok(Conclusions {
            body,
            keep_alive: !gathered.close && (modern || gathered.keep_alive),
            // RFC 9110 section 10.1.1: ignored from HTTP/1.0 and without a body.
            expect_continue: gathered.expect_continue && modern && body != BodyFraming::None,
            // RFC 9110 section 7.8: ignored from HTTP/1.0.
            upgrade_websocket: gathered.upgrade && gathered.websocket && modern,
        })
    }
}

impl Gathered<'_> {
    fn take(&mut self, header: &Header<'_>) -> Result<(), HttpError> {
        let (name, value) = (header.name, header.value);
        // The lengths keep most fields from being compared at all.
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => self.host(value),
            6 if name.eq_ignore_ascii_case("expect") => self.expectation(value),
            7 if name.eq_ignore_ascii_case("upgrade") => {
                self.websocket |= list_has(value, b"websocket");
                Ok(())
            }
            10 if name.eq_ignore_ascii_case("connection") => self.connection(value),
            12 if name.eq_ignore_ascii_case("content-type") => self.content_type(),
            14 if name.eq_ignore_ascii_case("content-length") => self.content_length(value),
            16 if name.eq_ignore_ascii_case("content-encoding") => {
                let is_coding = |coding: &[u8]| !coding.eq_ignore_ascii_case(b"identity");
                self.content_coded |= members(value).any(is_coding);
                Ok(())
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => self.transfer_encoding(value),
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), HttpError> {
        self.hosts += 1;
        if self.hosts > 1 || !value.iter().all(|&byte| is_host_byte(byte)) {
            return Err(BAD_HOST);
        }
        // RFC 9112 section 3.2.2 has the target win. Where the two differ somebody on the way may
        // have gone by the other, so neither does.
        if self.authority.is_some_and(|authority| !authority.is(value)) {
            return Err(HttpError::new(
                400,
                "bad_host",
                "The request's target names another host than its Host header; send the path \
                 alone, or the same host in both.",
            ));
        }
        Ok(())
    }

    fn content_type(&mut self) -> Result<(), HttpError> {
        self.content_types += 1;
        if self.content_types > 1 {
            return Err(HttpError::new(
                400,
                "bad_content_type",
                "Content-Type is given more than once; give it once.",
            ));
        }
        Ok(())
    }

    fn expectation(&mut self, value: &[u8]) -> Result<(), HttpError> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(HttpError::new(
                417,
                "expectation_unknown",
                "The only expectation that this server supports is 100-continue.",
            ));
        }
        self.expect_continue = true;
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) -> Result<(), HttpError> {
        for option in members(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
            self.connection_options += 1;
        }
        // Every field is compared with every option: without a bound a head of many options would
        // cost milliseconds.
        if self.connection_options > CONNECTION_OPTIONS_MAX {
            return Err(HttpError::new(
                400,
                "bad_connection",
                "The Connection header has more than 16 options; name fewer.",
            ));
        }
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), HttpError> {
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return Err(BAD_CONTENT_LENGTH);
        }
        let length = value.iter().try_fold(0_u64, |length, digit| {
            length.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        });
        let Some(length) = length else {
            return Err(HttpError::new(
                413,
                "body_too_large",
                "The content-length is larger than any body that this server reads.",
            ));
        };
        // Also where both name the same length: whoever sends two is confused or an attacker.
        if self.content_length.replace(length).is_some() {
            return Err(BAD_CONTENT_LENGTH);
        }
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), HttpError> {
        let before = self.transfer_codings;
        // RFC 9110 section 5.6.1.2 has a list's empty elements ignored. Others on the way may not
        // know that, and conclude another end of the body.
        let is_listed = value.contains(&b',');
        for coding in members(value) {
            if !coding.eq_ignore_ascii_case(b"chunked") {
                return Err(HttpError::new(
                    501,
                    "transfer_coding_unknown",
                    "The only transfer coding that this server reads is chunked.",
                ));
            }
            self.transfer_codings += 1;
        }
        if self.transfer_codings != 1 || before != 0 || is_listed {
            return Err(HttpError::new(
                400,
                "bad_transfer_encoding",
                "Transfer-Encoding must be given once and be chunked.",
            ));
        }
        Ok(())
    }

    fn framing(&self, modern: bool) -> Result<BodyFraming, HttpError> {
        match (self.transfer_codings, self.content_length) {
            (0, None | Some(0)) => Ok(BodyFraming::None),
            (0, Some(length)) => Ok(BodyFraming::Length(length)),
            (_, Some(_)) => Err(HttpError::new(
                400,
                "ambiguous_framing",
                "The request has both Content-Length and Transfer-Encoding; send one of them.",
            )),
            (_, None) if !modern => Err(HttpError::new(
                400,
                "bad_transfer_encoding",
                "HTTP/1.0 has no Transfer-Encoding; send Content-Length, or use HTTP/1.1.",
            )),
            (_, None) => Ok(BodyFraming::Chunked),
        }
    }
}

const BAD_HOST: HttpError = HttpError::new(
    400,
    "bad_host",
    "A request of HTTP/1.1 needs exactly one Host header: a name or an address, perhaps a port.",
);
const BAD_CONTENT_LENGTH: HttpError = HttpError::new(
    400,
    "bad_content_length",
    "Content-Length must be given once, as a decimal number.",
);

/// The bytes of `uri-host [":" port]` (RFC 3986 section 3.2.2). That their order makes sense is
/// not checked: nothing here depends on it.
pub(super) fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=:[]".contains(&byte)
}
