//! Starting a program: everything between clone and exec.
//!
//! `process` prepares a [`Plan`] in which every string, pointer array and descriptor is ready, and
//! [`start`] carries it out, on a thread of `pid1::spawners`. The child borrows the parent's memory until
//! it executes (`CLONE_VM`), so nothing is copied and the child writes a failure directly where the parent
//! reads it. The parent's thread is suspended meanwhile (`CLONE_VFORK`); its other threads run on, so the
//! child must not allocate or take locks, and may only make system calls. It has that thread's `errno`,
//! credentials and mask.
//!
//! A child that becomes another user while it shares the agent's memory cannot be traced by that
//! user: the kernel marks the memory non-dumpable at the change, and the agent keeps that mark.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, ResolveFlag};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::unistd::{Pid, chdir, fchdir};
use protocol::exit::SpawnStage;

use super::lookup::{self, Refused};
use super::oom::Exposed;
use super::{clone, oom, seccomp};

/// The program's user. The kernel then checks descriptors and files for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// All that a start needs, prepared before it.
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
    /// The directory of the control group to be born in.
    pub group: Option<BorrowedFd<'a>>,
    /// The limits of open files, soft and hard.
    pub open_files: [u64; 2],
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

/// A start as other threads see it, from before its child is born.
#[derive(Default)]
pub struct Birth {
    /// The child, once it is born. The kernel writes the number before the child runs.
    number: AtomicI32,
    /// Until the child has its score.
    exposed: Mutex<Option<Exposed>>,
}

impl Birth {
    /// The child; `None` before its birth, and after a start that has failed.
    pub fn child(&self) -> Option<Pid> {
        let number = self.number.load(Ordering::Acquire);
        (number > 0).then(|| Pid::from_raw(number))
    }

    /// Gives the agent its own score back if the child is born, although it has not executed yet.
    pub fn settle(&self) {
        if self.child().is_some() {
            drop(self.exposed().take());
        }
    }

    fn exposed(&self) -> MutexGuard<'_, Option<Exposed>> {
        self.exposed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocks every signal for the calling thread, for good: no handler of the agent may run in a child, where
/// it would act on the parent's memory.
pub fn block_signals() {
    // `expect` would bring the names of all errors into the agent.
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)
        .unwrap_or_else(|_| unreachable!("SIG_SETMASK with a full set is valid"));
}

/// The child's input and its report. It is on the stack of the parent's thread, which is suspended.
struct Shared<'a> {
    plan: &'a Plan<'a>,
    /// Null-terminated arrays for execve.
    arguments: &'a [*const libc::c_char],
    environment: &'a [*const libc::c_char],
    /// The signals whose action has to become the default.
    signals_to_reset: Cell<u64>,
    /// Whether the child must enter the group by itself, because it was not born there.
    enter_group: bool,
    /// Whether the agent has a filter of system calls, which programs get one call less of.
    is_filtered: bool,
    failure: Cell<Option<Failure>>,
}

/// Enough for the frames below, which hold no buffers; debug builds use about 4 KiB.
const STACK_BYTES: usize = 32 * 1024;

/// A stack that begins and ends as the ABI asks.
#[repr(align(16))]
struct Stack(MaybeUninit<[u8; STACK_BYTES]>);

/// Starts the program and returns when it executes, or has failed to. A child that failed has
/// ended, and is left for the reaper, which reaps those that it does not know too. The calling thread has
/// [blocked all signals](block_signals), and outlives the child: the kernel takes the end of a thread for
/// the death of its children's parent.
pub fn start(plan: &Plan<'_>, birth: &Birth) -> Result<(), Failure> {
    let arguments = null_terminated(plan.arguments);
    let environment = null_terminated(plan.environment);
    let signals = SIGNALS_NOT_DEFAULT.get_or_init(signals_not_default);
    let mut shared = Shared {
        plan,
        arguments: &arguments,
        environment: &environment,
        // A child that is born in a group has no handlers.
        signals_to_reset: Cell::new(signals.ignored),
        enter_group: false,
        is_filtered: seccomp::is_closed(),
        failure: Cell::new(None),
    };
    let mut stack = Stack(MaybeUninit::uninit());

    *birth.exposed() = Some(oom::expose());
    let born = clone_into_group(&shared, birth, &mut stack).unwrap_or_else(|| {
        shared.enter_group = plan.group.is_some();
        shared.signals_to_reset.set(signals.ignored | signals.handled);
        clone_plainly(&shared, birth, &mut stack)
    });
    drop(birth.exposed().take());

    let fork_failed = |error: io::Error| Failure {
        stage: SpawnStage::Fork,
        errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
    };
    let started = match born {
        Ok(_) => shared.failure.get().map_or(Ok(()), Err),
        Err(error) => Err(fork_failed(error)),
    };
    if started.is_err() {
        birth.number.store(0, Ordering::Release);
    }
    started
}

