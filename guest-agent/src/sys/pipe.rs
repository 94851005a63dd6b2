//! What a pipe or a terminal holds.
//!
//! `session` asks when a program has ended, to know how much it had written.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes that have been written into `reader` and not been read. 0 for what is no pipe.
pub fn unread_bytes(reader: BorrowedFd<'_>) -> u64 {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, to one that lives here.
    let asked = unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD as _, &raw mut count) };
    if asked < 0 { 0 } else { count.max(0) as u64 }
}

/// Whether there is something to read. Of a terminal this is more than its count of unread bytes: to
/// be asked makes the kernel bring what was written and is still on its way, however busy it is.
pub fn is_readable(reader: BorrowedFd<'_>) -> bool {
    let mut asked = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one entry, which lives here, and no time is waited.
    let ready = unsafe { libc::poll(&raw mut asked, 1, 0) };
    ready > 0 && asked.revents & libc::POLLIN != 0
}
