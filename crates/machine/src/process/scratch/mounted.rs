//! A writable layer as a mount that has no place yet.
//!
//! No safe call makes a loop device, so the agent's binary does it in a process of its own, and hands over
//! the mount. It lives as long as somebody has its descriptor, or has put it at a place.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use host::agent::Agent;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::NoDisk;
use crate::limits::LAYER_DEADLINE;
use crate::process::sealed::Sealed;

/// The verb of the agent that mounts a layer.
const MOUNT_LAYER: &str = "mount-layer";

/// Mounts the file system in a file.
pub(super) fn mount(sealed: &Sealed, agent: &Agent, file: File) -> Result<OwnedFd, NoDisk> {
    try_mount(sealed, agent, file).map_err(NoDisk::Mount)
}

fn try_mount(sealed: &Sealed, agent: &Agent, file: File) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(LAYER_DEADLINE))?;
    let launch = sealed.command(agent)?;
    let mut command = launch.command.into_std();
    command.arg(MOUNT_LAYER).env_clear().current_dir("/");
    command.stdin(file).stdout(OwnedFd::from(theirs)).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // Its ends of the files are only in the child from here on.
    drop(command);
    let received = receive(&ours);
    if received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        child.kill()?;
    }
    let ended = child.wait_with_output()?;
    if let Some(mount) = received? {
        return Ok(mount);
    }
    let why = String::from_utf8_lossy(&ended.stderr);
    Err(io::Error::other(format!("{} ({})", why.trim(), ended.status)))
}

/// The descriptor that comes over a socket; `None` if the other end closed it first.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut rights, flags)?;
    let mut received = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(received.next().and_then(|mut descriptors| descriptors.next()))
}
