//! Query parameters that are almost known (`protocol/http.md` 4.4). A page that writes `subjcts=`
//! would get a stream without the events that it wants, and nothing would say why.
//!
//! Other unknown parameters are ignored: proxies, analytics and breakers of caches add some.

use halley_wire::HttpError;
use halley_wire::target;

/// What can be read of a request for a session, with the answer to what is almost that.
const KNOWN: [(&str, HttpError); 8] = [
    ("subjects", parameter("A parameter is unknown here: did you mean subjects=?")),
    ("subject", parameter("A parameter is unknown here: did you mean subject=?")),
    ("presence", parameter("A parameter is unknown here: did you mean presence=?")),
    ("timeout", parameter("A parameter is unknown here: did you mean timeout=?")),
    ("cursor", cursor("A parameter is unknown here: did you mean cursor=?")),
    ("token", parameter("A parameter is unknown here: did you mean token=?")),
    ("user", parameter("A parameter is unknown here: did you mean user=?")),
    ("last", parameter("A parameter is unknown here: did you mean last=?")),
];
/// A letter in place of another is another word where a name is shorter: `fast`, `list`.
const REPLACED_BYTES_MIN: usize = 5;

const fn parameter(message: &'static str) -> HttpError {
    HttpError::new(400, "unknown_parameter", message)
}

/// As whatever else seems to be a cursor (10.1).
const fn cursor(message: &'static str) -> HttpError {
    HttpError::new(400, "unknown_cursor", message)
}

/// # Errors
/// 400 for a parameter that is almost one of those that count.
pub fn check(target: &str) -> Result<(), HttpError> {
    for (name, _) in target::query_pairs(target).flatten() {
        if KNOWN.iter().all(|(known, _)| name != *known) {
            let meant =
                KNOWN.iter().filter_map(|(known, error)| Some((slips(&name, known)?, error)));
            meant.min_by_key(|(slips, _)| *slips).map_or(Ok(()), |(_, error)| Err(*error))?;
        }
    }
    Ok(())
}

/// How far from `known` a name is that a person may have meant so: 0 in other case or with `-` or
/// `_`, 1 with one slip.
fn slips(name: &str, known: &str) -> Option<u8> {
    // Others' names may be long, and a letter may have several bytes.
    if name.len() > 2 * known.len() {
        return None;
    }
    let name: Vec<u8> = name
        .bytes()
        .filter(|byte| !matches!(byte, b'-' | b'_'))
        .map(|byte| byte.to_ascii_lowercase())
        .collect();
    let known = known.as_bytes();
    let same = name.iter().zip(known).take_while(|(left, right)| left == right).count();
    let (name, known, is_long) = (&name[same..], &known[same..], known.len() >= REPLACED_BYTES_MIN);
    match (name, known) {
        ([], []) => Some(0),
        ([a, b, name @ ..], [c, d, known @ ..]) if (a, b) == (d, c) && name == known => Some(1),
        ([_, name @ ..], known) if name == known => Some(1),
        (name, [_, known @ ..]) if is_long && name == known => Some(1),
        ([_, name @ ..], [_, known @ ..]) if is_long && name == known => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// http.md 4.4.
    #[test]
    fn what_is_almost_known() {
        for (meant, names) in [
            ("subjects", ["subjcts", "subejcts", "Subjects", "sub-jects", "subjectss", "sabjects"]),
            ("subject", ["subjet", "sbject", "SUBJECT", "subject_", "subiect", "ssubject"]),
            ("presence", ["presense", "presences", "precence", "prescence", "Presence", "presnce"]),
            ("timeout", ["time_out", "timout", "timeuot", "timeOut", "tiemout", "time-out"]),
            ("cursor", ["curser", "curosr", "cursr", "cursors", "CURSOR", "c_ursor"]),
            ("token", ["tokne", "tokn", "tokens", "Token", "toke", "to_ken"]),
            ("user", ["users", "usre", "User", "USER", "_user", "usser"]),
            ("last", ["lasts", "lsat", "Last", "_last", "laast", "la-st"]),
        ] {
            for name in names {
                let Err(error) = check(&format!("/v1/stream?a=1&{name}=x")) else {
                    panic!("{name} is let pass")
                };
                let what = if meant == "cursor" { "cursor" } else { "parameter" };
                assert_eq!(error.code, format!("unknown_{what}"));
                assert!(error.message.contains(&format!(" {meant}=")), "{name}: {error}");
            }
        }
    }

    /// http.md 4.4.
    #[test]
    fn what_others_add() {
        for query in [
            "",
            "user=ann&token=t&cursor=c&subjects=a&subject=b&subject=c&presence=d&last=1&timeout=2",
            "_=1700000000&t=1&v=2&ts=3&cb=4&nocache=5&rnd=6&r=7",
            "utm_source=a&utm_medium=b&utm_campaign=c&utm_term=d&utm_content=e&fbclid=f&gclid=g",
            "lat=1&list=2&fast=3&past=4&used=5&ref=6&lang=7&sid=8&EIO=4&transport=polling",
            "lastEventId=c&timestamp=1&session=2&topic=3&channel=4&time=5&out=6&use=7",
            "%zz=1&%ff=2&&=&%E2%82%AC=3",
        ] {
            assert_eq!(check(&format!("/v1/stream?{query}")), Ok(()), "{query}");
        }
    }
}
