//! Why a token is refused: for the program a code that stays, for people what to do.

const RIGHTS: &str = "The token's claim `halley` has a member twice, or is longer than 4,096 \
                      bytes: use prefixes with `*` instead of long lists.";
const REVOKED: &str = "The token was revoked: this user's tokens count from a later moment on. \
                       Get a new one, with its time in `iat`.";

/// Why a token is refused. [`Refusal::message`] says what to do, and repeats nothing of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no key to check any token with.
    NoKeys,
    /// More bytes than `token_bytes_max`.
    TooLarge,
    /// Not the three parts of a signed token, or a header that can't be read.
    Malformed,
    /// Five parts: a JWE.
    Encrypted,
    /// The header names another type than a JWT or an access token.
    Type,
    /// The header has `crit`.
    Critical,
    /// The header's `alg` is none that is taken, or not the key's.
    Algorithm,
    /// No key has the header's `kid`, or without one too many could be meant.
    KeyUnknown,
    /// The signature doesn't hold.
    Signature,
    /// The claims can't be read.
    Claims,
    /// `exp` is missing or no number.
    Expiry,
    /// `exp` has passed.
    Expired,
    /// `nbf` is to come.
    NotYet,
    /// `iss` is not what the rules ask for.
    Issuer,
    /// `aud` is not what the rules ask for, or doesn't have it.
    Audience,
    /// `sub` is no user's id.
    Subject,
    /// `halley` is too large, or has a member twice.
    Rights,
    /// The user's tokens of before a moment are revoked, and `iat` isn't behind it.
    Revoked,
}

impl Refusal {
    /// Every refusal, in the order in which a token is looked at.
    pub const ALL: [Refusal; 18] = [
        Refusal::NoKeys,
        Refusal::TooLarge,
        Refusal::Malformed,
        Refusal::Encrypted,
        Refusal::Type,
        Refusal::Critical,
        Refusal::Algorithm,
        Refusal::KeyUnknown,
        Refusal::Signature,
        Refusal::Claims,
        Refusal::Expiry,
        Refusal::Expired,
        Refusal::NotYet,
        Refusal::Issuer,
        Refusal::Audience,
        Refusal::Subject,
        Refusal::Rights,
        Refusal::Revoked,
    ];

    /// The HTTP status: 503 when no token could be good, else 401.
    pub fn status(self) -> u16 {
        match self {
            Refusal::NoKeys => 503,
            _ => 401,
        }
    }

    /// The stable code, `[a-z_]+`.
    pub fn code(self) -> &'static str {
        match self {
            Refusal::NoKeys => "token_keys_missing",
            Refusal::TooLarge => "token_too_large",
            Refusal::Malformed => "token_malformed",
            Refusal::Encrypted => "token_encrypted",
            Refusal::Type => "token_type",
            Refusal::Critical => "token_critical",
            Refusal::Algorithm => "token_algorithm",
            Refusal::KeyUnknown => "token_key_unknown",
            Refusal::Signature => "token_signature",
            Refusal::Claims => "token_claims",
            Refusal::Expiry => "token_expiry",
            Refusal::Expired => "token_expired",
            Refusal::NotYet => "token_not_yet",
            Refusal::Issuer => "token_issuer",
            Refusal::Audience => "token_audience",
            Refusal::Subject => "token_subject",
            Refusal::Rights => "token_rights",
            Refusal::Revoked => "token_revoked",
        }
    }

    /// What was wrong and what would be right.
    pub fn message(self) -> &'static str {
        match self {
            Refusal::NoKeys => {
                "This server has no key to check tokens with: its log says what is wrong with \
                 auth.keys. Try again when that is fixed."
            }
            Refusal::TooLarge => "The token is too long: put less into its claims.",
            Refusal::Malformed => {
                "This is no signed token: a JWT has three parts of base64url without padding, \
                 with dots between, and a JSON object with each name once in its header."
            }
            Refusal::Encrypted => {
                "This token is encrypted (JWE); only signed tokens (JWS) are accepted."
            }
            Refusal::Type => {
                "The token's `typ` is neither JWT nor at+jwt: send the token that was made for \
                 this server."
            }
            Refusal::Critical => "The token's header has `crit`, which isn't supported: omit it.",
            Refusal::Algorithm => {
                "The token's `alg` is not that of the key: sign with HS256, RS256, ES256 or \
                 EdDSA, whichever the key in auth.keys is for."
            }
            Refusal::KeyUnknown => {
                "auth.keys has no key with this token's `kid`, or the token has no `kid` and \
                 several keys could be meant: sign with a key of auth.keys, and name its `kid`."
            }
            Refusal::Signature => {
                "The token's signature doesn't hold: it was signed with another key than the one \
                 that its `kid` names, or changed on its way. Get a new token."
            }
            Refusal::Claims => {
                "The token's claims can't be read: they are one JSON object with each name once, \
                 and `nbf`, if there is one, is a number of seconds."
            }
            Refusal::Expiry => {
                "The token has no `exp`, or one that is no number: `exp` is the second since \
                 1970 at which the token expires."
            }
            Refusal::Expired => "The token has expired: get a new one.",
            Refusal::NotYet => {
                "The token is not yet valid (`nbf`): wait, or set the signer's clock."
            }
            Refusal::Issuer => {
                "The token's `iss` is not auth.issuer: get a token from that issuer."
            }
            Refusal::Audience => {
                "The token's `aud` is not auth.audience and doesn't contain it: get a token that \
                 is meant for this server."
            }
            Refusal::Subject => {
                "The token's `sub` is no user's id: text of 1 to 255 bytes without control \
                 characters."
            }
            Refusal::Rights => RIGHTS,
            Refusal::Revoked => REVOKED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// http.md 5.3: "`code` is stable; `message` names the fault and the remedy".
    #[test]
    fn each_refusal_has_a_code_and_a_sentence_of_its_own() {
        let codes: HashSet<_> = Refusal::ALL.iter().map(|refusal| refusal.code()).collect();
        let messages: HashSet<_> = Refusal::ALL.iter().map(|refusal| refusal.message()).collect();
        assert_eq!((codes.len(), messages.len()), (Refusal::ALL.len(), Refusal::ALL.len()));
        for refusal in Refusal::ALL {
            assert!(refusal.code().bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_')));
            assert!(refusal.code().starts_with("token_") && refusal.message().ends_with('.'));
            assert!(matches!(refusal.status(), 401 | 503));
        }
    }
}
