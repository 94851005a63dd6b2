//! The ways to make a child: two in which it borrows our memory until it executes, and one in which
//! it gets a copy.
//!
//! Only `sys::spawn` and `sys::namespace` call it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::unistd::Pid;

/// What a child with borrowed memory runs. It must end the process and not return.
pub type Entry = extern "C" fn(*mut libc::c_void) -> libc::c_int;

/// Shares memory, suspends the parent's thread, and has the child's number written before the child runs.
const FLAGS: libc::c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID;

/// Lets the child be born in a control group. Needs 64 bits, and Linux 5.7.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The child has none of the parent's handlers; ignored signals stay ignored. Since Linux 5.5.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

/// Set once the kernel has answered that it has no clone3, or a filter that we may not use it.
static UNKNOWN: AtomicBool = AtomicBool::new(false);

/// `struct clone_args` up to and with `cgroup`, as since Linux 5.7.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

impl CloneArgs {
    /// In a group, the child is accounted from its first instruction, and the kernel spares a
    /// migration, which takes it some 15 ms when there has been none lately and meanwhile stops
    /// every fork on the machine.
    fn new(flags: u64, group: BorrowedFd<'_>) -> Self {
        Self {
            flags: flags | CLONE_INTO_CGROUP,
            exit_signal: libc::SIGCHLD as u64,
            cgroup: group.as_raw_fd() as u64,
            ..Self::default()
        }
    }
}

/// Clones into a control group, without any of the parent's signal handlers.
///
/// # Safety
///
/// `stack` must be writable for `stack_bytes`, aligned to 16, and unused until this returns;
/// `entry` must not return, and must do nothing that the parent's suspended thread could not bear.
#[cfg(target_arch = "x86_64")]
pub unsafe fn into_group(
    group: BorrowedFd<'_>,
    number: &AtomicI32,
    entry: Entry,
    argument: *mut libc::c_void,
    stack: *mut libc::c_void,
    stack_bytes: usize,
) -> io::Result<Pid> {
    if UNKNOWN.load(Ordering::Relaxed) {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let args = CloneArgs {
        stack: stack as u64,
        stack_size: stack_bytes as u64,
        parent_tid: number.as_ptr() as u64,
        ..CloneArgs::new(FLAGS as u64 | CLONE_CLEAR_SIGHAND, group)
    };
    let result: i64;
    // The kernel returns twice: in the parent with the pid, and on the new stack with zero, where
    // the only thing to do without touching the old one is to call the entry.
    // SAFETY: the arguments are a valid `clone_args`; the kernel preserves every register but the
    // three named, and the child leaves this block only by ending.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, {argument}",
            "call {entry}",
            "ud2",
            "2:",
            entry = in(reg) entry,
            argument = in(reg) argument,
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") &raw const args,
            in("rsi") size_of::<CloneArgs>(),
            // Not `lateout`: the kernel overwrites these two before the inputs have been used.
            out("rcx") _,
            out("r11") _,
        );
    }
    if result > 0 {
        return Ok(Pid::from_raw(result as i32));
    }
    let error = io::Error::from_raw_os_error(-result as i32);
    if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::E2BIG)) {
        UNKNOWN.store(true, Ordering::Relaxed);
    }
    Err(error)
}

/// Elsewhere the child enters its group by itself: no C library wraps clone3, and the assembly is
/// written only for machines that it can be tested on.
///
/// # Safety
///
/// None is needed; the signature is that of the other architecture.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn into_group(
    _group: BorrowedFd<'_>,
    _number: &AtomicI32,
    _entry: Entry,
    _argument: *mut libc::c_void,
    _stack: *mut libc::c_void,
    _stack_bytes: usize,
) -> io::Result<Pid> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// Forks into a control group: 0 in the child.
///
/// The C library does not know about it, and its record of the thread's id stays the parent's. It
/// uses that in `raise` and to distinguish the owners of its locks, for which one thread's old
/// number does as well as a new one.
///
/// # Safety
///
/// The process must have one thread.
pub unsafe fn fork_into(group: BorrowedFd<'_>) -> io::Result<i32> {
    let args = CloneArgs::new(0, group);
    // SAFETY: the arguments are a valid `clone_args`, without a stack, so that the child goes on
    // on its copy of ours; the caller vouches for the rest.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid as i32) }
}

/// Clones into the caller's own group.
///
/// # Safety
///
/// As for [`into_group`].
pub unsafe fn plainly(
    number: &AtomicI32,
    entry: Entry,
    argument: *mut libc::c_void,
    stack: *mut libc::c_void,
    stack_bytes: usize,
) -> io::Result<Pid> {
    let flags = FLAGS | libc::SIGCHLD;
    // SAFETY: one past the end of the stack is where it begins, because it grows downwards.
    let top = unsafe { stack.byte_add(stack_bytes) };
    // SAFETY: the caller vouches for the stack and the entry.
    let pid = unsafe { libc::clone(entry, top, flags, argument, number.as_ptr()) };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(Pid::from_raw(pid)) }
}
