//! The rights that the edge gives up before it reads the first byte of a client: an attacker who
//! takes it over has a process that can accept, read, write and wait, nothing else
//! (`docs/internals/sandbox.md`).
//!
//! - Landlock, from before the first thread on ([`files_and_ports`]): the socket directory, the
//!   directories of the certificates for reading, the two ports for listening.
//! - Capabilities, if root starts the edge ([`privileges`]): few until all workers listen, then
//!   none.
//! - seccomp, for all threads at once when everything listens ([`calls`]): the system calls of
//!   [`allowed`], some of them with certain arguments only. Calls that are not on the list don't
//!   exist (`ENOSYS`, which libc knows from older kernels); calls that only an intruder makes kill
//!   the process.
//!
//! None can be undone, and the edge runs without them: one line tells of what the kernel lacks, and
//! the rest is applied.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::log;

/// The rights that are asked for; an older kernel enforces those that it knows.
const RIGHTS: ABI = ABI::V6;

/// What stays open.
#[derive(Debug, Default)]
pub struct Needs {
    /// Directory of the workers' sockets: they are made and removed there.
    pub socket_dir: PathBuf,
    /// Files that are read again when they change.
    pub reads: Vec<PathBuf>,
    /// Ports to listen at.
    pub ports: Vec<u16>,
}

/// Gives up all files and ports but those that are needed, for the calling thread and those that
/// it starts from now on.
///
/// # Errors
/// When the kernel has Landlock but refuses these rules, in words.
pub fn files_and_ports(needs: &Needs) -> Result<(), String> {
    match restrict(needs).map_err(|e| format!("sandbox: {e}"))? {
        RulesetStatus::NotEnforced => {
            log!("sandbox: this kernel has no Landlock; files are guarded by seccomp alone");
        }
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => {}
    }
    Ok(())
}

fn restrict(needs: &Needs) -> Result<RulesetStatus, Box<dyn std::error::Error>> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(RIGHTS))?
        .handle_access(AccessNet::from_all(RIGHTS))?
        .scope(Scope::from_all(RIGHTS))?
        .create()?;
    let beneath = |path: &Path, access: BitFlags<AccessFs>| {
        let place = PathFd::new(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok::<_, Box<dyn std::error::Error>>(PathBeneath::new(place, access))
    };
    let sockets = AccessFs::MakeSock | AccessFs::RemoveFile;
    let socket_dir = beneath(&needs.socket_dir, sockets);
    rules = rules.add_rule(socket_dir.map_err(|e| format!("--socket-dir {e}"))?)?;
    for dir in needs.reads.iter().flat_map(|file| directories(file)) {
        rules = rules.add_rule(beneath(&dir, AccessFs::ReadFile.into())?)?;
    }
    for port in &needs.ports {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
    }
    let restricted: Result<_, RulesetError> = rules.restrict_self();
    Ok(restricted?.ruleset)
}

/// Where a file is, and where the one is that its links lead to: new ones come to the same places.
fn directories(file: &Path) -> Vec<PathBuf> {
    let parent = |file: &Path| match file.parent() {
        Some(dir) if dir.as_os_str().is_empty() => PathBuf::from("."),
        Some(dir) => dir.to_owned(),
        None => file.to_owned(),
    };
    let real = file.canonicalize().ok().map(|file| parent(&file));
    [Some(parent(file)), real].into_iter().flatten().filter(|dir| dir.is_dir()).collect()
}

/// Gives up all system calls but those of a process that serves what it has opened already, in all
/// threads. `reads`: files are read again when they change.
pub fn calls(reads: bool) {
    if let Err(error) = install(reads) {
        log!("sandbox: this kernel or processor has no seccomp ({error}); calls are not bounded");
    }
}

fn install(reads: bool) -> Result<(), seccompiler::Error> {
    let intruders = INTRUDERS.iter().map(|&call| (call, Vec::new())).collect();
    let kill = SeccompAction::KillProcess;
    seccompiler::apply_filter_all_threads(&program(intruders, SeccompAction::Allow, kill)?)?;
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    let list = program(allowed(reads)?, missing, SeccompAction::Allow)?;
    seccompiler::apply_filter_all_threads(&list)
}

