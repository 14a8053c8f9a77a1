//! The principal of a request (`protocol/http.md` 14): the user that `?user=` or its token names.
//!
//! A token is checked once, here, and then dropped. Kept are its user, its last second, and its
//! rights. The token is in no log and in no frame of the link.

use std::borrow::Cow;

use halley_token::{Claims, Refusal};
use halley_wire::HttpError;
use halley_wire::http1::head::Request;
use halley_wire::target;
use halley_wire::websocket::handshake;

use crate::stats::Stat;

/// Longest id of a user, in bytes; the brain knows the rest of the rules.
const USER_BYTES_MAX: usize = 255;
/// What everybody may do without tokens (link.md 12.6).
pub const ALL_RIGHTS: &str = concat!(
    r#"{"publish":["*"],"to":["*"],"follow":["*"],"subscribe":["*"],"#,
    r#""presence":["*"],"history":["*"],"state":["*"]}"#
);
/// What a token without the claim allows.
pub const NO_RIGHTS: &str = "{}";
/// The last second of a principal without a token; no token expires in this second.
pub const FOREVER: u32 = 0;
/// The query parameter where a browser can't set headers.
pub const TOKEN_PARAMETER: &str = "token";

/// Answer as its text says.
pub const USER_MISSING: HttpError =
    HttpError::new(400, "user_missing", "Name the user: add ?user=<id> to the address.");
const USER_BAD: HttpError =
    HttpError::new(400, "bad_user", "A user's id has 1 to 255 bytes of UTF-8.");
/// Answer to a request without a token where one is needed.
pub const TOKEN_MISSING: HttpError = HttpError::new(
    401,
    "token_missing",
    "A token is needed here: send it as Authorization: Bearer <token>, or where headers can't be \
     set as ?token=<token>; a WebSocket as the subprotocol halley.token.<token>, beside halley.",
);
/// Answer to a stream whose token expired while it waited.
pub const TOKEN_EXPIRED: HttpError =
    HttpError::new(401, "token_expired", "The token has expired: get a new one.");
const TOKEN_TWICE: HttpError = HttpError::new(
    400,
    "token_twice",
    "There are two tokens: send one, as Authorization: Bearer <token>, as ?token=<token>, or as \
     a WebSocket's subprotocol.",
);
/// Answer as its text says.
pub const OTHER_USER: HttpError = HttpError::new(
    403,
    "other_user",
    "The token isn't of the user that ?user= names: leave ?user= out.",
);
/// Answer to a WebSocket that shows another user's token.
pub const OTHER_SESSION: HttpError = HttpError::new(
    403,
    "other_user",
    "The token isn't of this WebSocket's user: open another WebSocket with it.",
);
/// Answer as its text says.
pub const NO_TOKENS_HERE: HttpError = HttpError::new(
    403,
    "article_without_tokens",
    "/test/<user> asks for no token, so it is there with auth.mode = none alone: use /v1/stream.",
);

/// A user that may use the public listener.
#[derive(Debug, PartialEq, Eq)]
pub struct Principal<'r> {
    /// The user's id: 1 to 255 bytes; empty for a visitor.
    pub user: Cow<'r, str>,
    /// What the brain is told of rights (link.md 12.6).
    pub rights: Cow<'static, str>,
    /// The second since 1970 from which on this doesn't hold any more, leeway included, or
    /// [`FOREVER`].
    pub until_s: u32,
}

impl<'r> Principal<'r> {
    /// The user that a request names, without a token.
    ///
    /// # Errors
    /// 400 for what is no id.
    pub fn believed(user: Cow<'r, str>) -> Result<Principal<'r>, HttpError> {
        if user.is_empty() || user.len() > USER_BYTES_MAX {
            return Err(USER_BAD);
        }
        Ok(Principal { user, rights: ALL_RIGHTS.into(), until_s: FOREVER })
    }

    /// A visitor without a token.
    pub fn nobody(rights: &str) -> Principal<'static> {
        let rights = rights.to_owned().into();
        Principal { user: "".into(), rights, until_s: FOREVER }
    }

    /// Is it a visitor?
    pub fn is_nobody(&self) -> bool {
        self.user.is_empty()
    }

