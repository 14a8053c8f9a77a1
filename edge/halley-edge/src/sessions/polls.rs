//! Long-poll (`protocol/http.md` 11): a session that ends with the first thing there is to say.
//!
//! Polls open and end here; `delivery/polls.rs` has their answers.

use std::rc::Rc;

use halley_wire::http1::head::Request;
use halley_wire::{HttpError, poll as wire};

use crate::conns::table::flag;
use crate::sessions::Sessions;
use crate::sessions::base::detail::Detail;
use crate::sessions::base::io::Io;
use crate::sessions::base::poll::Poll;
use crate::sessions::request::cursor;
use crate::sessions::request::newest;
use crate::sessions::request::parameters;
use crate::sessions::request::timeout;
use crate::sessions::stream::{Opened, SessionRequest};
use crate::sessions::subscriptions;
use crate::transport::Transport;

impl Sessions {
    /// `GET /v1/poll`
    pub fn open_poll(
        &mut self,
        io: &mut Io,
        index: u32,
        req: &Request<'_>,
    ) -> Result<Opened, HttpError> {
        parameters::check(req.target)?;
        let timeout_ms = timeout::of_target(req.target)?;
        let subjects = &subscriptions::target::of_poll(req.target, timeout_ms > 0)?;
        let principal =
            &self.tokens.principal_of_session(&mut io.conns, req, !subjects.is_empty())?;
        let until_ms = io.conns.clock.now_ms + timeout_ms.min(io.conns.settings.poll_ms_max);
        let cursor = newest::or_newest(io, req.target, cursor::of_target(req)?, subjects)?;
        let transport = Transport::Poll;
        let wanted = SessionRequest { transport, principal, cursor: &cursor, subjects };
        let opened = self.open_session(io, index, req, &wanted, |out, options| {
            // Only HEAD is answered by this.
            if options.head_only {
                let events: &[Rc<[u8]>] = &[];
                wire::answer(
                    out,
                    &wire::Answer { gap: None, events, cursor: b"", more: false, end: None },
                    options,
                );
            }
        })?;
        if let Some(Detail::Opening(opening)) = io.conns.table.detail(index) {
            opening.poll = Some(Poll::until(until_ms));
            // Its events are buffered, and whether the client has left is to be seen.
            if let Some(slot) = io.conns.slot(index) {
                slot.set(flag::BUFFERED | flag::UNREAD);
            }
            io.conns.ready.push(index);
        }
        Ok(opened)
    }
}
