//! The unread bytes of a pipe or a terminal.
//!
//! `session` asks when a program has ended, to know how much it had written.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes that were written to `reader` and not read yet. 0 if it is no pipe.
pub fn unread_bytes(reader: BorrowedFd<'_>) -> u64 {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, to one that lives here.
    let result = unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD as _, &raw mut count) };
    if result < 0 { 0 } else { count.max(0) as u64 }
}

/// Whether there is something to read. For a terminal this is better than its count of unread bytes: the
/// query makes the kernel deliver what was written and is still on its way, however busy it is.
pub fn is_readable(reader: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one entry, which lives here, and no time is waited.
    let ready = unsafe { libc::poll(&raw mut entry, 1, 0) };
    ready > 0 && entry.revents & libc::POLLIN != 0
}
