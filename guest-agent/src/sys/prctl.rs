//! Process attributes: whose orphans it adopts, when it dies with its parent, which capabilities
//! its descendants may ever have.
//!
//! `boot` and `pid1` call it, each once.

use std::ffi::CStr;
use std::io;

use nix::errno::Errno;
use nix::sys::signal::Signal;

/// Makes orphans of our descendants our children, as if we were PID 1.
pub fn adopt_orphans() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true).map_err(io::Error::from)
}

/// Makes the kernel send us `signal` when our parent dies. A parent that is dead already goes
/// unnoticed: the caller must check.
pub fn die_with_parent(signal: Signal) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(signal).map_err(io::Error::from)
}

/// Says whether this process keeps its capabilities when it changes its user ids. Programs inherit it.
pub fn keep_capabilities(keep: bool) -> io::Result<()> {
    // `SECBIT_NO_SETUID_FIXUP` of `linux/securebits.h`.
    const NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;
    let bits = if keep { NO_SETUID_FIXUP } else { 0 };
    // SAFETY: the operation takes one number and touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_SECUREBITS, bits) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes `capability` from everything that this process will ever execute. `false` if the kernel
/// does not know a capability of that number.
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

/// Tries to execute a directory, which nobody can, and returns the kernel's error. An error other than `EACCES`
/// would stop every program.
pub fn execute_nothing() -> Errno {
    let none: [*const libc::c_char; 1] = [std::ptr::null()];
    // SAFETY: takes a C string and two arrays that end with null. It never succeeds.
    unsafe { libc::syscall(libc::SYS_execve, c"/".as_ptr(), none.as_ptr(), none.as_ptr()) };
    Errno::last()
}

/// The name of this process in process lists. One that was executed from a descriptor is named after the
/// descriptor's number.
pub fn set_name(name: &CStr) {
    nix::sys::prctl::set_name(name).ok();
}

/// Leaves the kernel's keyrings that this process has from the host, for a new one. Kernels without keyrings
/// have nothing to leave.
pub fn leave_keyrings() {
    // `KEYCTL_JOIN_SESSION_KEYRING` of `linux/keyctl.h`; without a name the keyring is new.
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: the operation takes a null name and touches no memory.
    unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) };
}
