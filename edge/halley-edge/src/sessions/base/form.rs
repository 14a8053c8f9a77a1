//! Requests for a session whose parameters stand in a body (`protocol/http.md` 28.2): an address
//! has room for some dozens of subjects, a form for all that a session may have.
//!
//! The whole body is read before anything is decided. It then stands behind the target as if it
//! were its query, so a form has the same parameters, checks and errors as an address.
//!
//! Bounds: [`FORM_BYTES_MAX`] a form, and [`FORMS_BYTES_MAX`] for all of a worker that wait for
//! their rest: anyone can begin a form, whose user is known when it is whole. One that comes whole
//! waits for nothing, so it is read however much the others have.

use std::cell::Cell;
use std::rc::Rc;

use halley_wire::HttpError;
use halley_wire::http1::chunked::ChunkedDecoder;
use halley_wire::http1::head::{BodyFraming, Request};

/// Longest form: room for a hundred subjects of 255 bytes that are all escaped, with a cursor and a
/// token.
pub const FORM_BYTES_MAX: usize = 131_072;

/// What all forms of a worker that wait for their rest have in memory, with their heads.
pub const FORMS_BYTES_MAX: usize = 16_777_216;

/// By so much the place for a form grows at least, unless its end is nearer: a form of single bytes
/// is copied 128 times, and has a place for 1,023 bytes too many at most.
const STEP_BYTES: usize = 1_024;

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
/// Answer to a form that would wait beyond [`FORMS_BYTES_MAX`].
pub const FORMS_FULL: HttpError = HttpError::new(
    503,
    "forms_bytes_max",
    "The forms that wait here for their rest have as many bytes as they may together: come back \
     after Retry-After, or name the subjects in the address.",
);

/// How many bytes the forms of a worker that wait for their rest have in memory.
#[derive(Clone, Default)]
pub struct Forms(Rc<Cell<usize>>);

impl Forms {
    /// All together.
    pub fn bytes(&self) -> usize {
        self.0.get()
    }
}

/// A form's part of them. It is given back when the form goes, in whatever way its connection ends.
pub struct Part {
    of: Forms,
    bytes: usize,
}

impl Part {
    /// Of these; it has nothing yet.
    pub fn of(forms: &Forms) -> Part {
        Part { of: forms.clone(), bytes: 0 }
    }

    /// From now on the form has so many bytes.
    ///
    /// # Errors
    /// [`FORMS_FULL`] where the others have all the room.
    pub fn becomes(&mut self, bytes: usize) -> Result<(), HttpError> {
        let all = self.of.bytes() - self.bytes + bytes;
        if all > FORMS_BYTES_MAX {
            return Err(FORMS_FULL);
        }
        self.of.0.set(all);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.of.0.set(self.of.bytes() - self.bytes);
    }
}

/// A form that is being read.
pub struct Form {
    /// Of its request, to be read again when the form is whole.
    pub head: Vec<u8>,
    body: Vec<u8>,
    rest: Rest,
    part: Part,
}

/// What is to come.
enum Rest {
    Length(u64),
    Chunked(ChunkedDecoder),
}

impl Form {
    /// The form of a request, nothing of which has been read; it counts among these.
    ///
    /// # Errors
    /// 413 and 415 for a body that won't be read.
    pub fn of(req: &Request<'_>, head: &[u8], forms: &Forms) -> Result<Form, HttpError> {
        let rest = match req.body {
            BodyFraming::None => Rest::Length(0),
            BodyFraming::Length(length) if length > FORM_BYTES_MAX as u64 => return Err(TOO_LONG),
            BodyFraming::Length(length) => Rest::Length(length),
            BodyFraming::Chunked => Rest::Chunked(ChunkedDecoder::new()),
        };
        if req.body != BodyFraming::None && !is_form(req.header("content-type")) {
            return Err(NOT_A_FORM);
        }
        Ok(Form::new(head, rest, forms))
    }

    fn new(head: &[u8], rest: Rest, forms: &Forms) -> Form {
        Form { head: head.to_vec(), body: Vec::new(), rest, part: Part::of(forms) }
    }

    /// Reads on. Gives how many bytes belong to the form, and whether it is whole.
    ///
    /// # Errors
    /// 400 for what is no body, 413 for one that is too long, [`FORMS_FULL`] for one that would
    /// wait where others have all the room.
    pub fn read(&mut self, input: &[u8]) -> Result<(usize, bool), HttpError> {
        match &mut self.rest {
            Rest::Length(left) => {
                let used = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= used as u64;
                let (left, is_whole) = (*left as usize, *left == 0);
                self.add(&input[..used], left, is_whole)?;
                Ok((used, is_whole))
            }
            Rest::Chunked(decoder) => {
                let mut data = Vec::new();
                let (used, is_whole) = decoder.decode_all(input, &mut data)?;
                let left = FORM_BYTES_MAX.checked_sub(self.body.len() + data.len());
                self.add(&data, left.ok_or(TOO_LONG)?, is_whole)?;
                Ok((used, is_whole))
            }
        }
    }

