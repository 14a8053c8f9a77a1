//! Chunked bodies against RFC 9112 section 7.1, and `protocol/http.md` 2.6 and 2.7.

use halley_wire::HttpError;
use halley_wire::http1::chunked::{ChunkedDecoder, EXTENSION_BYTES_MAX, TRAILER_BYTES_MAX};

/// Where an input is cut; the longest ones only repeat what they begin with.
const CUTS_MAX: usize = 256;

/// The body, how many bytes of the input it took, and whether it has ended; the same however it is
/// read.
fn decode(input: &[u8]) -> Result<(Vec<u8>, usize, bool), HttpError> {
    let by_steps = decode_by_steps(input);
    for cut in 0..=input.len().min(CUTS_MAX) {
        assert_eq!(decode_in_two(input, cut), by_steps, "{input:?} cut at {cut}");
    }
    by_steps
}

fn decode_in_two(input: &[u8], cut: usize) -> Result<(Vec<u8>, usize, bool), HttpError> {
    let (mut decoder, mut body) = (ChunkedDecoder::new(), Vec::new());
    let (first, done) = decoder.decode_all(&input[..cut], &mut body)?;
    if done {
        return Ok((body, first, true));
    }
    let (second, done) = decoder.decode_all(&input[first..], &mut body)?;
    Ok((body, first + second, done))
}

fn decode_by_steps(input: &[u8]) -> Result<(Vec<u8>, usize, bool), HttpError> {
    let mut decoder = ChunkedDecoder::new();
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let chunk = decoder.decode(&input[at..])?;
        body.extend_from_slice(&input[at..][chunk.data.clone()]);
        at += chunk.consumed;
        if chunk.done || at == input.len() {
            return Ok((body, at, chunk.done));
        }
        assert!(chunk.consumed > 0, "no progress");
    }
}

#[test]
fn chunks_are_put_together() {
    let table: [(&str, &str, &str); 8] = [
        ("0\r\n\r\n", "", ""),
        ("5\r\nhello\r\n0\r\n\r\nGET", "hello", "GET"),
        ("3\r\na\r\n\r\n00A\r\n0123456789\r\n000\r\n\r\n", "a\r\n0123456789", ""),
        ("1;a=b;c=\"d\"\r\nx\r\n0;e\r\n\r\n", "x", ""),
        // 7.1.1: "bad" white space, which a recipient must parse.
        ("1 ;a\r\nx\r\n0\t ; a\r\n\r\n", "x", ""),
        ("1; a = \"\\\" ;\u{e9}\" ;b;c=d\r\nx\r\n0\r\n\r\n", "x", ""),
        // 7.1.2: trailers; 6.5.1: a recipient may discard them.
        ("1\r\nx\r\n0\r\nA: b\r\nContent-Length: 9\r\n\r\n", "x", ""),
        ("0\r\n\r\n\r\n", "", "\r\n"),
    ];
    for (input, body, rest) in table {
        let (read, consumed, done) = decode(input.as_bytes()).unwrap_or_default();
        assert!(done, "{input:?}");
        assert_eq!(read, body.as_bytes(), "{input:?}");
        assert_eq!(&input[consumed..], rest, "{input:?}");
    }
}

/// Sizes of one digit are read at once where the chunk is whole.
#[test]
fn small_chunks_are_put_together() {
    let text = b"a\r\n0\r\n\r\n;=\"\0\xff1\r\n21";
    let (mut lower, mut upper, mut body) = (Vec::new(), Vec::new(), Vec::new());
    for data in (1..=text.len()).map(|size| &text[..size]) {
        lower.extend_from_slice(
            &[format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat(),
        );
        upper.extend_from_slice(
            &[format!("{:X}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat(),
        );
        body.extend_from_slice(data);
    }
    for mut input in [lower, upper] {
        input.extend_from_slice(b"0\r\n\r\n");
        let bytes = input.len();
        assert_eq!(decode(&input), Ok((body.clone(), bytes, true)));
    }
}

#[test]
fn what_breaks_the_grammar_is_refused() {
    let table: [&[u8]; 39] = [
        // 7.1.1: chunk-ext-name and chunk-ext-val.
        b"1;\r",
        b"1; \r",
        b"1;;a\r",
        b"1;a;\r",
        b"1;=b\r",
        b"1;a=\r",
        b"1;a=\"b\r",
        b"1;a=\"b\"c\r",
        b"1;a=b\"\r",
        b"1;a=\"b\\\"\r",
        b"1;a b\r",
        b"1;a \r",
        b"\r\n",
        b";a\r\n",
        b"g\r\n",
        b"+1\r\n",
        b"-1\r\n",
        b"0x1\r\n",
        b" 1\r\n",
        b"1 \r\n",
        b"1 1\r\n",
        // More than 64 bits, even in leading zeros.
        b"00000000000000000",
        b"ffffffffffffffff1",
        // RFC 9112 2.2: bare LF and bare CR.
        b"1\nx",
        b"1\r\r\n",
        b"1;a\nx",
        b"1;a\0",
        b"1;a\x7f",
        // The data must end where the size says.
        b"1\r\nxy",
        b"1\r\nx\n",
        b"1\r\nx\rx",
        b"0\r\n\n",
        b"0\r\nA: b\n",
        b"0\r\nA: \x01",
        b"0\r\n A: b",
        b"0\r\n:b",
        b"0\r\nA : b",
        b"0\r\nGET / HTTP/1.1\r\n",
        b"0\r\nA\r\n",
    ];
    for input in table {
        let error = decode(input).map_err(|error| (error.status, error.code));
        assert_eq!(error, Err((400, "bad_chunk")), "{:?}", input.escape_ascii().to_string());
    }
}

#[test]
fn the_largest_size_is_no_overflow() {
    let (body, _, done) = decode(b"ffffffffffffffff\r\nxyz").unwrap_or_default();
    assert_eq!((body.as_slice(), done), (b"xyz".as_slice(), false));
}

/// http.md 2.7: the bounds are those of a body, not of a chunk.
#[test]
fn extensions_and_trailers_are_bounded() {
    let max = EXTENSION_BYTES_MAX as usize;
    let extension = |bytes: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(bytes));
    assert!(decode(extension(max - 1).as_bytes()).is_ok());
    assert!(decode(extension(max).as_bytes()).is_err());
    assert!(decode("1;aaa\r\nx\r\n".repeat(max / 4).as_bytes()).is_ok());
    assert!(decode("1;aaa\r\nx\r\n".repeat(max / 4 + 1).as_bytes()).is_err());
    assert!(decode(format!("1{};", " ".repeat(max + 1)).as_bytes()).is_err());
    let max = TRAILER_BYTES_MAX as usize;
    let trailer = |bytes: usize| format!("0\r\nA:{}\r\n\r\n", "t".repeat(bytes));
    assert!(decode(trailer(max - 2).as_bytes()).is_ok());
    assert!(decode(trailer(max - 1).as_bytes()).is_err());
    assert!(decode(format!("0\r\n{}:", "A".repeat(max + 1)).as_bytes()).is_err());
    assert!(decode(format!("0\r\n{}", "A: b\r\n".repeat(max / 4 + 1)).as_bytes()).is_err());
}
