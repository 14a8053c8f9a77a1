//! Requests for a session whose parameters stand in a body (`protocol/http.md` 28.2): an address
//! has room for some dozens of subjects, a form for all that a session may have.
//!
//! The whole body is read before anything is decided. It then stands behind the target as if it
//! were its query, so a form has the same parameters, checks and errors as an address.
//!
//! Bounds: a head, and [`FORM_BYTES_MAX`] with one read more.

use halley_wire::HttpError;
use halley_wire::http1::chunked::ChunkedDecoder;
use halley_wire::http1::head::{BodyFraming, Request};

/// Longest form: room for a hundred subjects of 255 bytes that are all escaped, with a cursor and a
/// token.
pub const FORM_BYTES_MAX: usize = 131_072;

const MEDIA_TYPE: &[u8] = b"application/x-www-form-urlencoded";

const NOT_A_FORM: HttpError = HttpError::new(
    415,
    "unsupported_media_type",
    "The parameters of a stream or a poll stand in its address, or in a body of the type \
     application/x-www-form-urlencoded, as user=ann&subject=a&subject=b.",
);
const TOO_LONG: HttpError = HttpError::new(
    413,
    "body_too_large",
    "A form for a stream or a poll has 131,072 bytes at most: name fewer subjects.",
);
const BAD_FORM: HttpError = HttpError::new(
    400,
    "bad_form",
    "A form has visible ASCII alone: write each other byte as % and two hexadecimal digits.",
);

/// A form that is being read.
pub struct Form {
    /// Of its request, to be read again when the form is whole.
    pub head: Vec<u8>,
    body: Vec<u8>,
    rest: Rest,
}

/// What is to come.
enum Rest {
    Length(u64),
    Chunked(ChunkedDecoder),
}

impl Form {
    /// The form of a request, nothing of which has been read.
    ///
    /// # Errors
    /// 413 and 415 for a body that won't be read.
    pub fn of(req: &Request<'_>, head: &[u8]) -> Result<Form, HttpError> {
        let rest = match req.body {
            BodyFraming::None => Rest::Length(0),
            BodyFraming::Length(length) if length > FORM_BYTES_MAX as u64 => return Err(TOO_LONG),
            BodyFraming::Length(length) => Rest::Length(length),
            BodyFraming::Chunked => Rest::Chunked(ChunkedDecoder::new()),
        };
        if req.body != BodyFraming::None && !is_form(req.header("content-type")) {
            return Err(NOT_A_FORM);
        }
        Ok(Form { head: head.to_vec(), body: Vec::new(), rest })
    }

    /// Reads on. Gives how many bytes belong to the form, and whether it is whole.
    ///
    /// # Errors
    /// 400 for what is no body, 413 for one that is too long.
    pub fn read(&mut self, input: &[u8]) -> Result<(usize, bool), HttpError> {
        let (used, is_whole) = match &mut self.rest {
            Rest::Length(left) => {
                let used = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                self.body.extend_from_slice(&input[..used]);
                *left -= used as u64;
                (used, *left == 0)
            }
            Rest::Chunked(decoder) => decoder.decode_all(input, &mut self.body)?,
        };
        if self.body.len() > FORM_BYTES_MAX { Err(TOO_LONG) } else { Ok((used, is_whole)) }
    }

    /// The target with the form behind it, as a part of its query.
    ///
    /// # Errors
    /// 400 for bytes that no address has (1.6).
    pub fn target(&self, target: &str) -> Result<String, HttpError> {
        let form = std::str::from_utf8(&self.body).map_err(|_| BAD_FORM)?;
        if !form.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BAD_FORM);
        }
        let between = match target.contains('?') {
            _ if form.is_empty() => "",
            true => "&",
            false => "?",
        };
        Ok([target, between, form].concat())
    }
}

/// Is this `Content-Type` that of a form, whatever parameters it has?
fn is_form(content_type: Option<&[u8]>) -> bool {
    let named = content_type.unwrap_or_default().split(|byte| *byte == b';').next();
    named.is_some_and(|named| named.trim_ascii().eq_ignore_ascii_case(MEDIA_TYPE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// http.md 28.2
    #[test]
    fn a_form_is_a_part_of_the_query() {
        let form =
            |body: &[u8]| Form { head: Vec::new(), body: body.to_vec(), rest: Rest::Length(0) };
        for (target, body, whole) in [
            ("/v1/poll", "subject=a&subject=b%20c", "/v1/poll?subject=a&subject=b%20c"),
            ("/v1/poll?user=u", "subject=a", "/v1/poll?user=u&subject=a"),
            ("/v1/poll?", "a?b#c", "/v1/poll?&a?b#c"),
            ("/v1/poll?user=u", "", "/v1/poll?user=u"),
            ("/v1/poll", "", "/v1/poll"),
        ] {
            assert_eq!(form(body.as_bytes()).target(target).as_deref(), Ok(whole));
        }
        for body in ["subject=a b", "subject=a\r\n", "subject=é", "\0", "\u{7f}"] {
            assert_eq!(form(body.as_bytes()).target("/v1/poll"), Err(BAD_FORM), "{body:?}");
        }
        assert_eq!(form(b"subject=\xff").target("/v1/poll"), Err(BAD_FORM));
    }

    #[test]
    fn its_type_may_have_parameters() {
        for (content_type, is) in [
            ("application/x-www-form-urlencoded", true),
            ("Application/X-WWW-Form-urlencoded ; charset=UTF-8", true),
            ("application/x-www-form-urlencoded2", false),
            ("application/json", false),
            ("", false),
        ] {
            assert_eq!(is_form(Some(content_type.as_bytes())), is, "{content_type}");
        }
        assert!(!is_form(None));
    }

    #[test]
    fn a_form_ends_where_its_framing_says() {
        let mut form = Form { head: Vec::new(), body: Vec::new(), rest: Rest::Length(3) };
        assert_eq!(form.read(b"a="), Ok((2, false)));
        assert_eq!(form.read(b"1GET"), Ok((1, true)));
        let rest = Rest::Chunked(ChunkedDecoder::new());
        let mut form = Form { head: Vec::new(), body: Vec::new(), rest };
        assert_eq!(form.read(b"2\r\na=\r\n"), Ok((7, false)));
        assert_eq!(form.read(b"1\r\n1\r\n0\r\n\r\nGET"), Ok((11, true)));
        assert_eq!(form.target("/").as_deref(), Ok("/?a=1"));
        let chunk = [b"8000\r\n".as_slice(), &[b'a'; 32_768], b"\r\n"].concat();
        let mut form =
            Form { head: Vec::new(), body: Vec::new(), rest: Rest::Chunked(ChunkedDecoder::new()) };
        for _ in 0..4 {
            assert_eq!(form.read(&chunk), Ok((chunk.len(), false)));
        }
        assert_eq!(form.read(b"1\r\na"), Err(TOO_LONG));
    }
}
