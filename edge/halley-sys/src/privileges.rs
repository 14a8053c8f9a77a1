//! The rights of root's threads (capabilities(7)), and how root becomes another user.

use std::ffi::CString;
use std::io;
use std::ptr;

use crate::check;

/// Opening files whatever their permissions say.
pub const CAP_DAC_OVERRIDE: u64 = 1 << 1;
/// The same, for reading alone.
pub const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
/// Changing groups.
pub const CAP_SETGID: u64 = 1 << 6;
/// Changing the user.
pub const CAP_SETUID: u64 = 1 << 7;
/// Listening at ports below 1024.
pub const CAP_NET_BIND_SERVICE: u64 = 1 << 10;

/// `_LINUX_CAPABILITY_VERSION_3`: 64 capabilities, in two halves.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    thread: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up all capabilities of the calling thread but these, of which it keeps those that it has.
/// Threads that it starts from now on have no more; none can be had back.
///
/// # Errors
/// What the kernel says, or a sandbox.
pub fn keep_capabilities(kept: u64) -> io::Result<()> {
    let mut header = Header { version: VERSION, thread: 0 };
    let mut halves = [Half::default(); 2];
    // SAFETY: `header` and two halves, as this version wants, are live and writable for the call.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) as i32 })?;
    for (half, kept) in halves.iter_mut().zip([kept as u32, (kept >> 32) as u32]) {
        half.effective &= kept;
        half.permitted &= kept;
        half.inheritable = 0;
    }
    // SAFETY: the same; the kernel only reads.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, halves.as_ptr()) as i32 })
}

/// Whether this process is root's.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: no pointers; it can't fail.
    unsafe { libc::geteuid() == 0 }
}

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    id: libc::uid_t,
    group: libc::gid_t,
    /// All groups, the one above among them.
    groups: Vec<libc::gid_t>,
}

/// The longest row of the table of users that is read.
const ROW_BYTES_MAX: usize = 65_536;
/// Groups of one user that are read.
const GROUPS_MAX: usize = 65_536;

impl User {
    /// The user of this name, `None` if there is none. It reads what the machine's table of users
    /// is made of, `/etc/passwd` and `/etc/group` at least.
    ///
    /// # Errors
    /// What the system says when the table can't be read; `InvalidInput` for a name with a zero.
    pub fn named(name: &str) -> io::Result<Option<User>> {
        let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut row = vec![0u8; ROW_BYTES_MAX];
        // SAFETY: a passwd of zeros is one: its pointers are null.
        let mut found: libc::passwd = unsafe { std::mem::zeroed() };
        let mut result = ptr::null_mut();
        // SAFETY: all pointers are to live memory for the call, `row` has the length that is said.
        let error = unsafe {
            let bytes = row.as_mut_ptr().cast();
            libc::getpwnam_r(name.as_ptr(), &raw mut found, bytes, row.len(), &raw mut result)
        };
        match (error, result.is_null()) {
            (0, false) => {
                let (id, group) = (found.pw_uid, found.pw_gid);
                Ok(Some(User { id, group, groups: groups(&name, group) }))
            }
            // getpwnam(3): these too say that there is no such user.
            (0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM, _) => Ok(None),
            (error, _) => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Is it root, by whatever name?
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.id == 0
    }

    /// Is it the one that this process is?
    #[must_use]
    pub fn is_this_process(&self) -> bool {
        // SAFETY: no pointers; it can't fail.
        self.id == unsafe { libc::geteuid() }
    }

    /// Makes all threads of this process this user's, with its groups: no capability stays, and
    /// there is no way back.
    ///
    /// # Errors
    /// What the kernel says to one who isn't root; `Other` if something of root was left.
    pub fn take_over(&self) -> io::Result<()> {
        // SAFETY: the pointer is to so many live groups, and only read.
        check(unsafe { libc::setgroups(self.groups.len(), self.groups.as_ptr()) })?;
        // SAFETY: no pointers. The library changes all threads (setuid(2), "C library/kernel
        // differences"); what they have open stays open.
        check(unsafe { libc::setgid(self.group) })?;
        // SAFETY: the same.
        check(unsafe { libc::setuid(self.id) })?;
        // SAFETY: no pointers.
        let is_back = unsafe { libc::setuid(0) } == 0 || is_root();
        if is_back { Err(io::Error::other("root's rights are left")) } else { Ok(()) }
    }
}

/// The groups of a user by name, its own one among them.
fn groups(name: &CString, own: libc::gid_t) -> Vec<libc::gid_t> {
    let mut found = vec![own; GROUPS_MAX];
    let mut count = GROUPS_MAX as libc::c_int;
    // SAFETY: `found` has `count` places; the name ends in a zero.
    let fit =
        unsafe { libc::getgrouplist(name.as_ptr(), own, found.as_mut_ptr(), &raw mut count) } != -1;
    let count = if fit { usize::try_from(count).unwrap_or(0) } else { 1 };
    found.truncate(count);
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let root = User::named("root").unwrap().unwrap();
        assert!(root.is_root() && root.groups.contains(&root.group));
        assert_eq!(User::named("nobody of this name").unwrap(), None);
        assert_eq!(User::named("a\0b").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let daemon = User::named("daemon").unwrap().unwrap();
        assert!(!daemon.is_root() && !daemon.is_this_process());
        assert_eq!(root.is_this_process(), is_root());
    }

    #[test]
    fn who_is_not_root_becomes_nobody_else() {
        if is_root() {
            // tests/edge/user.rs has a process of its own for it.
            return;
        }
        assert!(User::named("daemon").unwrap().unwrap().take_over().is_err());
    }
}