    /// Puts bytes behind the others, of which so many may follow.
    fn add(&mut self, data: &[u8], left: usize, is_whole: bool) -> Result<(), HttpError> {
        let bytes = self.body.len() + data.len();
        let place = bytes.next_multiple_of(STEP_BYTES).min(bytes + left);
        let place = place.max(self.body.capacity());
        if !is_whole {
            self.part.becomes(self.head.len() + place)?;
        }
        self.body.reserve_exact(place - self.body.len());
        self.body.extend_from_slice(data);
        Ok(())
    }

    /// The target with the form behind it, as a part of its query.
    ///
    /// # Errors
    /// 400 for bytes that no address has (1.6).
    pub fn target(&self, target: &str) -> Result<String, HttpError> {
        joined(target, std::str::from_utf8(&self.body).map_err(|_| BAD_FORM)?)
    }
}

/// The target with a form behind it, as a part of its query.
///
/// # Errors
/// 400 for bytes that no address has (1.6).
pub fn joined(target: &str, form: &str) -> Result<String, HttpError> {
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
        let form = |body: &[u8]| {
            let mut form = Form::new(b"", Rest::Length(body.len() as u64), &Forms::default());
            assert_eq!(form.read(body), Ok((body.len(), true)));
            form
        };
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
        let forms = Forms::default();
        let mut form = Form::new(b"", Rest::Length(3), &forms);
        assert_eq!(form.read(b"a="), Ok((2, false)));
        assert_eq!(form.read(b"1GET"), Ok((1, true)));
        let mut form = Form::new(b"", Rest::Chunked(ChunkedDecoder::new()), &forms);
        assert_eq!(form.read(b"2\r\na=\r\n"), Ok((7, false)));
        assert_eq!(form.read(b"1\r\n1\r\n0\r\n\r\nGET"), Ok((11, true)));
        assert_eq!(form.target("/").as_deref(), Ok("/?a=1"));
        let chunk = [b"8000\r\n".as_slice(), &[b'a'; 32_768], b"\r\n"].concat();
        let mut form = Form::new(b"", Rest::Chunked(ChunkedDecoder::new()), &forms);
        for _ in 0..4 {
            assert_eq!(form.read(&chunk), Ok((chunk.len(), false)));
        }
        assert_eq!(form.read(b"1\r\na"), Err(TOO_LONG));
    }

    /// "with their heads", "unless its end is nearer": what is counted is what is allocated, while
    /// a form waits, and nothing afterwards.
    #[test]
    fn what_waits_is_counted() {
        let forms = Forms::default();
        let chunked = || Rest::Chunked(ChunkedDecoder::new());
        let mut form = Form::new(b"head", Rest::Length(1_500), &forms);
        assert_eq!(forms.bytes(), 0);
        for (read, counted) in [(0, 4), (1, 1_028), (1_023, 1_028), (1, 1_504), (474, 1_504)] {
            assert_eq!(form.read(&vec![b'a'; read]), Ok((read, false)));
            assert_eq!(forms.bytes(), counted);
            assert_eq!(forms.bytes(), form.head.capacity() + form.body.capacity());
        }
        let mut other = Form::new(b"", chunked(), &forms);
        assert_eq!(other.read(b"2\r\naa"), Ok((5, false)));
        assert_eq!((forms.bytes(), other.body.capacity()), (2_528, 1_024));
        assert!(other.read(b"\r\nx").is_err());
        drop(other);
        assert_eq!(form.read(b"a"), Ok((1, true)));
        drop(form);
        assert_eq!(forms.bytes(), 0);
    }

    /// "for all of a worker that wait for their rest"; "one that comes whole waits for nothing".
    #[test]
    fn all_together_have_a_bound() {
        let forms = Forms::default();
        let most = FORM_BYTES_MAX as u64;
        let long = vec![b'a'; FORM_BYTES_MAX - 1];
        let begun = || {
            let mut form = Form::new(b"", Rest::Length(most), &forms);
            form.read(&long).map(|_| form)
        };
        let mut all: Vec<Form> = (0..128).map_while(|_| begun().ok()).collect();
        assert_eq!((all.len(), forms.bytes()), (128, FORMS_BYTES_MAX));
        assert_eq!(begun().err(), Some(FORMS_FULL));
        let mut empty = Form::new(b"head", Rest::Length(1), &forms);
        assert_eq!(empty.read(b""), Err(FORMS_FULL));
        assert_eq!(empty.read(b"a"), Ok((1, true)));
        assert_eq!(forms.bytes(), FORMS_BYTES_MAX);
        assert_eq!(all[0].read(b"a"), Ok((1, true)));
        all.truncate(127);
        assert!(begun().is_ok());
        drop(all);
        assert_eq!(forms.bytes(), 0);
    }
}
