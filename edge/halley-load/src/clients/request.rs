//! The request that opens a stream.

use super::stream::Transport;
use crate::target::push_encoded;

/// The key of RFC 6455's own example (1.3): the server's answer to it is known without computing.
/// A client that guarded against caches would draw a key per connection.
const WS_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// What the server must answer to it.
pub const WS_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Puts the request of `user` into `request`, which is cleared first. With a cursor the stream goes
/// on behind it, said in the way that is usual for the transport.
pub fn write(
    transport: Transport,
    host: &str,
    user: &str,
    cursor: Option<&[u8]>,
    request: &mut Vec<u8>,
) {
    request.clear();
    let path: &[u8] = match transport {
        Transport::Sse | Transport::Ndjson => b"GET /v1/stream?user=",
        Transport::Ws => b"GET /v1/ws?user=",
        Transport::Test => b"GET /test/",
    };
    request.extend_from_slice(path);
    push_encoded(user, request);
    // Cursors are of characters that a target can have (link.md 7.2).
    if let (Some(cursor), Transport::Ndjson | Transport::Ws) = (cursor, transport) {
        request.extend_from_slice(b"&cursor=");
        request.extend_from_slice(cursor);
    }
    request.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    request.extend_from_slice(host.as_bytes());
    request.extend_from_slice(b"\r\n");
    match transport {
        Transport::Sse => {
            request.extend_from_slice(b"Accept: text/event-stream\r\n");
            if let Some(cursor) = cursor {
                request.extend_from_slice(b"Last-Event-ID: ");
                request.extend_from_slice(cursor);
                request.extend_from_slice(b"\r\n");
            }
        }
        Transport::Ndjson => request.extend_from_slice(b"Accept: application/x-ndjson\r\n"),
        Transport::Test => {}
        Transport::Ws => {
            request.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n");
            request.extend_from_slice(b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ");
            request.extend_from_slice(WS_KEY.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
    }
    request.extend_from_slice(b"\r\n");
}

/// The pong to a ping (RFC 6455, 5.5.3). The mask is zero: legal, and no work for either side.
/// `payload` is that of a control frame, at most 125 bytes; a longer one is cut.
#[must_use]
pub fn pong(payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(125)];
    let mut frame = vec![0x8a, 0x80 | payload.len() as u8, 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn requests_are_whole_and_name_the_user_and_the_cursor() {
        let wanted = [
            (Transport::Sse, "/v1/stream?user=a%2Fb", "/v1/stream?user=a%2Fb"),
            (Transport::Ndjson, "/v1/stream?user=a%2Fb", "/v1/stream?user=a%2Fb&cursor=C-1"),
            (Transport::Ws, "/v1/ws?user=a%2Fb", "/v1/ws?user=a%2Fb&cursor=C-1"),
            (Transport::Test, "/test/a%2Fb", "/test/a%2Fb"),
        ];
        for (transport, without, with) in wanted {
            for (cursor, target) in [(None, without), (Some(&b"C-1"[..]), with)] {
                let mut bytes = Vec::new();
                write(transport, "h:1", "a/b", cursor, &mut bytes);
                let mut headers = [httparse::EMPTY_HEADER; 8];
                let mut request = httparse::Request::new(&mut headers);
                assert!(request.parse(&bytes).unwrap().is_complete());
                assert_eq!(request.path, Some(target));
                assert_eq!(request.headers[0].value, b"h:1");
                let id = request.headers.iter().find(|header| header.name == "Last-Event-ID");
                let expected = cursor.filter(|_| transport == Transport::Sse);
                assert_eq!(id.map(|header| header.value), expected);
            }
        }
    }

    #[test]
    fn pongs_are_masked() {
        assert_eq!(pong(b"hi"), b"\x8a\x82\0\0\0\0hi");
        assert_eq!(pong(&[7; 300]).len(), 6 + 125);
    }
}