/// What root's edge needs until its workers listen: low ports, and directories of other users.
pub const TO_LISTEN: u64 =
    halley_sys::CAP_NET_BIND_SERVICE | halley_sys::CAP_DAC_OVERRIDE | TO_READ;
/// What it needs to become another user (`user.rs`).
pub const TO_CHANGE: u64 = halley_sys::CAP_SETGID | halley_sys::CAP_SETUID;
/// What it needs to read certificates again that are other users'.
pub const TO_READ: u64 = halley_sys::CAP_DAC_READ_SEARCH;

/// Gives up root's privileges but these, for the calling thread and those that it starts from now
/// on. For another user there is nothing to give up.
pub fn privileges(kept: u64) {
    if let Err(error) = halley_sys::keep_capabilities(kept) {
        log!("sandbox: capabilities can't be given up ({error})");
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn program(
    rules: Rules,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, otherwise, matching, architecture)?.try_into()
}

/// What no part of the edge and none of its libraries ever asks for: other programs, other
/// processes' memory, the kernel's.
const INTRUDERS: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_mount,
    libc::SYS_pivot_root,
    libc::SYS_setns,
];

/// Calls that may have any argument.
const FREE: &[libc::c_long] = &[
    // What clients and the brain are served by.
    libc::SYS_accept4,
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_getsockopt,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_write,
    libc::SYS_writev,
    // The end.
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Memory, of the allocator and of stacks; mmap and mprotect are below.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads: their beginning, waiting and end; signals, also of a panic.
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    // Time, where the kernel doesn't tell it without a call; sleep; randomness.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
];

/// The same by their older names, which newer processors don't have.
#[cfg(target_arch = "x86_64")]
const FREE_BY_OLDER_NAMES: &[libc::c_long] =
    &[libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const FREE_BY_OLDER_NAMES: &[libc::c_long] = &[libc::SYS_ppoll];

/// Calls that are there to look at a file that was opened.
const FREE_OF_READERS: &[libc::c_long] =
    &[libc::SYS_fstat, libc::SYS_lseek, libc::SYS_newfstatat, libc::SYS_statx];

/// `PR_SET_VMA`, by which allocators name their memory.
const PR_SET_VMA: u64 = 0x5356_4d41;
/// A thread of this process, not a process: what glibc starts threads with has both.
const THREAD_FLAGS: u64 = (libc::CLONE_THREAD | libc::CLONE_VM) as u64;

/// The calls that remain, and of which arguments.
fn allowed(reads: bool) -> Result<Rules, BackendError> {
    let free = [FREE, FREE_BY_OLDER_NAMES].concat();
    let mut rules: Rules = free.into_iter().map(|call| (call, Vec::new())).collect();
    let one = |argument, length, operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, length, operator, value)?])
    };
    // Nothing that can be run is made.
    let not_executable = || one(2, Dword, MaskedEq(libc::PROT_EXEC as u64), 0);
    rules.insert(libc::SYS_mmap, vec![not_executable()?]);
    rules.insert(libc::SYS_mprotect, vec![not_executable()?]);
    // clone3, whose flags no filter sees, doesn't exist: glibc falls back to this.
    let thread = one(0, Qword, MaskedEq(THREAD_FLAGS), THREAD_FLAGS)?;
    rules.insert(libc::SYS_clone, vec![thread]);
    // Names of threads and of memory.
    let names = [libc::PR_SET_NAME as u64, PR_SET_VMA];
    let names = names.map(|option| one(0, Dword, Eq, option));
    rules.insert(libc::SYS_prctl, names.into_iter().collect::<Result<_, _>>()?);
    // Signals go to this process alone: a panic's end.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![one(0, Dword, Eq, own)?]);
    // Limits are looked at, not set.
    rules.insert(libc::SYS_prlimit64, vec![one(2, Qword, Eq, 0)?]);
    rules.insert(libc::SYS_fcntl, vec![one(1, Dword, Eq, libc::F_GETFD as u64)?]);
    if reads {
        let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_PATH;
        let reading = one(2, Dword, MaskedEq(writing as u64), libc::O_RDONLY as u64)?;
        rules.insert(libc::SYS_openat, vec![reading]);
        rules.extend(FREE_OF_READERS.iter().map(|&call| (call, Vec::new())));
    }
    Ok(rules)
}

#[cfg(test)]
#[path = "sandbox_tests.rs"]
mod tests;
