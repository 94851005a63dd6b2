//! A file of the host as a block device, for as long as somebody uses it.
//!
//! `boot::layer` calls it, with the rights of the host's root, for a writable layer that is on a disk.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// How often a device is looked for: all sandboxes that start at once may try to take the same one, and
/// each time one of them gets it.
const TRIES_MAX: u32 = 1000;

// From `linux/loop.h`.
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// Without it everything would be in the host's cache twice. Where a file system cannot do it, it is not
/// done.
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `loop_config` of `linux/loop.h`, with what nobody sets here as padding.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_bytes: u32,
    unset: [u32; 13],
    flags: u32,
    rest: [u32; 60],
}

/// Makes a device of a file and opens it. The device goes when it is closed and nothing on it is mounted
/// any more, however its users end.
pub fn attach(file: BorrowedFd<'_>) -> io::Result<(String, File)> {
    let open = |path: &str| File::options().read(true).write(true).open(path);
    let control = open("/dev/loop-control")?;
    let config = LoopConfig {
        file: file.as_raw_fd() as u32,
        block_bytes: 0,
        unset: [0; 13],
        flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
        rest: [0; 60],
    };
    for _ in 0..TRIES_MAX {
        // SAFETY: the request takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        Errno::result(number)?;
        let name = format!("/dev/loop{number}");
        let device = open(&name)?;
        // SAFETY: the kernel reads one `loop_config`.
        let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
        match Errno::result(result) {
            Ok(_) => return Ok((name, device)),
            Err(Errno::EBUSY) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::EBUSY.into())
}
