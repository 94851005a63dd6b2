//! How hosts reach the agent: a connection that is there from the beginning, a socket to come back
//! to, and, in a machine, a call to a host that has none.
//!
//! `run` opens them. Whoever comes in is `serve`'s.

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
    /// A connection that is there from the beginning.
    pub link: Option<OwnedFd>,
    pub listener: Option<UnixListener>,
    /// The port on which the machine's host is listened for.
    pub vsock: Option<u32>,
    /// The port on which the host is called while nobody has a link.
    pub dial: Option<u32>,
    /// The port at which the host is where there is no vsock.
    pub serial: Option<Port>,
}

/// How long accepting rests after it failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a call to the host may take. One that has nobody to take it waits for two seconds.
const DIAL_MAX: Duration = Duration::from_secs(5);

/// The pauses between calls, doubling: a host that restores a machine answers the first.
const DIAL_PAUSE_MIN: Duration = Duration::from_millis(100);
const DIAL_PAUSE_MAX: Duration = Duration::from_secs(5);

impl Doors {
    /// Opens all of them. One that cannot be opened is an error, because nobody would come.
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
            task::spawn(call_host(agent.clone(), port));
        }
        Ok(())
    }
}

/// Accepts connections for as long as the agent lives. Only our own user and root may come in.
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
                    if may_enter(&stream)
                        && let Ok(stream) = stream.into_std()
                    {
                        serve::accept(&agent, stream.into());
                    }
                }
                // Out of descriptors, most likely: others may close some.
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    })
}

fn may_enter(stream: &tokio::net::UnixStream) -> bool {
    // Seen from a user namespace, an unmapped user outside shows as the overflow id; the door's
    // directory is what keeps strangers out there.
    const OVERFLOW: u32 = 65534;
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| {
        let own = nix::unistd::geteuid().as_raw();
        peer.uid() == own || peer.uid() == 0 || (peer.uid() == OVERFLOW && own == 0)
    })
}

/// The same for a machine's host, and for it alone: neighbours may have ways to this machine too.
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

/// Calls the host whenever nobody has a link: after a restore, or a bridge that has ended, the agent
/// need not be found.
async fn call_host(agent: Rc<Agent>, port: u32) {
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