/// `None` when this kernel, or a filter around us, does not let a child be born in a group.
fn clone_into_group(
    shared: &Shared<'_>,
    birth: &Birth,
    stack: &mut Stack,
) -> Option<io::Result<Pid>> {
    let group = shared.plan.group?;
    let argument = ptr::from_ref(shared).cast_mut().cast();
    let stack = stack.0.as_mut_ptr().cast();
    // SAFETY: `stack` is writable for its length and unused, `child` never returns, and all that
    // it reads outlives it, because the clone suspends us until the child has executed or ended.
    match unsafe { clone::into_group(group, &birth.number, child, argument, stack, STACK_BYTES) } {
        Ok(pid) => Some(Ok(pid)),
        // These two would befall any clone.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM)) => {
            Some(Err(error))
        }
        Err(_) => None,
    }
}

fn clone_plainly(shared: &Shared<'_>, birth: &Birth, stack: &mut Stack) -> io::Result<Pid> {
    let argument = ptr::from_ref(shared).cast_mut().cast();
    let stack = stack.0.as_mut_ptr().cast();
    // SAFETY: as in `clone_into_group`.
    unsafe { clone::plainly(&birth.number, child, argument, stack, STACK_BYTES) }
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
    reset_signals(shared.signals_to_reset.get());
    if shared.enter_group {
        enter_group(plan).map_err(|errno| Failure { stage: SpawnStage::Cgroup, errno })?;
    }
    lead_session(plan).map_err(|errno| Failure { stage: SpawnStage::Terminal, errno })?;
    place_descriptors(plan).map_err(|errno| Failure { stage: SpawnStage::Stdio, errno })?;
    limit_open_files(plan.open_files);
    // As the agent, since programs of another user may not.
    if shared.is_filtered && seccomp::become_program().is_err() {
        return Err(Failure { stage: SpawnStage::Identity, errno: libc::EPERM });
    }
    if let Some(identity) = plan.identity {
        assume(identity).map_err(|errno| Failure { stage: SpawnStage::Identity, errno })?;
    }
    enter_directory(plan.directory).map_err(|refused| Failure {
        stage: SpawnStage::WorkingDirectory,
        errno: refused.errno() as i32,
    })?;
    // SAFETY: takes a number.
    unsafe { libc::syscall(libc::SYS_umask, 0o022) };
    unblock_signals();
    Err(Failure { stage: SpawnStage::Exec, errno: execute(shared) })
}

/// The signals that the agent ignores and those that it handles: bit 0 is signal 1. Asked for once, since
/// the agent changes none after it has begun, and 64 questions for each start would show.
static SIGNALS_NOT_DEFAULT: OnceLock<NotDefault> = OnceLock::new();

struct NotDefault {
    ignored: u64,
    handled: u64,
}

/// `struct sigaction` of the kernel. Its first word is the handler, where zero is the default.
type KernelAction = [u64; 4];

fn signals_not_default() -> NotDefault {
    const IGNORED: u64 = libc::SIG_IGN as u64;
    let mut found = NotDefault { ignored: 0, handled: 0 };
    for signal in 1..=64 {
        match action_of(signal)[0] {
            0 => {}
            IGNORED => found.ignored |= bit(signal),
            _ => found.handled |= bit(signal),
        }
    }
    found
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

/// Ignored signals would stay ignored over exec. The agent ignores SIGPIPE, as every Rust program
/// does, and the signals that it was started with as ignored.
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

/// A new session is also a new process group, and can have a terminal.
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
    // Every descriptor of the agent is close-on-exec. They are closed now, because what follows can take
    // long, and meanwhile a copy of a pipe's end would keep another program from seeing that the pipe ends.
    // Only the procfs is still looked at.
    let first = 3 + usize::from(control.is_some());
    match lookup::proc().map(|proc| proc.as_raw_fd() as usize) {
        Some(proc) if proc >= first => {
            close_range(first, proc.wrapping_sub(1));
            close_range(proc + 1, libc::c_uint::MAX as usize);
        }
        _ => close_range(first, libc::c_uint::MAX as usize),
    }
    Ok(())
}

