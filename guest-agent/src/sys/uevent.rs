//! The kernel's events about devices: the datagrams that it sends to listeners.
//!
//! `hotplug` listens. Only the kernel's own messages are read, not those of a device manager.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket,
};

/// The group that the kernel speaks to.
const KERNELS_GROUP: u32 = 1;

/// Begins to listen; non-blocking.
pub fn listen() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let protocol = SockProtocol::NetlinkKObjectUEvent;
    let socket = socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNELS_GROUP))?;
    Ok(socket)
}

/// Takes one event, cut to the buffer; an empty one if the kernel has not sent it.
pub fn take(socket: &impl AsFd, into: &mut [u8]) -> nix::Result<usize> {
    let (count, sender) = recvfrom::<NetlinkAddr>(socket.as_fd().as_raw_fd(), into)?;
    // The kernel's number is 0. A process may write to a listener, too, that is allowed to.
    Ok(if sender.is_some_and(|sender| sender.pid() == 0) { count } else { 0 })
}
