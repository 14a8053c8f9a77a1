//! The protocol of a server, as a thread of clients needs it: one module for each, all with one
//! trait.
//!
//! A protocol is pure: it writes what a client says and reads what stands inside the framing that
//! [`super::stream`] takes away. It keeps nothing per client but what [`Stream`] has room for.

use std::fmt::Debug;

use super::chunked::Chunked;
use super::halley::{Halley, Transport};
use super::nats::Nats;
use super::nchan::Nchan;
use super::socketio::SocketIo;
use super::stream::{Item, Stream, StreamError};
use crate::error::Result;
use crate::path::Path;
use crate::speak::Speak;

/// Where items go.
pub type Sink<'s> = &'s mut dyn FnMut(Item<'_>);

/// How what a protocol reads is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The body of an answer 200: its chunks, or whatever was read where it has none.
    Body,
    /// WebSocket messages behind an answer 101, each whole.
    Messages,
    /// A stream of bytes that WebSocket messages carry and may cut anywhere.
    Bytes,
}

/// Something that a server waits for, in the protocol's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompt {
    /// The server has greeted: who is it?
    Greeting,
    /// The server has let the client in: what does it want?
    Admitted,
    /// The server asks whether the client is there.
    Heartbeat,
}

/// Who a client is.
#[derive(Debug, Clone, Copy)]
pub struct Who<'a> {
    /// Its user.
    pub user: &'a str,
    /// What shows that it is this user, where the server wants to see it.
    pub token: Option<&'a str>,
    /// The channel of the user's group.
    pub channel: &'a str,
    /// All that came before is behind this cursor.
    pub cursor: Option<&'a [u8]>,
}

/// What a server speaks.
pub trait Protocol: Debug + Send + Sync {
    /// How its streams are framed.
    fn framing(&self) -> Framing;

    /// Whether messages may be compressed (RFC 7692); the server must agree then.
    fn is_deflate(&self) -> bool {
        false
    }

    /// Appends the HTTP request that opens a stream.
    fn push_request(&self, host: &str, who: &Who<'_>, out: &mut Vec<u8>);

    /// The head of the answer was as it should be.
    fn begin(&self, stream: &mut Stream, sink: Sink<'_>);

    /// Reads what came inside the framing.
    ///
    /// # Errors
    /// When the stream is at its end, for one reason or another.
    fn read(
        &self,
        stream: &mut Stream,
        payload: &[u8],
        sink: Sink<'_>,
    ) -> std::result::Result<(), StreamError>;

    /// Appends what is said at a prompt, framing included.
    fn push_reply(&self, _prompt: Prompt, _who: &Who<'_>, _out: &mut Vec<u8>) {}
}

/// The protocol of these options. What is before the path is Halley's alone, a path is the
/// others'.
///
/// # Errors
/// If the path is none.
pub fn new(
    speak: Speak,
    transport: Transport,
    cursors: bool,
    subscribe: u32,
    path: Option<&str>,
) -> Result<Box<dyn Protocol>> {
    let path = |usual: &str| path.unwrap_or(usual).parse::<Path>();
    Ok(match speak {
        Speak::Halley => Box::new(Halley::new(transport, cursors).subscribed(subscribe)),
        Speak::Nchan => Box::new(Nchan::new(path("/sub/{channel}")?)),
        Speak::Chunked => Box::new(Chunked::new(path("/test/{user}")?)),
        Speak::Nats => Box::new(Nats::new(path("/")?)),
        Speak::Socketio => Box::new(SocketIo::new(path("/socket.io/?EIO=4&transport=websocket")?)),
    })
}

/// Appends a GET request with these further header lines, each with its line end.
pub fn push_get(path: &Path, host: &str, who: &Who<'_>, headers: &[&str], out: &mut Vec<u8>) {
    out.extend_from_slice(b"GET ");
    path.push(who.user, who.channel, out);
    for text in [" HTTP/1.1\r\nHost: ", host, "\r\n"].iter().chain(headers).chain(&["\r\n"]) {
        out.extend_from_slice(text.as_bytes());
    }
}
