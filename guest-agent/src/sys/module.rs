//! Loading kernel modules.
//!
//! `boot::machine` calls it, before there is anything else in the machine.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Loads one module from its file and waits until it has set itself up. One that is there already
/// is no fault.
pub fn load(file: &File) -> io::Result<()> {
    let parameters = c"";
    // SAFETY: takes a descriptor and a C string, and no flags.
    let result =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    if result == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        error => Err(error),
    }
}
