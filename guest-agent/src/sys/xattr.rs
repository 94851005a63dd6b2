//! Extended attributes of an open file or directory.
//!
//! `file` reads and writes them where a writable layer travels as a whole; nothing else asks for any.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use nix::errno::Errno;

/// The longest list of names, and the longest value, that Linux has.
const BYTES_MAX: usize = 64 * 1024;

/// The names of all attributes, each with a NUL behind it.
pub fn list(file: BorrowedFd<'_>) -> nix::Result<Vec<u8>> {
    // Most files have none, and then no buffer is needed.
    // SAFETY: a length of 0 asks for the size alone, and nothing is written.
    let size = unsafe { libc::flistxattr(file.as_raw_fd(), ptr::null_mut(), 0) };
    if Errno::result(size)? == 0 {
        return Ok(Vec::new());
    }
    let mut names = vec![0; BYTES_MAX];
    // SAFETY: `names` is writable for its whole length, which is the length given.
    let size =
        unsafe { libc::flistxattr(file.as_raw_fd(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(Errno::result(size)? as usize);
    Ok(names)
}

/// The value of one attribute.
pub fn get(file: BorrowedFd<'_>, name: &CStr) -> nix::Result<Vec<u8>> {
    let mut value = vec![0; BYTES_MAX];
    // SAFETY: `value` is writable for its whole length, which is the length given; the name ends with NUL.
    let size = unsafe {
        libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    value.truncate(Errno::result(size)? as usize);
    Ok(value)
}

/// Sets one attribute.
pub fn set(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> nix::Result<()> {
    // SAFETY: `value` is readable for its whole length, which is the length given; the name ends with NUL.
    let set = unsafe {
        libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    Errno::result(set).map(drop)
}