/// Closes the descriptors with these numbers, both ends included.
fn close_range(first: usize, last: usize) {
    // SAFETY: takes numbers; the child has a table of its own. A kernel older than 5.9 refuses, and so does
    // every kernel an empty range.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// A limit that cannot be set stays as it is.
fn limit_open_files(limit: [u64; 2]) {
    // SAFETY: the kernel reads its 16 byte `rlimit64`, which `limit` is.
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

/// Enters the working directory. The child looks it up, not the parent, because then the program's user is
/// checked: a directory that this user may not reach is refused, on the way as well as at its end. The
/// descriptor that was checked is entered.
fn enter_directory(path: &CStr) -> Result<(), Refused> {
    // The root has no other name that could lead elsewhere.
    if path.to_bytes() == b"/" {
        return Ok(chdir(path)?);
    }
    let found = lookup::open(AT_FDCWD, path, DIRECTORY, ResolveFlag::empty())?;
    Ok(fchdir(found)?)
}

const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY);

/// Executes a program that the rule finds; returns only if that fails.
///
/// The path is used twice, and the file may be exchanged in between: for a link of `/proc` to the agent's own
/// image, which the program's user could not execute otherwise. So the kernel must follow no link at the end
/// of the path.
fn execute_candidate(path: &CStr, shared: &Shared<'_>) -> i32 {
    // Closed by the execution.
    let found = match lookup::open(AT_FDCWD, path, OFlag::O_PATH, ResolveFlag::empty()) {
        Ok(found) => found,
        Err(refused) => return refused.errno() as i32,
    };
    match execute_file(path, libc::AT_SYMLINK_NOFOLLOW, shared) {
        libc::ELOOP => execute_linked(&found, path, shared),
        errno => errno,
    }
}

/// Executes the file behind a symlink by the file's own path. Only a script is executed by its link, because
/// its interpreter receives the path, and some scripts depend on their name.
fn execute_linked(found: &OwnedFd, link: &CStr, shared: &Shared<'_>) -> i32 {
    if lookup::proc().is_none() {
        // Without a procfs there is no link to the agent.
        return execute_file(link, 0, shared);
    }
    match lookup::begins_with(found, SCRIPT) {
        Ok(true) => return execute_file(link, 0, shared),
        // A program may be executable without being readable; a script may not.
        Ok(false) | Err(Errno::EACCES) => {}
        Err(errno) => return errno as i32,
    }
    match lookup::own_path(found, &mut [0; libc::PATH_MAX as usize]) {
        Ok(path) => execute_file(path, libc::AT_SYMLINK_NOFOLLOW, shared),
        Err(errno) => errno as i32,
    }
}

/// The first bytes of a script.
const SCRIPT: [u8; 2] = *b"#!";

/// The file may have been written by the agent a moment ago. A child that was born while it was open has a
/// copy of the descriptor for an instant, and the kernel executes nothing that somebody may write to.
fn execute_file(path: &CStr, flags: libc::c_int, shared: &Shared<'_>) -> i32 {
    for _ in 0..BUSY_TRIES {
        let errno = try_execute_file(path, flags, shared);
        if errno != libc::ETXTBSY {
            return errno;
        }
        pause(&BUSY_PAUSE);
    }
    libc::ETXTBSY
}

/// How often a file is tried that is open for writing, and the pause after it.
const BUSY_TRIES: usize = 20;
const BUSY_PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };

fn pause(time: &libc::timespec) {
    // SAFETY: the kernel reads one `timespec`; nothing is written.
    unsafe {
        libc::syscall(libc::SYS_nanosleep, ptr::from_ref(time), ptr::null::<libc::timespec>())
    };
}

fn try_execute_file(path: &CStr, flags: libc::c_int, shared: &Shared<'_>) -> i32 {
    // SAFETY: a C string, and two null-terminated arrays of C strings, which are the plan's.
    let result = check(unsafe {
        libc::syscall(
            libc::SYS_execveat,
            libc::AT_FDCWD,
            path.as_ptr(),
            shared.arguments.as_ptr(),
            shared.environment.as_ptr(),
            flags,
        )
    });
    result.err().unwrap_or(libc::EIO)
}

/// Tries every candidate and says why the most promising one failed.
fn execute(shared: &Shared<'_>) -> i32 {
    let mut verdict = libc::ENOENT;
    for candidate in shared.plan.candidates {
        let errno = execute_candidate(candidate, shared);
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
