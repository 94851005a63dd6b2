//! What a process asks the kernel about itself: whom it adopts, when it dies with its parent,
//! which capabilities its descendants may ever have.
//!
//! `boot` and `pid1` call it, each once.

use std::io;

use nix::sys::signal::Signal;

/// Makes orphans of our descendants our children, as if we were PID 1.
pub fn adopt_orphans() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true).map_err(io::Error::from)
}

/// Has the kernel send us `signal` when our parent dies. A parent that is dead already goes
/// unnoticed: the caller must check.
pub fn die_with_parent(signal: Signal) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(signal).map_err(io::Error::from)
}

/// Takes `capability` from everything that this process will ever execute. `false` when the
/// kernel does not know a capability of that number.
pub fn drop_from_bounding_set(capability: u32) -> io::Result<bool> {
    // SAFETY: the operation takes one number and touches no memory.
    let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability)) };
    match result {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            error => Err(error),
        },
    }
}
