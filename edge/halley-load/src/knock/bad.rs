//! Tokens that must be refused. Pure.

use crate::token::{Signer, now_s};

/// How many are made; they are shown in turn.
const TOKENS: u64 = 1_024;
/// For how long they would be good.
const LIFE_S: u64 = 86_400;
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// Which tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// In order but for the signature, so that it must be computed
    Signature,
    /// Half of them that, half of them whatever is refused for another reason
    Mixed,
}

/// Each token is another user's.
#[must_use]
pub fn tokens(signer: &Signer, kind: Kind) -> Vec<String> {
    let stranger = Signer::new(b"a secret that the server has never seen");
    let junk_of = |number: u64| match kind {
        Kind::Mixed if number % 2 == 1 => Some(number / 2),
        _ => None,
    };
    let token = |number: u64| {
        let user = format!("u{number}");
        match junk_of(number) {
            Some(which) => junk(signer, &user, which),
            None => signed(&stranger, HEADER, &claims(&user, now_s() + LIFE_S)),
        }
    };
    (0..TOKENS).map(token).collect()
}

fn junk(signer: &Signer, user: &str, which: u64) -> String {
    let later = now_s() + LIFE_S;
    let good = claims(user, later);
    match which % 10 {
        0 => user.to_owned(),
        1 => format!("{user}.{user}"),
        2 => "x".repeat(2_000),
        3 => signed(signer, HEADER, &good).replace('.', "=."),
        4 => signed(signer, r#"{"alg":"none"}"#, &good),
        5 => signed(signer, r#"{"alg":"RS256"}"#, &good),
        6 => signed(signer, r#"{"alg":"HS256","crit":["exp"]}"#, &good),
        7 => signed(signer, HEADER, &good) + ".AA.AA",
        8 => signed(signer, HEADER, &claims(user, now_s() - LIFE_S)),
        _ => signed(signer, HEADER, &claims("", later)),
    }
}

fn claims(user: &str, expires_s: u64) -> String {
    serde_json::json!({"sub": user, "exp": expires_s}).to_string()
}

fn signed(signer: &Signer, header: &str, claims: &str) -> String {
    let mut token = String::new();
    signer.push_signed(header, claims, &mut token);
    token
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_token_is_good_and_they_differ() {
        let signer = Signer::new(&[7; 32]);
        for (kind, least) in [(Kind::Signature, 1_024), (Kind::Mixed, 900)] {
            let tokens = tokens(&signer, kind);
            let different: BTreeSet<&String> = tokens.iter().collect();
            assert!(different.len() >= least, "{}", different.len());
            assert!(tokens.iter().all(|token| token.bytes().all(|byte| byte.is_ascii_graphic())));
            let good = (0..TOKENS).map(|number| {
                signed(&signer, HEADER, &claims(&format!("u{number}"), now_s() + LIFE_S))
            });
            assert!(good.into_iter().all(|good| !different.contains(&good)));
        }
    }

    #[test]
    fn every_other_one_is_junk_where_they_are_mixed() {
        let tokens = tokens(&Signer::new(&[7; 32]), Kind::Mixed);
        let parts = |token: &String| token.split('.').count();
        assert!(tokens.iter().step_by(2).all(|token| parts(token) == 3));
        let junk: BTreeSet<usize> = tokens.iter().skip(1).step_by(2).map(parts).collect();
        assert_eq!(junk, BTreeSet::from([1, 2, 3, 5]));
    }
}
