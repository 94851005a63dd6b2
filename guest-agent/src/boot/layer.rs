//! A writable layer on the host's disk, mounted before there is a sandbox for it.
//!
//! The bridge calls it (`guest-agent mount-layer`), because no safe call makes a loop device. It gives the
//! mount, which has no place, to the agent that boots next ([`super::root`]), or keeps it for a later one.
//! The kernel frees the mount, the device and the file when nobody has the descriptor any more.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::sys::{loop_device, mount};

/// What is removed from a disk is given back to the host's, and tables are written when they are needed.
const OPTIONS: [&std::ffi::CStr; 2] = [c"discard", c"noinit_itable"];

/// Mounts the ext4 file system in this file, and sends the mount over the socket.
pub fn mount_and_send(file: BorrowedFd<'_>, socket: BorrowedFd<'_>) -> io::Result<()> {
    let (device, _open) = loop_device::attach(file)?;
    let mounted = mount::detached(&device, c"ext4", &OPTIONS)?;
    let rights = [mounted.as_raw_fd()];
    // A message without a byte would be the end of the stream.
    let byte = [IoSlice::new(b"m")];
    let rights = [ControlMessage::ScmRights(&rights)];
    sendmsg::<()>(socket.as_raw_fd(), &byte, &rights, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}
