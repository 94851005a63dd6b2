//! Making a mounted file system as large as its disk has become.
//!
//! `hotplug` calls it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Gives an ext4 file system this many blocks; as many as it has already is no fault. Others know
/// nothing of the request.
pub fn resize(directory: BorrowedFd<'_>, blocks: u64) -> io::Result<()> {
    const EXT4_RESIZE: libc::Ioctl = 0x4008_6610;
    // SAFETY: the kernel reads one `u64`.
    let result = unsafe { libc::ioctl(directory.as_raw_fd(), EXT4_RESIZE, &raw const blocks) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
