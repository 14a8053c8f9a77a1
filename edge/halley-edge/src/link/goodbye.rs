//! Why a link ends, and which GOODBYE says so (`protocol/link.md` 1.3, 2.7).

use halley_link::{Error, GoodbyeCode, RawFrame, VERSION, VERSION_MIN};

/// Why a link ends.
pub enum LinkEnd {
    /// The brain broke a clause.
    Broken(GoodbyeCode, String),
    /// The brain said goodbye.
    Goodbye(String),
}

impl LinkEnd {
    /// A clause was broken that the codec can't see.
    pub fn broken(clause: &'static str, what: &'static str) -> LinkEnd {
        Error { clause, what }.into()
    }

    /// A frame that can't be read. A hello of another version is answered by both (3.2).
    pub fn unread(error: Error, raw: &RawFrame<'_>) -> LinkEnd {
        const MAGIC_BYTES: usize = 4;
        let theirs = raw.payload.get(MAGIC_BYTES..).and_then(<[u8]>::first_chunk);
        match theirs.filter(|_| error.clause == "3.2") {
            Some(theirs) => {
                let theirs = u16::from_be_bytes(*theirs);
                LinkEnd::version(&format!("version {theirs}"))
            }
            None => error.into(),
        }
    }

    /// There is no version in common (3.2).
    pub fn version(theirs: &str) -> LinkEnd {
        let why = format!(
            "the brain speaks {theirs}, this edge versions {VERSION_MIN} to {VERSION} (3.2)"
        );
        LinkEnd::Broken(GoodbyeCode::Version, why)
    }
}

impl From<Error> for LinkEnd {
    fn from(error: Error) -> LinkEnd {
        let code = match error.clause {
            "3.2" => GoodbyeCode::Version,
            "3.1" | "3.3" | "4.1" => GoodbyeCode::Handshake,
            _ => GoodbyeCode::BadFrame,
        };
        LinkEnd::Broken(code, error.to_string())
    }
}
