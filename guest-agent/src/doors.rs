//! How hosts connect to the agent: an inherited connection, a listening socket, and, in a machine, a
//! connection that the agent dials while no host has one.
//!
//! `run` opens them and `serve` takes over each connection.

mod serial;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use tokio::io::Interest;
use tokio::time::{sleep, timeout};

use crate::agent::Agent;
use crate::host::serial::Port;
use crate::sys::{ready, vsock};
use crate::{serve, task};

/// See the module's description.
#[derive(Default)]
pub struct Doors {
    /// An inherited connection.
    pub link: Option<OwnedFd>,
    pub listener: Option<UnixListener>,
    /// The vsock port to listen on for the machine's host.
    pub vsock: Option<u32>,
    /// The vsock port of the host, which is dialled while nobody has a link.
    pub dial: Option<u32>,
    /// The serial port to the host, in a machine without vsock.
    pub serial: Option<Port>,
}

/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The deadline for dialling the host. Without a listener the kernel gives up after two seconds.
const DIAL_MAX: Duration = Duration::from_secs(5);

/// The pauses between dials, which double. A host that restores a machine answers the first.
const DIAL_PAUSE_MIN: Duration = Duration::from_millis(100);
const DIAL_PAUSE_MAX: Duration = Duration::from_secs(5);

impl Doors {
    /// Opens all of them. It is an error if one cannot be opened, because no host could connect.
    pub fn open(self, agent: &Rc<Agent>) -> io::Result<()> {
        if let Some(link) = self.link {
            serve::accept(agent, link);
        }
        if let Some(listener) = self.listener {
            task::spawn(answer_unix(agent.clone(), listener)?);
        }
        if let Some(port) = self.vsock {
            task::spawn(answer_host(agent.clone(), vsock::listen_on(port)?)?);
        }
        if let Some(port) = self.serial {
            task::spawn(serial::answer(agent.clone(), port));
        }
        if let Some(port) = self.dial {
            task::spawn(dial_host(agent.clone(), port));
        }
        Ok(())
    }
}

/// Accepts connections for as long as the agent lives, from the agent's own user and root only.
fn answer_unix(
    agent: Rc<Agent>,
    listener: UnixListener,
) -> io::Result<impl Future<Output = ()> + 'static> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    Ok(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    if may_connect(&stream)
                        && let Ok(stream) = stream.into_std()
                    {
                        serve::accept(&agent, stream.into());
                    }
                }
                // Most likely out of descriptors; others may be closed soon.
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    })
}

fn may_connect(stream: &tokio::net::UnixStream) -> bool {
    // In a user namespace, an unmapped user outside appears as the overflow id. There the permissions of
    // the socket's directory keep strangers out.
    const OVERFLOW: u32 = 65534;
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| {
        let own = nix::unistd::geteuid().as_raw();
        peer.uid() == own || peer.uid() == 0 || (peer.uid() == OVERFLOW && own == 0)
    })
}

/// Accepts connections from the machine's host alone: neighbours may reach this machine too.
fn answer_host(
    agent: Rc<Agent>,
    listener: OwnedFd,
) -> io::Result<impl Future<Output = ()> + 'static> {
    let listener = ready::watch(listener, Interest::READABLE)?;
    Ok(async move {
        loop {
            match listener.async_io(Interest::READABLE, vsock::accept).await {
                Ok((socket, vsock::HOST)) => serve::accept(&agent, socket),
                Ok(_) => {}
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    })
}

/// Dials the host whenever nobody has a link, so that after a restore, or under a new bridge, the host need
/// not find the agent.
async fn dial_host(agent: Rc<Agent>, port: u32) {
    let mut pause = DIAL_PAUSE_MIN;
    loop {
        if agent.peers.are_linked() {
            pause = DIAL_PAUSE_MIN;
        }
        agent.peers.none_linked().await;
        sleep(pause).await;
        pause = (pause * 2).min(DIAL_PAUSE_MAX);
        if agent.peers.are_linked() {
            continue;
        }
        if let Some(socket) = timeout(DIAL_MAX, dial(port)).await.ok().flatten() {
            serve::accept(&agent, socket);
            pause = DIAL_PAUSE_MIN;
        }
    }
}

async fn dial(port: u32) -> Option<OwnedFd> {
    let socket = ready::watch(vsock::begin_dial(port).ok()?, Interest::WRITABLE).ok()?;
    drop(socket.writable().await.ok()?);
    vsock::is_connected(socket.get_ref()).then(|| socket.into_inner())
}
