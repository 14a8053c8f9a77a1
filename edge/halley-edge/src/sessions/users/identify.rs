//! The user of a request: by its token, or by `?user=` with `auth.mode = none` (`identity.rs`).

use std::borrow::Cow;

use halley_token::Refusal;
use halley_wire::HttpError;
use halley_wire::http1::head::Request;
use halley_wire::target;

use crate::sessions::base::detail::Conns;
use crate::sessions::users::identity::{
    ALL_RIGHTS, NO_TOKENS_HERE, OTHER_USER, Principal, TOKEN_MISSING, USER_MISSING, refused, stat,
    token_of,
};
use crate::sessions::users::tokens::Tokens;
use crate::settings::AuthMode;
use crate::stats::Stat;

impl Tokens {
    /// Which user asks for this.
    ///
    /// # Errors
    /// What http.md 14.1 to 14.4 say.
    pub fn principal<'r>(
        &self,
        conns: &mut Conns,
        req: &Request<'r>,
    ) -> Result<Principal<'r>, HttpError> {
        self.principal_of_session(conns, req, false)
    }

    /// Who asks for this: a user, or a visitor where one is of use (21.6).
    ///
    /// # Errors
    /// What http.md 14.1 to 14.4 say.
    pub fn principal_of_session<'r>(
        &self,
        conns: &mut Conns,
        req: &Request<'r>,
        visitors: bool,
    ) -> Result<Principal<'r>, HttpError> {
        let visitors = visitors && conns.settings.subscriptions;
        let named = target::query_value(req.target, "user")?;
        if conns.settings.auth_mode == AuthMode::None {
            return match named {
                Some(user) => Principal::believed(user),
                None if visitors => Ok(Principal::nobody(ALL_RIGHTS)),
                None => Err(USER_MISSING),
            };
        }
        let token = match token_of(req) {
            Ok(token) => token,
            Err(error) => {
                let anonymous = &conns.settings.anonymous;
                let may_be = visitors && !anonymous.is_empty() && named.is_none();
                if may_be && error.code == TOKEN_MISSING.code {
                    return Ok(Principal::nobody(anonymous));
                }
                conns.stats.count(Stat::TokensMissing);
                return Err(error);
            }
        };
        let principal = self.principal_of_token(conns, token.as_bytes()).map_err(refused)?;
        if principal.is_nobody() && !visitors {
            conns.stats.count(stat(Refusal::Subject));
            return Err(refused(Refusal::Subject));
        }
        match named {
            Some(named) if named != principal.user => {
                conns.stats.count(Stat::TokensOfOthers);
                Err(OTHER_USER)
            }
            _ => Ok(principal),
        }
    }

    /// Who asks for `/test/<user>`.
    ///
    /// # Errors
    /// Where tokens are needed (14.1).
    pub fn principal_by_path<'r>(
        &self,
        conns: &Conns,
        user: Cow<'r, str>,
    ) -> Result<Principal<'r>, HttpError> {
        match conns.settings.auth_mode {
            AuthMode::None => Principal::believed(user),
            AuthMode::Jwt => Err(NO_TOKENS_HERE),
        }
    }

    /// Whose token this is; a refusal is counted.
    pub fn principal_of_token(
        &self,
        conns: &mut Conns,
        token: &[u8],
    ) -> Result<Principal<'static>, Refusal> {
        let now_s = conns.clock.unix_ms() / 1_000;
        let rules = &conns.settings.token_rules;
        let checked = match self.keys() {
            Some(keys) => keys.check(token, rules, now_s),
            None => Err(Refusal::NoKeys),
        };
        conns.stats.count(checked.as_ref().map_or_else(|refusal| stat(*refusal), |_| Stat::Tokens));
        Ok(Principal::of_claims(checked?, rules.leeway_s))
    }
}
