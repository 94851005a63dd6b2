//! Reading a directory through its descriptor, as the kernel hands the entries out.
//!
//! `file` calls it to walk trees. The C library's streams would take ownership of the descriptor,
//! and a walk needs it to open what it finds.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// Fills `buffer` with the next entries, each a `linux_dirent64`, and says how many bytes they
/// took; 0 at the end.
pub fn read_entries(directory: BorrowedFd<'_>, buffer: &mut [u8]) -> nix::Result<usize> {
    // SAFETY: `buffer` is writable for its whole length, which is the length given.
    let count = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            directory.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    Errno::result(count).map(|count| count as usize)
}
