//! Reads the answers of HTTP servers: a head and a body that is whole.

use std::borrow::Cow;

use memchr::memmem;

use super::protocol::BadAnswer;
use crate::clients::framing::chunk;

/// The head of an answer may have this many headers.
const HEADERS_MAX: usize = 64;
/// The longest answer that is read.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// One answer.
#[derive(Debug)]
pub struct Http<'a> {
    /// Its status.
    pub status: u16,
    /// Its body, without chunks.
    pub body: Cow<'a, [u8]>,
    /// Whether the server closes the connection after it.
    pub close: bool,
    /// Its length with head and body: how much of the input it was.
    pub bytes: usize,
}

/// Reads the first answer in `bytes`; `None` if it isn't whole.
///
/// # Errors
/// If it isn't an HTTP/1.1 response whose length can be known.
pub fn read(bytes: &[u8]) -> Result<Option<Http<'_>>, BadAnswer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("not an HTTP/1.1 response".into()),
    };
    let header = |name: &str| {
        let found = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        found.and_then(|h| std::str::from_utf8(h.value).ok()).map(str::trim)
    };
    let status = response.code.unwrap_or(0);
    let close = header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let chunks = header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
    let (body, bytes) = if chunks {
        let Some((body, end)) = read_chunks(bytes, head)? else { return Ok(None) };
        (Cow::Owned(body), end)
    } else {
        // RFC 9110, 15.3.5: a 204 has no body, whatever else it says.
        let length = if status == 204 { Some("0") } else { header("content-length") };
        let length = length.and_then(|value| value.parse().ok());
        let length = length.filter(|&length: &usize| length <= ANSWER_BYTES_MAX);
        let length = length.ok_or("an answer without a usable Content-Length")?;
        let Some(body) = bytes.get(head..head + length) else { return Ok(None) };
        (Cow::Borrowed(body), head + length)
    };
    Ok(Some(Http { status, body, close, bytes }))
}

/// The body from `start` on, and where it ends.
fn read_chunks(bytes: &[u8], start: usize) -> Result<Option<(Vec<u8>, usize)>, BadAnswer> {
    let (mut body, mut end) = (Vec::new(), start);
    while let Some((piece, length)) = chunk(&bytes[end..])? {
        end += length;
        if piece.is_empty() {
            return Ok(Some((body, end)));
        }
        body.extend_from_slice(piece);
    }
    Ok(None)
}

/// How often `name` is followed by a number, and the sum of these numbers.
#[must_use]
pub fn sum_after(name: &[u8], body: &[u8]) -> (u64, u64) {
    memmem::find_iter(body, name).fold((0, 0), |(count, sum), at| {
        let digits = body[at + name.len()..].iter().skip_while(|byte| **byte == b' ');
        let number = digits.take_while(|byte| byte.is_ascii_digit()).take(18);
        let number = number.fold(0, |n, digit| n * 10 + u64::from(digit - b'0'));
        (count + 1, u64::saturating_add(sum, number))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn bodies_have_their_length_or_chunks_or_none() {
        for (answer, body) in [
            ("HTTP/1.1 201 Created\r\ncontent-length: 3 \r\n\r\nabc", "abc"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                 2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
                "abc",
            ),
            ("HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n", ""),
        ] {
            let two = answer.repeat(2);
            for cut in 0..answer.len() {
                assert!(read(&two.as_bytes()[..cut]).unwrap().is_none(), "{answer} cut at {cut}");
            }
            let read = read(two.as_bytes()).unwrap().unwrap();
            assert_eq!((&*read.body, read.bytes), (body.as_bytes(), answer.len()));
            assert!(!read.close);
        }
        let closed = b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n";
        assert!(read(closed).unwrap().unwrap().close);
    }

    #[test]
    fn nonsense_is_an_error() {
        for bytes in [
            "nonsense\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 70000000\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        ] {
            assert!(read(bytes.as_bytes()).is_err(), "{bytes}");
        }
    }

    #[test]
    fn numbers_are_summed() {
        assert_eq!(sum_after(b"n:", b"n:1 n: 20,n:x"), (3, 21));
        assert_eq!(sum_after(b"n:", b"n:"), (1, 0));
        assert_eq!(sum_after(b"n:", &b"n:999999999999999999999".repeat(30)).0, 30);
    }
}
