//! The user that root's edge becomes when it listens: `edge.user` (`docs/internals/sandbox.md`).
//!
//! The name is looked up before the sandbox closes the machine's tables; the change comes when the
//! ports, the sockets of the link and the certificates are open, for all threads at once, and
//! before the first client. It can't be taken back. A certificate that couldn't be read again as
//! this user is refused here and not weeks later, when it is renewed.

use std::fs::File;

use halley_sys::User;

use crate::config::Config;

/// The user to become; `None` if the process is that user already, or is to stay who it is.
///
/// # Errors
/// A sentence that names the configuration's key.
pub fn wanted(config: &Config) -> Result<Option<User>, String> {
    let Some(name) = &config.user else { return Ok(None) };
    let wrong = |what: &str| format!("edge.user = {name}: {what}");
    let user = User::named(name)
        .map_err(|e| wrong(&format!("the machine's users can't be looked up ({e})")))?
        .ok_or_else(|| {
            wrong("this machine has no such user; make one (adduser --system), or name another")
        })?;
    match () {
        () if user.is_root() => Err(wrong("it has root's rights; name a user that has none")),
        () if user.is_this_process() => Ok(None),
        () if !halley_sys::is_root() => {
            Err(wrong("only root can become another user; start Halley as that user, or as root"))
        }
        () => Ok(Some(user)),
    }
}

/// Becomes that user, which must be able to read the files that are read again.
///
/// # Errors
/// A sentence that names the configuration's key.
pub fn become_user(user: &User, config: &Config) -> Result<(), String> {
    let name = config.user.as_deref().unwrap_or_default();
    user.take_over().map_err(|e| format!("edge.user = {name}: the edge can't become it ({e})"))?;
    for (key, file) in config.read_again() {
        File::open(file).map_err(|e| {
            format!(
                "{key}: {} can't be read by {name} of edge.user ({e}), and is read again when it \
                 changes; give the file and its directory a group that {name} is in",
                file.display()
            )
        })?;
    }
    Ok(())
}
