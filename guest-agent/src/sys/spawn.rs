//! Starting a program: everything between clone and exec.
//!
//! `process` prepares a [`Plan`] in which every string, pointer array and descriptor stands ready,
//! and [`start`] carries it out. The child borrows the parent's memory until it executes
//! (`CLONE_VM`), so nothing is copied and a failure is simply written where the parent reads it.
//! The parent stands still meanwhile (`CLONE_VFORK`). The price is discipline: the child allocates
//! nothing, takes no lock, and calls the kernel alone.
//!
//! A child that becomes another user while it shares the agent's memory cannot be traced by that
//! user: the kernel marks the memory non-dumpable at the change, and the agent keeps that mark.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::unistd::Pid;
use protocol::exit::SpawnStage;

use super::clone;

/// Who the program runs as. Descriptors and files are then checked by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// All that a start needs, made before it.
pub struct Plan<'a> {
    /// Paths to try one after the other.
    pub candidates: &'a [CString],
    pub arguments: &'a [CString],
    pub environment: &'a [CString],
    pub directory: &'a CStr,
    /// `None` keeps the agent's.
    pub identity: Option<&'a Identity>,
    /// Become the program's descriptors 0, 1, 2. All are above [`HANDED_LAST`].
    pub stdio: [BorrowedFd<'a>; 3],
    /// Becomes the program's descriptor 3. Above [`HANDED_LAST`].
    pub control: Option<BorrowedFd<'a>>,
    /// Whether `stdio` is a terminal that becomes the session's controlling one.
    pub terminal: bool,
    /// The directory of a control group to be born in.
    pub group: Option<BorrowedFd<'a>>,
    /// The soft limit of open files; the hard one stays.
    pub open_files_soft: u64,
}

/// The last descriptor number that a program may be handed; sources must lie above it, so that
/// putting one in place never overwrites another.
pub const HANDED_LAST: RawFd = 3;

/// The step that failed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    pub stage: SpawnStage,
    pub errno: i32,
}

/// What the child reads and where it reports. It lives on the parent's stack, which stands still.
struct Shared<'a> {
    plan: &'a Plan<'a>,
    /// Null-terminated arrays for execve.
    arguments: &'a [*const libc::c_char],
    environment: &'a [*const libc::c_char],
    /// The signals whose action has to become the default.
    signals_to_reset: u64,
    /// Whether the child must enter the group by itself, because it was not born there.
    enter_group: bool,
    failure: Cell<Option<Failure>>,
}

/// Enough for the frames below, which hold no buffers; debug builds use about 4 KiB.
const STACK_BYTES: usize = 32 * 1024;

/// A stack that begins and ends as the ABI asks.
#[repr(align(16))]
struct Stack(MaybeUninit<[u8; STACK_BYTES]>);

/// Starts the program and returns when it executes, or has failed to. A child that failed has
/// ended, and is left for the reaper, which reaps those that it does not know too.
pub fn start(plan: &Plan<'_>) -> Result<Pid, Failure> {
    let arguments = null_terminated(plan.arguments);
    let environment = null_terminated(plan.environment);
    let mut shared = Shared {
        plan,
        arguments: &arguments,
        environment: &environment,
        signals_to_reset: *SIGNALS_NOT_DEFAULT.get_or_init(signals_not_default),
        enter_group: false,
        failure: Cell::new(None),
    };
    let mut stack = Stack(MaybeUninit::uninit());

    // No handler of ours may run in the child, where it would act on the parent's memory.
    let mut mask_before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut mask_before))
        .expect("SIG_SETMASK with a full set is valid");
    let born = clone_into_group(&shared, &mut stack).unwrap_or_else(|| {
        shared.enter_group = plan.group.is_some();
        clone_plainly(&shared, &mut stack)
    });
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&mask_before), None)
        .expect("the mask that was read is valid");

    let pid = born.map_err(|error| Failure {
        stage: SpawnStage::Fork,
        errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
    })?;
    match shared.failure.get() {
        None => Ok(pid),
        Some(failure) => Err(failure),
    }
}

