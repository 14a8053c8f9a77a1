//! Requests of a publisher and their answers: one module for each server, all with one trait. Pure:
//! no I/O, no clock.

use std::fmt::Debug;

use super::events::Events;
use super::halley::Halley;
use super::nats::Nats;
use super::post::Post;
use crate::error::{Failure, Result};
use crate::path::Path;
use crate::speak::Speak;

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status, or what would be it.
    pub status: u16,
    /// Of the events that it is about, how many the server took.
    pub accepted: u64,
    /// To how many sessions, as far as the server says it.
    pub sessions: u64,
    /// Whether the server closes the connection after it.
    pub close: bool,
}

/// One thing that a server said.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// It has dealt with all events that it was sent on this connection.
    Answer(Answer),
    /// It wants to hear this.
    Prompt(&'static [u8]),
    /// Nothing of interest.
    Nothing,
}

/// Why an answer can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadAnswer(pub String);

impl From<&str> for BadAnswer {
    fn from(what: &str) -> Self {
        Self(what.to_owned())
    }
}

/// What a server is published to by.
pub trait Protocol: Debug {
    /// What is said on a new connection before any event.
    fn greeting(&self) -> &'static [u8] {
        b""
    }

    /// What makes the server answer, where it doesn't answer each request by itself. Requests may
    /// then follow each other without an answer.
    fn fence(&self) -> Option<&'static [u8]> {
        None
    }

    /// Appends the next request to `request` and the numbers of the subjects to `about`. Its events
    /// carry `stamp_ns`.
    fn push_request(
        &mut self,
        events: &mut Events,
        stamp_ns: u64,
        request: &mut Vec<u8>,
        about: &mut Vec<u64>,
    );

    /// The first thing that the server says in `bytes` and its length; `None` if it isn't whole.
    ///
    /// # Errors
    /// If it is of no more use to listen.
    fn read(&self, bytes: &[u8]) -> std::result::Result<Option<(Said, usize)>, BadAnswer>;
}

/// The protocol of these options.
///
/// # Errors
/// If the path is none, or not for a publisher.
pub fn new(
    speak: Speak,
    host: &str,
    batch: usize,
    path: Option<&str>,
) -> Result<Box<dyn Protocol>> {
    let post = |usual: &str| {
        let path: Path = path.unwrap_or(usual).parse()?;
        if path.has_user() {
            let what = "--path: a publisher has no {user}; expected one as /pub/{channel}";
            return Err(Failure::Message(what.to_owned()));
        }
        Ok(Box::new(Post::new(host, path)))
    };
    Ok(match speak {
        Speak::Halley => Box::new(Halley::new(host, batch)),
        Speak::Nchan => post("/pub/{channel}")?,
        Speak::Chunked | Speak::Socketio => post("/publish/{channel}")?,
        Speak::Nats => Box::new(Nats::new()),
    })
}
