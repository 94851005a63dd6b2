//! Moving descriptors about.
//!
//! `process` calls it for a program's descriptors, `boot` for the standard descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A close-on-exec copy whose number is greater than `floor`. The standard library's `try_clone`
/// has a floor of its own.
pub fn duplicate_above(from: BorrowedFd<'_>, floor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers.
    let number = unsafe { libc::fcntl(from.as_raw_fd(), libc::F_DUPFD_CLOEXEC, floor + 1) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor has just been made and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Puts a copy of `from` in place of a standard descriptor, and closes the old one.
pub fn replace_standard(from: BorrowedFd<'_>, standard: Standard) -> io::Result<()> {
    // SAFETY: takes numbers, and a standard descriptor has no owner whom it could be taken from.
    let number = unsafe { libc::dup2(from.as_raw_fd(), standard as RawFd) };
    if number < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The descriptors that a process begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    Input = 0,
    Output = 1,
}