/// `None` when this kernel, or a filter around us, does not let a child be born in a group.
fn clone_into_group(shared: &Shared<'_>, stack: &mut Stack) -> Option<io::Result<Pid>> {
    let group = shared.plan.group?;
    let argument = ptr::from_ref(shared).cast_mut().cast();
    let stack = stack.0.as_mut_ptr().cast();
    // SAFETY: `stack` is writable for its length and unused, `child` never returns, and all that
    // it reads outlives it, because the clone suspends us until the child has executed or ended.
    match unsafe { clone::into_group(group, child, argument, stack, STACK_BYTES) } {
        Ok(pid) => Some(Ok(pid)),
        // These two would befall any clone.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM)) => {
            Some(Err(error))
        }
        Err(_) => None,
    }
}

fn clone_plainly(shared: &Shared<'_>, stack: &mut Stack) -> io::Result<Pid> {
    let argument = ptr::from_ref(shared).cast_mut().cast();
    let stack = stack.0.as_mut_ptr().cast();
    // SAFETY: as in `clone_into_group`.
    unsafe { clone::plainly(child, argument, stack, STACK_BYTES) }
}

fn null_terminated(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// The child's first and last function.
extern "C" fn child(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` passes a `Shared` that outlives the child, and the parent does not run.
    let shared = unsafe { &*shared.cast::<Shared<'_>>() };
    let Err(failure) = become_program(shared);
    shared.failure.set(Some(failure));
    // SAFETY: ends this process alone, without running anything registered by the parent.
    unsafe { libc::_exit(127) }
}

/// The steps in order. Returns only if one of them fails.
fn become_program(shared: &Shared<'_>) -> Result<std::convert::Infallible, Failure> {
    let plan = shared.plan;
    reset_signals(shared.signals_to_reset);
    if shared.enter_group {
        enter_group(plan).map_err(|errno| Failure { stage: SpawnStage::Cgroup, errno })?;
    }
    lead_session(plan).map_err(|errno| Failure { stage: SpawnStage::Terminal, errno })?;
    place_descriptors(plan).map_err(|errno| Failure { stage: SpawnStage::Stdio, errno })?;
    limit_open_files(plan.open_files_soft);
    if let Some(identity) = plan.identity {
        assume(identity).map_err(|errno| Failure { stage: SpawnStage::Identity, errno })?;
    }
    // As the user, so that a directory that the user may not enter is refused.
    // SAFETY: the directory is a C string of the plan.
    check(unsafe { libc::syscall(libc::SYS_chdir, plan.directory.as_ptr()) })
        .map_err(|errno| Failure { stage: SpawnStage::WorkingDirectory, errno })?;
    // SAFETY: takes a number.
    unsafe { libc::syscall(libc::SYS_umask, 0o022) };
    unblock_signals();
    Err(Failure { stage: SpawnStage::Exec, errno: execute(shared) })
}

/// The signals that the agent ignores or handles: bit 0 is signal 1. Asked for once, since the agent
/// changes none after it has begun, and 64 questions for each start would show.
static SIGNALS_NOT_DEFAULT: OnceLock<u64> = OnceLock::new();

/// `struct sigaction` of the kernel. Its first word is the handler, where zero is the default.
type KernelAction = [u64; 4];

fn signals_not_default() -> u64 {
    (1..=64).filter(|signal| action_of(*signal)[0] != 0).fold(0, |set, signal| set | bit(signal))
}

fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

fn action_of(signal: u32) -> KernelAction {
    let mut action = KernelAction::default();
    // SAFETY: the kernel writes its 32 bytes, which `action` is.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            ptr::null::<KernelAction>(),
            &raw mut action,
            KERNEL_SIGSET_BYTES,
        )
    };
    action
}

/// Ignored signals would stay ignored over exec, and the agent ignores SIGPIPE, as every Rust
/// program does, and whatever it was itself started with.
fn reset_signals(set: u64) {
    for signal in (1..=64).filter(|signal| set & bit(*signal) != 0) {
        let action = KernelAction::default();
        // SAFETY: the kernel reads its 32 bytes, which `action` is.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                &raw const action,
                ptr::null::<KernelAction>(),
                KERNEL_SIGSET_BYTES,
            )
        };
    }
}

/// The kernel's signal set has 64 bits, whatever the C library's is.
const KERNEL_SIGSET_BYTES: usize = 8;

fn unblock_signals() {
    let none = 0_u64;
    // SAFETY: the kernel reads 8 bytes, which `none` is.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            ptr::null::<u64>(),
            KERNEL_SIGSET_BYTES,
        )
    };
}

fn enter_group(plan: &Plan<'_>) -> Result<(), i32> {
    let Some(group) = plan.group else { return Ok(()) };
    let name = c"cgroup.procs".as_ptr();
    // SAFETY: the name is a C string.
    let file = check(unsafe {
        libc::syscall(libc::SYS_openat, group.as_raw_fd(), name, libc::O_WRONLY | libc::O_CLOEXEC)
    })?;
    // A zero stands for the writer.
    // SAFETY: the buffer is one byte long.
    check(unsafe { libc::syscall(libc::SYS_write, file, c"0".as_ptr(), 1_usize) })?;
    // SAFETY: the descriptor was opened above and is not used again.
    check(unsafe { libc::syscall(libc::SYS_close, file) })?;
    Ok(())
}

/// A session of its own is a process group of its own too, and what a terminal can belong to.
fn lead_session(plan: &Plan<'_>) -> Result<(), i32> {
    // SAFETY: takes nothing.
    check(unsafe { libc::syscall(libc::SYS_setsid) })?;
    if plan.terminal {
        let terminal = plan.stdio[0].as_raw_fd();
        // SAFETY: takes numbers.
        check(unsafe { libc::syscall(libc::SYS_ioctl, terminal, libc::TIOCSCTTY, 0_usize) })?;
    }
    Ok(())
}

fn place_descriptors(plan: &Plan<'_>) -> Result<(), i32> {
    let control = plan.control.as_ref();
    for (target, source) in plan.stdio.iter().chain(control).enumerate() {
        // Unlike its source, the copy stays open over exec.
        // SAFETY: takes numbers; what was at the target is the child's own table's entry.
        check(unsafe { libc::syscall(libc::SYS_dup3, source.as_raw_fd(), target, 0) })?;
    }
    // Everything of the agent is close-on-exec; this is for what it was itself started with.
    let first = 3 + usize::from(control.is_some());
    // SAFETY: takes numbers. A kernel older than 5.11 refuses, and the first line holds.
    unsafe {
        libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    Ok(())
}

/// A limit that cannot be set stays as it is.
fn limit_open_files(soft: u64) {
    let mut limit = [0_u64; 2];
    // SAFETY: the kernel writes its 16 byte `rlimit64`, which `limit` is.
    unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_NOFILE,
            ptr::null::<u64>(),
            limit.as_mut_ptr(),
        )
    };
    limit[0] = soft.min(limit[1]);
    // SAFETY: the kernel reads the same.
    unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_NOFILE,
            limit.as_ptr(),
            ptr::null::<u64>(),
        )
    };
}

/// By system calls, because the C library's functions would change every thread of the parent.
fn assume(identity: &Identity) -> Result<(), i32> {
    let Identity { uid, gid, groups } = identity;
    // SAFETY: the kernel reads as many ids as the vector has.
    let grouped =
        check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) });
    // SAFETY: takes nothing.
    let current = unsafe { libc::syscall(libc::SYS_geteuid) };
    match grouped {
        // A user namespace of an ordinary user forbids it; one who stays who he is loses nothing.
        Err(libc::EPERM) if current == i64::from(*uid) => {}
        result => drop(result?),
    }
    // SAFETY: takes numbers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid) })?;
    // SAFETY: takes numbers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid) })?;
    Ok(())
}

/// Tries every candidate and says why the most promising one failed.
fn execute(shared: &Shared<'_>) -> i32 {
    let mut verdict = libc::ENOENT;
    for candidate in shared.plan.candidates {
        // SAFETY: a C string and two null-terminated arrays of C strings, all of the plan.
        let Err(errno) = check(unsafe {
            libc::syscall(
                libc::SYS_execve,
                candidate.as_ptr(),
                shared.arguments.as_ptr(),
                shared.environment.as_ptr(),
            )
        }) else {
            continue;
        };
        match errno {
            libc::ENOENT | libc::ENOTDIR => {}
            // A program further on may still be executable.
            libc::EACCES => verdict = libc::EACCES,
            _ => return errno,
        }
    }
    verdict
}

/// The result of a system call, or its errno.
fn check(result: libc::c_long) -> Result<libc::c_long, i32> {
    if result >= 0 {
        return Ok(result);
    }
    // SAFETY: takes nothing.
    let errno = unsafe { libc::__errno_location() };
    // It is the parent's thread-local variable, which the child shares and the parent, standing
    // still, does not miss.
    // SAFETY: the pointer is to a live variable of this thread.
    Err(unsafe { *errno })
}
