//! The NATS client protocol (docs.nats.io, "Client Protocol"), as far as load needs it: what a
//! server says, read from bytes; what a client says, as bytes. No I/O, no memory.
//!
//! A server greets with INFO, gets CONNECT, and from then on sends MSG for subscriptions, PING to
//! see which clients are there, PONG for a client's PING, -ERR before it ends a connection. It
//! carries out all earlier commands before it answers a PING.

use memchr::memchr;

/// What a client says first: no +OK for every line, no checks of subjects, no own messages back.
pub const CONNECT: &[u8] =
    b"CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false,\"name\":\"halley-load\"}\r\n";
/// Asks whether all before it is done.
pub const PING: &[u8] = b"PING\r\n";
/// The answer to the server's PING.
pub const PONG: &[u8] = b"PONG\r\n";

/// The longest line of a server: an INFO that names the servers of a large cluster.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// The largest payload that a server allows, 64 MB; by default it is 1 MB.
const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// What a server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The greeting, or news about the cluster.
    Info,
    /// A payload for a subscription.
    Message(&'a [u8]),
    /// To be answered.
    Ping,
    /// All before the PING is done.
    Pong,
    /// A line was understood.
    Okay,
    /// Something wasn't, in the server's words.
    Error(&'a [u8]),
}

/// The first operation in `bytes` and its length; `None` if it isn't whole.
///
/// # Errors
/// Says what no NATS server sends.
pub fn read(bytes: &[u8]) -> Result<Option<(Operation<'_>, usize)>, &'static str> {
    let Some(end) = memchr(b'\n', bytes) else {
        let too_long = bytes.len() > LINE_BYTES_MAX;
        return if too_long { Err("a NATS line without an end") } else { Ok(None) };
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let (name, rest) = line.split_at(line.iter().take_while(|byte| **byte > b' ').count());
    let operation = match name {
        b"MSG" => return message(bytes, end + 1, rest),
        b"PING" => Operation::Ping,
        b"PONG" => Operation::Pong,
        b"INFO" => Operation::Info,
        b"+OK" => Operation::Okay,
        b"-ERR" => Operation::Error(rest.trim_ascii()),
        _ => return Err("what no NATS server says"),
    };
    Ok(Some((operation, end + 1)))
}

/// `MSG subject sid [reply-to] size`, the payload from `start` on.
fn message<'a>(
    bytes: &'a [u8],
    start: usize,
    arguments: &[u8],
) -> Result<Option<(Operation<'a>, usize)>, &'static str> {
    const BAD: &str = "a bad MSG";
    let words = || arguments.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    if !(3..=4).contains(&words().count()) {
        return Err(BAD);
    }
    let size = words().next_back().and_then(|word| std::str::from_utf8(word).ok());
    let size = size.and_then(|size| size.parse::<usize>().ok());
    let end = start + size.filter(|size| *size <= PAYLOAD_BYTES_MAX).ok_or(BAD)?;
    match bytes.get(end..).and_then(|rest| rest.get(..2)) {
        Some(b"\r\n") => Ok(Some((Operation::Message(&bytes[start..end]), end + 2))),
        Some(_) => Err(BAD),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read_all(mut bytes: &[u8]) -> (Vec<Operation<'_>>, usize) {
        let mut operations = Vec::new();
        while let Some((operation, length)) = read(bytes).unwrap() {
            operations.push(operation);
            bytes = &bytes[length..];
        }
        (operations, bytes.len())
    }

    #[test]
    fn operations_are_read_one_by_one_wherever_they_are_cut() {
        let bytes = b"INFO {\"max_payload\":1048576}\r\n+OK\r\nMSG g7 1 8\r\n{\"t\":1}\n\r\n\
            PING\r\nMSG  g7\t1 reply 0\r\n\r\nPONG\n-ERR 'Slow Consumer'\r\n";
        let expected = [
            Operation::Info,
            Operation::Okay,
            Operation::Message(b"{\"t\":1}\n"),
            Operation::Ping,
            Operation::Message(b""),
            Operation::Pong,
            Operation::Error(b"'Slow Consumer'"),
        ];
        assert_eq!(read_all(bytes), (expected.to_vec(), 0));
        for cut in 0..bytes.len() {
            let (mut operations, left) = read_all(&bytes[..cut]);
            let (later, rest) = read_all(&bytes[cut - left..]);
            operations.extend(later);
            assert_eq!((&operations[..], rest), (&expected[..], 0), "cut at {cut}");
        }
    }

    #[test]
    fn nonsense_is_an_error_and_never_more() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\r\n",
            b"MSG\r\n",
            b"MSG g 1\r\n",
            b"MSG g 1 r x 5\r\n",
            b"MSG g 1 -5\r\n",
            b"MSG g 1 99999999999999999999999\r\n",
            b"MSG g 1 18446744073709551615\r\n",
            b"MSG g 1 \xff\xfe\r\n",
            b"MSG g 1 3\r\nabcdef",
            b"HMSG g 1 12 17\r\n",
            b"\0\n",
        ] {
            assert!(read(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(read(&[b'x'; LINE_BYTES_MAX]), Ok(None));
        assert!(read(&[b'x'; LINE_BYTES_MAX + 1]).is_err());
    }
}
