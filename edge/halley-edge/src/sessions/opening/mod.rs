//! From a request to its session.
//!
//! - `wanted.rs` reads a request, `head.rs` begins its answer;
//! - [`enter`] decides whether it may have a session, and puts it into its slot;
//! - `admission.rs` decides when;
//! - `refusals.rs` writes the answer of one that gets none.
//!
//! The answer's head is made with the request and waits in
//! [`Opening`](crate::sessions::base::opening::Opening) until the brain has the session. Then comes
//! the welcome, with the cursor that the brain gave: a client that has read it misses nothing that
//! is published from then on (6.2).

pub mod admission;
pub mod head;
pub mod refusals;
pub mod wanted;

use halley_wire::HttpError;
use halley_wire::http1::head::Request;
use halley_wire::websocket::extension::Agreement;

use crate::conns::table::Phase;
use crate::sessions::base::detail::Detail;
use crate::sessions::base::exchange::Reply;
use crate::sessions::base::io::Io;
use crate::sessions::base::opening::Opening;
use crate::sessions::opening::wanted::Wanted;
use crate::sessions::subscriptions::target;
use crate::stats::Stat;

const BRAIN_BUSY: HttpError = HttpError::new(
    503,
    "brain_busy",
    "The brain behind this edge is overloaded: open the stream again.",
);

/// The requests for a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// `/v1/stream`
    Events,
    /// `/v1/ws`
    WebSocket,
    /// The same, opened by its first message, with what was agreed on about compression
    Message(Option<Agreement>),
    /// `/test/<user>`
    Article,
    /// `/v1/poll`
    Poll,
    /// `/v1/status/stream` at the API listener
    Status,
}

/// What came of a request for a session.
pub enum Opened {
    /// The connection is the session's, once the brain has it.
    Session,
    /// There is none, only an answer (to HEAD).
    Answer(Vec<u8>),
}

/// Puts into its slot what a session will need there, if there may be one; else gives the answer to
/// HEAD.
///
/// # Errors
/// What the client is answered.
pub fn enter(
    io: &mut Io,
    index: u32,
    req: &Request<'_>,
    wanted: &Wanted<'_>,
) -> Result<Option<Vec<u8>>, HttpError> {
    let answer = enter_or_answer(io, index, req, wanted)?;
    io.conns.stats.add(Stat::DeflateAgreed, u64::from(wanted.transport.is_deflate()));
    Ok(answer)
}

fn enter_or_answer(
    io: &mut Io,
    index: u32,
    req: &Request<'_>,
    wanted: &Wanted<'_>,
) -> Result<Option<Vec<u8>>, HttpError> {
    let principal = &wanted.principal;
    if !principal.is_nobody() {
        let user = io.conns.table.limits.hasher.name(principal.user.as_bytes());
        io.conns.user_may_ask(user)?;
    }
    io.conns.stream_may_open()?;
    target::may_have(io, &wanted.subjects)?;
    // 4.6. Without a link the stream may wait for one; behind a full queue it would wait in it.
    if io.link.is_up() && !io.link_has_room() {
        return Err(BRAIN_BUSY);
    }
    if req.method == "HEAD" {
        let (_, answer) = answer(io, req, wanted);
        return Ok(Some(answer));
    }
    io.conns.stream_comes_from(index, req)?;
    let (reply, answer) = answer(io, req, wanted);
    io.conns.become_of(index, Phase::Waiting);
    if let Some(slot) = io.conns.slot(index) {
        slot.transport = wanted.transport;
    }
    io.conns.table.set_user(index, principal.user.as_bytes());
    let judged = principal.is_nobody() || !wanted.subjects.is_empty();
    let rights = if judged { principal.rights.as_ref() } else { "" }.into();
    let since_ms = io.conns.clock.now_ms;
    let opening = Box::new(Opening { answer, reply, rights, since_ms, poll: None, ahead: None });
    io.conns.table.set_detail(index, Detail::Opening(opening));
    Ok(None)
}

/// The bytes that the client reads before the welcome.
fn answer(io: &Io, req: &Request<'_>, wanted: &Wanted<'_>) -> (Reply, Vec<u8>) {
    let reply = Reply::to(req, io.conns.is_foreign(req, false));
    let reply = if wanted.head.is_answered() { reply.of_websocket() } else { reply };
    let mut out = Vec::new();
    let options = reply.options(&io.conns.settings.origins, io.conns.clock.date);
    wanted.head.write(&mut out, &wanted.principal, &options);
    (reply, out)
}
