//! What web pages may do here (`protocol/http.md` 6): those of the same origin everything, those of
//! the origins in `cors.origins` as well, all others nothing that changes something.
//!
//! Browsers keep a foreign page from reading an answer that doesn't name its origin. They don't
//! keep it from sending a plain POST, nor from opening a WebSocket (RFC 6455 section 10.2); that is
//! for the server. What is no browser sends no `Origin`, and isn't concerned.

use halley_wire::HttpError;
use halley_wire::http1::cors::is_same_origin;
use halley_wire::http1::head::Request;

use crate::conns::{Conns, Hung};
use crate::stats::Stat;

const FOREIGN_ORIGIN: HttpError = HttpError::new(
    403,
    "origin_not_allowed",
    "Pages of this origin may not do this here: add the origin to cors.origins.",
);

impl<D: Hung> Conns<D> {
    /// Judges a request by the page that it comes from, unless it only reads.
    ///
    /// # Errors
    /// 403, for what 6.4 says.
    pub fn origin_may_change(&mut self, req: &Request<'_>, api: bool) -> Result<(), HttpError> {
        let reads = matches!(req.method, "GET" | "HEAD" | "OPTIONS");
        if reads { Ok(()) } else { self.origin_may_enter(req, api) }
    }

    /// Judges a request by the page that it comes from.
    ///
    /// # Errors
    /// 403, for what 6.4 says.
    pub fn origin_may_enter(&mut self, req: &Request<'_>, api: bool) -> Result<(), HttpError> {
        let tls = self.certificates.has(api);
        let host = req.header("host");
        let allows =
            |origin| is_same_origin(origin, host, tls) || self.settings.origins.allows(origin);
        let headers = req.headers.iter();
        let mut origins = headers.filter(|(name, _)| name.eq_ignore_ascii_case("origin"));
        let allowed = match (origins.next(), origins.next()) {
            (None, _) => true,
            (Some((_, origin)), None) => allows(origin),
            // No browser sends two; who is asked for has been tampered with.
            (Some(_), Some(_)) => false,
        };
        if allowed {
            return Ok(());
        }
        self.stats.count(Stat::OriginsRefused);
        Err(FOREIGN_ORIGIN)
    }
}
