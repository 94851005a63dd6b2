//! Forks a process whose child lives in new namespaces.
//!
//! `boot::launch` and `pid1::hand_over` call it, before any thread or runtime exists.

use std::io;
use std::os::fd::BorrowedFd;

use nix::unistd::{ForkResult, Pid};

use super::clone;

/// Which side of a [`fork`] this is.
pub enum Side {
    Parent {
        child: Pid,
    },
    /// Says whether it was born in the control group that was asked for.
    Child {
        in_group: bool,
    },
}

/// Forks a process that has one thread, and puts the child into a control group if the kernel can.
/// Panics if there are more threads, because the child would inherit their locks without them.
pub fn fork(group: Option<BorrowedFd<'_>>) -> io::Result<Side> {
    // An unmounted /proc leaves the question open; the caller then stands for the answer.
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    assert_eq!(threads, 1, "only a process of one thread may fork");
    if let Some(group) = group {
        // SAFETY: this is the only thread.
        match unsafe { clone::fork_into(group) } {
            Ok(0) => return Ok(Side::Child { in_group: true }),
            Ok(pid) => return Ok(Side::Parent { child: Pid::from_raw(pid) }),
            // The kernel is too old, or a filter does not let it. The child can still enter.
            Err(_) => {}
        }
    }
    // SAFETY: this is the only thread, so the child has all of its process's state intact.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Side::Parent { child }),
        ForkResult::Child => Ok(Side::Child { in_group: false }),
    }
}
