//! Who asks: by its token, or by what it says where nobody has one (`who.rs`).

use std::borrow::Cow;

use halley_token::Refusal;
use halley_wire::HttpError;
use halley_wire::http1::head::Request;
use halley_wire::target;

use crate::sessions::state::{Io, Sessions};
use crate::sessions::who::{
    Asker, NO_TOKENS_HERE, OTHER_USER, USER_MISSING, refused, stat, token_of,
};
use crate::settings::AuthMode;
use crate::stats::Stat;

impl Sessions {
    /// Who asks for this.
    ///
    /// # Errors
    /// What http.md 14.1 to 14.4 say.
    pub fn asker<'r>(&mut self, io: &mut Io, req: &Request<'r>) -> Result<Asker<'r>, HttpError> {
        let named = target::query_value(req.target, "user")?;
        if io.conns.settings.auth_mode == AuthMode::None {
            return Asker::believed(named.ok_or(USER_MISSING)?);
        }
        let token = token_of(req).inspect_err(|_| io.conns.stats.count(Stat::TokensMissing))?;
        let asker = self.asker_of_token(io, token.as_bytes()).map_err(refused)?;
        match named {
            Some(named) if named != asker.user => {
                io.conns.stats.count(Stat::TokensOfOthers);
                Err(OTHER_USER)
            }
            _ => Ok(asker),
        }
    }

    /// Who asks for `/test/<user>`.
    ///
    /// # Errors
    /// Where tokens are needed (14.1).
    pub fn asker_by_path<'r>(&self, io: &Io, user: Cow<'r, str>) -> Result<Asker<'r>, HttpError> {
        match io.conns.settings.auth_mode {
            AuthMode::None => Asker::believed(user),
            AuthMode::Jwt => Err(NO_TOKENS_HERE),
        }
    }

    /// Whose token this is; a refusal is counted.
    pub fn asker_of_token(&mut self, io: &mut Io, token: &[u8]) -> Result<Asker<'static>, Refusal> {
        let now_s = io.conns.clock.unix_ms() / 1_000;
        let rules = &io.conns.settings.token_rules;
        let checked = match &self.tokens.keys {
            Some(keys) => keys.check(token, rules, now_s),
            None => Err(Refusal::NoKeys),
        };
        io.conns
            .stats
            .count(checked.as_ref().map_or_else(|refusal| stat(*refusal), |_| Stat::Tokens));
        Ok(Asker::of_claims(checked?, rules.leeway_s))
    }
}