    /// The user that a token names, or a visitor.
    pub fn of_claims(claims: Claims, leeway_s: u64) -> Principal<'static> {
        let until_s = claims.expires_s.saturating_add(leeway_s);
        Principal {
            user: claims.user.into(),
            rights: claims.rights.into(),
            // 2106 is late enough.
            until_s: u32::try_from(until_s).unwrap_or(u32::MAX),
        }
    }
}

/// The token of a request (14.2).
///
/// # Errors
/// 401 or 400 unless there is one.
pub fn token_of<'r>(req: &Request<'r>) -> Result<Cow<'r, str>, HttpError> {
    let headers = req.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let mut bearers = headers.filter_map(|(_, value)| bearer(value)).chain(handshake::tokens(req));
    let header = bearers.next();
    let parameter = target::query_value(req.target, TOKEN_PARAMETER)?;
    match (header, parameter) {
        _ if bearers.next().is_some() => Err(TOKEN_TWICE),
        (Some(_), Some(_)) => Err(TOKEN_TWICE),
        (Some(token), None) => {
            std::str::from_utf8(token).map(Cow::Borrowed).map_err(|_| refused(Refusal::Malformed))
        }
        (None, Some(token)) => Ok(token),
        (None, None) => Err(TOKEN_MISSING),
    }
}

/// The credentials, if the scheme is `Bearer` (RFC 6750 section 2.1); those of another scheme are
/// none of ours.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let scheme = value.get(..6).filter(|scheme| scheme.eq_ignore_ascii_case(b"bearer"));
    let rest = scheme.and_then(|_| value.get(6..))?;
    (rest.is_empty() || rest.starts_with(b" ")).then_some(rest.trim_ascii())
}

/// The error that a refusal becomes.
pub fn refused(refusal: Refusal) -> HttpError {
    HttpError::new(refusal.status(), refusal.code(), refusal.message())
}

/// The `WWW-Authenticate` of an answer with this status (14.4, RFC 6750 section 3).
pub fn challenge(status: u16, code: &str, message: &str) -> Option<String> {
    const REALM: &str = "Bearer realm=\"halley\"";
    match (status, code) {
        (400, "token_twice") => Some(format!("{REALM}, error=\"invalid_request\"")),
        (401, "token_missing") => Some(REALM.to_owned()),
        (401, _) => {
            Some(format!("{REALM}, error=\"invalid_token\", error_description=\"{message}\""))
        }
        _ => None,
    }
}

/// Where a refusal is counted.
pub fn stat(refusal: Refusal) -> Stat {
    match refusal {
        Refusal::NoKeys => Stat::TokensNoKeys,
        Refusal::Algorithm | Refusal::KeyUnknown | Refusal::Signature => Stat::TokensUnsigned,
        Refusal::Revoked => Stat::TokensRevoked,
        Refusal::Expiry | Refusal::Expired | Refusal::NotYet => Stat::TokensOutOfTime,
        Refusal::Issuer | Refusal::Audience | Refusal::Subject | Refusal::Rights => {
            Stat::TokensOfOthers
        }
        _ => Stat::TokensMalformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6750 section 3: `error_description` has neither `"` nor `\`, and nothing outside of
    /// visible ASCII and the space.
    #[test]
    fn messages_fit_into_a_challenge() {
        let errors = Refusal::ALL.map(refused).into_iter().chain([TOKEN_MISSING, TOKEN_EXPIRED]);
        for error in errors {
            let fits = |byte: u8| matches!(byte, 0x20..=0x21 | 0x23..=0x5b | 0x5d..=0x7e);
            assert!(error.message.bytes().all(fits), "{}", error.message);
            let challenge = challenge(error.status, error.code, error.message);
            assert_eq!(challenge.is_some(), error.status == 401);
        }
    }

    /// RFC 9110 11.1: the scheme is compared without regard to case.
    #[test]
    fn only_bearers_are_tokens() {
        for (value, token) in [
            (b"Bearer abc".as_slice(), Some(b"abc".as_slice())),
            (b"bEARER   abc ", Some(b"abc")),
            (b"Bearer", Some(b"")),
            (b"Bearerabc", None),
            (b"Basic abc", None),
            (b"", None),
        ] {
            assert_eq!(bearer(value), token);
        }
    }
}
