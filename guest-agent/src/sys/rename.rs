//! Renaming without replacing, which the C library of a static binary does not offer.
//!
//! `file` calls it when an existing file must stay.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::NixPath;
use nix::errno::Errno;

/// Renames `from` in one directory to `to` in another; `EEXIST` if that exists, `EINVAL` if the
/// file system cannot do it.
pub fn rename_new<P: NixPath + ?Sized, Q: NixPath + ?Sized>(
    from_directory: BorrowedFd<'_>,
    from: &P,
    to_directory: BorrowedFd<'_>,
    to: &Q,
) -> nix::Result<()> {
    let result = from.with_nix_path(|from| {
        to.with_nix_path(|to| {
            // SAFETY: both names end with a NUL and outlive the call; the rest are numbers.
            unsafe {
                libc::syscall(
                    libc::SYS_renameat2,
                    from_directory.as_raw_fd(),
                    from.as_ptr(),
                    to_directory.as_raw_fd(),
                    to.as_ptr(),
                    libc::RENAME_NOREPLACE,
                )
            }
        })
    })??;
    Errno::result(result).map(drop)
}
