//! Sockets between a machine and its host.
//!
//! `boot::machine` dials before there is an event loop; `doors` listens and dials within it. Only
//! ever called inside a machine that this agent is the init of.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, VsockAddr, accept4, bind, connect, getpeername,
    listen, socket,
};

/// The host, seen from each of its machines.
pub const HOST: u32 = libc::VMADDR_CID_HOST;

/// Connections that may wait to be accepted: bursts of a hundred are real, and with 16 some failed.
const BACKLOG: i32 = 128;

fn new(flags: SockFlag) -> io::Result<OwnedFd> {
    let flags = flags | SockFlag::SOCK_CLOEXEC;
    Ok(socket(AddressFamily::Vsock, SockType::Stream, flags, None)?)
}

/// Connects to a port of the host and waits until that is done.
pub fn dial(port: u32) -> io::Result<OwnedFd> {
    let socket = new(SockFlag::empty())?;
    connect(socket.as_raw_fd(), &VsockAddr::new(HOST, port))?;
    Ok(socket)
}

/// Begins to connect; the socket is writable when this has finished, and [`is_connected`] returns the result.
pub fn begin_dial(port: u32) -> io::Result<OwnedFd> {
    let socket = new(SockFlag::SOCK_NONBLOCK)?;
    match connect(socket.as_raw_fd(), &VsockAddr::new(HOST, port)) {
        Ok(()) | Err(nix::errno::Errno::EINPROGRESS) => Ok(socket),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether the connection was made.
pub fn is_connected(socket: &impl AsFd) -> bool {
    getpeername::<VsockAddr>(socket.as_fd().as_raw_fd()).is_ok()
}

/// Listens on a port, whatever the machine's CID is at the moment: the kernel ends connections when a machine
/// is restored or its device is removed, and keeps such listeners.
pub fn listen_on(port: u32) -> io::Result<OwnedFd> {
    let socket = new(SockFlag::SOCK_NONBLOCK)?;
    bind(socket.as_raw_fd(), &VsockAddr::new(libc::VMADDR_CID_ANY, port))?;
    listen(&socket, Backlog::new(BACKLOG)?)?;
    Ok(socket)
}

/// Takes the next connection, and says whose machine it comes from.
pub fn accept(listener: &impl AsFd) -> io::Result<(OwnedFd, u32)> {
    let number = accept4(listener.as_fd().as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: the kernel has just made the descriptor and nobody else knows it.
    let socket = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) };
    let peer = getpeername::<VsockAddr>(socket.as_raw_fd())?;
    Ok((socket, peer.cid()))
}
