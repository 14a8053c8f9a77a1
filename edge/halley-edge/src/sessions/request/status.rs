//! `GET /v1/status/stream` of the API listener (link.md 17): a session like any other, which
//! follows the brain's status. The subject begins with a byte that no id has, so no client can name
//! it at the public listener. A server's key stands where others have their rights, after that
//! byte, so that no client's rights are mistaken for it.

use halley_link::{Id, Item};
use halley_wire::http1::head::Request;

use crate::sessions::users::identity::Principal;

/// Before what is Halley's own. Presence has 1, states have 2.
const OWN: char = '\u{3}';

/// What such a session is subscribed to, packed.
pub fn subjects() -> Vec<u8> {
    let mut packed = Vec::new();
    Id(format!("{OWN}status").as_bytes()).write(&mut packed);
    packed
}

/// Who asks: nobody, with a server key. Of two the brain could not know which one counts, so they
/// are none.
pub fn principal(req: &Request<'_>) -> Principal<'static> {
    let mut shown =
        req.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let key = match (shown.next(), shown.next()) {
        (Some((_, value)), None) => std::str::from_utf8(value).unwrap_or_default(),
        _ => "",
    };
    Principal::nobody(&format!("{OWN}{key}"))
}
