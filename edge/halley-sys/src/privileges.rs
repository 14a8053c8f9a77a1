//! What the kernel lets a thread of root do (capabilities(7)).

use std::io;

use crate::check;

/// Opening files whatever their permissions say.
pub const CAP_DAC_OVERRIDE: u64 = 1 << 1;
/// The same, for reading alone.
pub const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
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
