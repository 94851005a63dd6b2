//! Collecting the dead.
//!
//! **Only `pid1::reaper` calls this**, and `boot::supervisor`, which has no reaper. Anyone else who
//! waited would steal an exit from a session that then never ends.

use std::io;
use std::mem::MaybeUninit;

use nix::unistd::Pid;
use protocol::exit::Usage;

/// The kernel's report about one ended child.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    pub pid: Pid,
    pub status: Status,
    pub usage: Usage,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Exited { code: i32 },
    Signaled { signal: i32, core_dumped: bool },
}

/// The answer of [`any_child`].
#[derive(Clone, Copy, Debug)]
pub enum Next {
    Death(Death),
    /// There are children, and none of them has ended.
    AllAlive,
    /// There are no children at all.
    NoChildren,
}

/// Collects one ended child, without waiting for one.
#[expect(clippy::disallowed_methods, reason = "this is the call that the reaper is built on")]
pub fn any_child() -> Next {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to writable memory of the types that the kernel fills.
        let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
        match pid {
            1.. => {
                // SAFETY: it was zeroed, which is a valid `rusage`, and then filled by the kernel.
                let usage = unsafe { usage.assume_init() };
                let pid = Pid::from_raw(pid);
                return Next::Death(Death { pid, status: decode(status), usage: to_usage(&usage) });
            }
            0 => return Next::AllAlive,
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            // ECHILD is the only other error for these arguments.
            _ => return Next::NoChildren,
        }
    }
}

/// Stops and continues are not asked for, so a status is one of the two.
fn decode(status: libc::c_int) -> Status {
    if libc::WIFSIGNALED(status) {
        Status::Signaled { signal: libc::WTERMSIG(status), core_dumped: libc::WCOREDUMP(status) }
    } else {
        Status::Exited { code: libc::WEXITSTATUS(status) }
    }
}

fn to_usage(usage: &libc::rusage) -> Usage {
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Usage {
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        // The kernel counts in KiB.
        resident_bytes_max: usage.ru_maxrss as u64 * 1024,
        memory_bytes_peak: None,
        block_reads: usage.ru_inblock as u64,
        block_writes: usage.ru_oublock as u64,
        switches_voluntary: usage.ru_nvcsw as u64,
        switches_forced: usage.ru_nivcsw as u64,
    }
}
