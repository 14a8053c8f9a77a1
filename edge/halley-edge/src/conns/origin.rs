//! The rights of web pages (`protocol/http.md` 6): those of the same origin may do everything,
//! those of the origins in `cors.origins` as well, all others nothing that changes something.
//!
//! Browsers keep a foreign page from reading an answer that doesn't name its origin. They don't
//! keep it from sending a plain POST, nor from opening a WebSocket (RFC 6455 section 10.2); that is
//! for the server. A client that isn't a browser sends no `Origin`, and isn't concerned.
//!
//! A page can't learn the reason: no browser shows it the answer. So the answer has it in a header,
//! for the person who looks into the browser's tools, and the log has it, once for an origin and at
//! most once a minute for all origins.

use std::sync::Mutex;

use halley_wire::HttpError;
use halley_wire::http1::cors::{is_nameable, is_same_origin};
use halley_wire::http1::head::Request;

use crate::conns::{Conns, Hung};
use crate::log;
use crate::stats::Stat;

const FOREIGN_ORIGIN: HttpError = HttpError::new(
    403,
    "origin_not_allowed",
    "Pages of this origin may not do this here: add the origin to cors.origins.",
);

/// What the log was told, by any worker. None waits for it.
static TOLD: Mutex<Told> = Mutex::new(Told { minute: 0, origin: Vec::new() });

struct Told {
    minute: u64,
    origin: Vec<u8>,
}

impl Told {
    /// Is this one to be told in this minute, counted from 1?
    fn is_news(&mut self, origin: &[u8], minute: u64) -> bool {
        if !is_nameable(origin) || self.minute == minute || self.origin == origin {
            return false;
        }
        *self = Told { minute, origin: origin.to_vec() };
        true
    }
}

impl<D: Hung> Conns<D> {
    /// Judges a request by the page that it comes from, unless it only reads.
    ///
    /// # Errors
    /// 403, for what 6.4 says.
    pub fn origin_may_change(
        &mut self,
        req: &Request<'_>,
        is_foreign: bool,
    ) -> Result<(), HttpError> {
        if !is_foreign {
            return Ok(());
        }
        if !matches!(req.method, "GET" | "HEAD" | "OPTIONS") {
            return Err(self.refused_origin(req));
        }
        // Its browser won't let it have the answer.
        self.tell_of_origin(req);
        Ok(())
    }

    /// Judges a request by the page that it comes from.
    ///
    /// # Errors
    /// 403, for what 6.4 says.
    pub fn origin_may_enter(&mut self, req: &Request<'_>, api: bool) -> Result<(), HttpError> {
        if self.is_foreign(req, api) { Err(self.refused_origin(req)) } else { Ok(()) }
    }

    fn refused_origin(&mut self, req: &Request<'_>) -> HttpError {
        self.stats.count(Stat::OriginsRefused);
        self.tell_of_origin(req);
        FOREIGN_ORIGIN
    }

    /// Does it come from a page that isn't let in?
    pub fn is_foreign(&self, req: &Request<'_>, api: bool) -> bool {
        let tls = self.certificates.has(api);
        let host = req.header("host");
        let allows =
            |origin| is_same_origin(origin, host, tls) || self.settings.origins.allows(origin);
        let headers = req.headers.iter();
        let mut origins = headers.filter(|(name, _)| name.eq_ignore_ascii_case("origin"));
        match (origins.next(), origins.next()) {
            (None, _) => false,
            (Some((_, origin)), None) => !allows(origin),
            // No browser sends two: something on the way changed the request.
            (Some(_), Some(_)) => true,
        }
    }

    fn tell_of_origin(&self, req: &Request<'_>) {
        let (Some(origin), Ok(mut told)) = (req.header("origin"), TOLD.try_lock()) else { return };
        if told.is_news(origin, 1 + self.clock.now_ms / 60_000) {
            log!(
                "pages of {} may read nothing here, change nothing and open no WebSocket; if they \
                 are yours, add this origin to cors.origins",
                String::from_utf8_lossy(origin)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_told_once_of_an_origin_and_once_a_minute_in_all() {
        let mut told = Told { minute: 0, origin: Vec::new() };
        assert!(told.is_news(b"http://a", 1));
        assert!(!told.is_news(b"http://a", 1));
        assert!(!told.is_news(b"http://b", 1));
        assert!(!told.is_news(b"http://a", 2));
        assert!(told.is_news(b"http://b", 2));
        let long = [b'a'; 256];
        for no_origin in [b"".as_slice(), b"http://a b", b"http://\x1b[31m", &long] {
            assert!(!told.is_news(no_origin, 3));
        }
    }
}
