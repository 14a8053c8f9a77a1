//! WebSockets that are opened by their first message (`protocol/http.md` 28.3): the upgrade is
//! answered at once, and the message is read as a form would be.

use std::rc::Rc;

use halley_link::CloseReason;
use halley_wire::HttpError;
use halley_wire::http1::head::{BodyFraming, Request, parse_request};
use halley_wire::websocket::encode;

use crate::http::read::body_came;
use crate::http::request::BODY_NOT_ALLOWED;
use crate::http::state::Http;
use crate::sessions::Sessions;
use crate::sessions::base::detail::{Detail, exchange_of, exchange_or_new};
use crate::sessions::base::exchange::{Reply, Stage};
use crate::sessions::base::first_message::{Ahead, Broken, FirstMessage, Heard};
use crate::sessions::base::form::{FORMS_FULL, joined};
use crate::sessions::base::io::Io;
use crate::sessions::opening::Stream;
use crate::sessions::opening::wanted::upgrade;
use crate::stats::Stat;

impl Http {
    /// Answers the upgrade. Gives how many bytes behind the request were used, `None` when the
    /// connection is no longer one for requests.
    pub fn message_begins(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        req: &Request<'_>,
        head: &[u8],
        body: &[u8],
    ) -> Option<usize> {
        let (date, origins) = (io.conns.clock.date, Rc::clone(&io.conns.settings.origins));
        let reply = Reply::to(req, io.conns.is_foreign(req, false)).of_websocket();
        let upgraded = match req.body {
            BodyFraming::None => upgrade(io, req, &reply.options(&origins, date)),
            _ => Err(BODY_NOT_ALLOWED),
        };
        let (answer, deflate) = match upgraded {
            Ok(upgraded) => upgraded,
            Err(error) => return self.local_error(io, sessions, index, req, &error),
        };
        let message = FirstMessage::new(head, deflate, &self.forms);
        let exchange = exchange_or_new(&mut io.conns, index)?;
        exchange.reply = reply;
        exchange.stage = Stage::Message(Box::new(message));
        io.conns.push(index, answer.into());
        self.message_goes_on(io, sessions, index, body)
    }

    /// More of the message came, or its beginning. Gives how many bytes were used, `None` when the
    /// connection is no longer one for requests.
    pub fn message_goes_on(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        input: &[u8],
    ) -> Option<usize> {
        let exchange = exchange_of(&mut io.conns, index)?;
        let Stage::Message(mut message) = std::mem::take(&mut exchange.stage) else { return None };
        let mut out = Vec::new();
        let heard = message.read(input, sessions.inflater(), &mut out);
        if !matches!(heard, Ok(Heard::Part)) {
            io.conns.table.asked(index);
        }
        if !out.is_empty() {
            io.conns.push(index, out.into());
        }
        match heard {
            Ok(Heard::Part) => {
                exchange_of(&mut io.conns, index)?.stage = Stage::Message(message);
                body_came(io, index, input.len());
                return Some(input.len());
            }
            Ok(Heard::Whole(form, used)) => {
                let (head, deflate) = (message.head.clone(), message.deflate);
                let ahead = message.ahead(input.get(used..).unwrap_or_default());
                self.opens(io, sessions, index, (&head, &form), Stream::Message(deflate), ahead);
            }
            Ok(Heard::Close(code)) => {
                let mut out = Vec::new();
                encode::close(&mut out, code, "");
                sessions.last_words(io, index, Some(out), CloseReason::Client);
            }
            Err(Broken::Frames(failure)) => {
                io.conns.stats.count(Stat::ProtocolErrors);
                let mut out = Vec::new();
                encode::close(&mut out, Some(failure.code), failure.reason);
                sessions.last_words(io, index, Some(out), CloseReason::Protocol);
            }
            Err(Broken::Form(error)) => self.refuse_form(io, sessions, index, &error),
        }
        None
    }

    /// The message is whole: the request is read again, with the message as a part of its query.
    fn opens(
        &mut self,
        io: &mut Io,
        sessions: &mut Sessions,
        index: u32,
        (head, form): (&[u8], &str),
        stream: Stream,
        ahead: Result<Option<Box<Ahead>>, HttpError>,
    ) {
        let rules = io.conns.settings.head;
        let Ok(Some(req)) = parse_request(head, &rules) else { return };
        let target = joined(req.target, form);
        let (target, ahead) = match target.and_then(|target| Ok((target, ahead?))) {
            Ok(both) => both,
            Err(error) => return self.refuse_form(io, sessions, index, &error),
        };
        let req = Request { target: &target, ..req };
        self.stream_request(io, sessions, index, &req, stream);
        if let Some(Detail::Opening(opening)) = io.conns.table.detail(index) {
            opening.ahead = ahead;
        }
    }

    fn refuse_form(&mut self, io: &mut Io, sessions: &mut Sessions, index: u32, error: &HttpError) {
        let error = if *error == FORMS_FULL {
            io.conns.stats.count(Stat::FormsFull);
            error.after(sessions.admission().retry_after_s(io))
        } else {
            *error
        };
        self.refuse(io, sessions, index, &error);
    }
}
