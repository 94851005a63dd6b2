//! The agent's call: a machine that has booted dials the host, and that connection is its first link.
//!
//! So the bridge need not poll, and nobody connects to a guest that is not up yet, which would end some
//! relays.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};

use super::frame_now;
use crate::limits::VIRTUAL_RESTORE_DEADLINE;
use crate::{MachineError, guest_options};
use agent_client::guest::Guest;
use agent_client::link::{Address, LinkError, serial};
use protocol::boot::BootConfig;
use protocol::hello::GoodbyeReason;

/// A socket that waits for one call. Dropping this removes it.
pub struct Awaited {
    listener: UnixListener,
    path: PathBuf,
}

impl Awaited {
    pub fn bind(path: &Path) -> io::Result<Self> {
        // An earlier bridge may have left one.
        let _ = std::fs::remove_file(path);
        // The directory is private, and so is everything in it.
        Ok(Self { listener: UnixListener::bind(path)?, path: path.to_owned() })
    }

    /// Waits for a call, only to know that the agent can be dialled.
    pub async fn called(&self) -> io::Result<()> {
        self.listener.accept().await.map(drop)
    }

    /// Accepts the call of an agent that was restored from a snapshot, as a client that this agent has
    /// never had. After a cut the agent is dialled at `then`.
    pub async fn take(&self, then: Address) -> Result<Guest, MachineError> {
        let broken = |source: io::Error| LinkError::Broken(Arc::new(source));
        let taken = async {
            loop {
                let (stream, _) = self.listener.accept().await.map_err(broken)?;
                let stream = stream.into_std().map_err(broken)?;
                match Guest::over(stream, Some(then.clone()), guest_options(Some(&then))).await {
                    // The agent gave that call up before it was accepted, and calls again.
                    Err(LinkError::Closed | LinkError::Broken(_)) => {}
                    met => return met,
                }
            }
        };
        taken.await.map_err(|source| MachineError::Link { source, console: String::new() })
    }

    /// Accepts the call, sends the boot configuration and waits until the agent has applied it. After a
    /// cut the agent is dialled at `then`.
    pub async fn greet(&self, boot: BootConfig, then: Address) -> Result<Guest, MachineError> {
        let (stream, _) = self.listener.accept().await.map_err(unlinked)?;
        connect_over(stream, boot, then).await
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Dials the agent of a machine that was restored from a snapshot, as a client that it has never had: it may
/// not notice for long that the links that it had are gone.
pub async fn dial(address: Address) -> Result<Guest, MachineError> {
    let mut options = guest_options(Some(&address));
    options.connect_deadline = VIRTUAL_RESTORE_DEADLINE;
    let met = Guest::connect(address, options).await;
    met.map_err(|source| MachineError::Link { source, console: String::new() })
}

/// Calls an agent at a virtio-serial port, which cannot call itself. The bridge connects to the socket as
/// soon as it exists, and the agent answers when the machine has booted.
pub async fn call(path: &Path, boot: BootConfig, then: Address) -> Result<Guest, MachineError> {
    while !path.exists() {
        tokio::time::sleep(SOCKET_PAUSE).await;
    }
    let stream = loop {
        match serial::call(path).await {
            // It is bound, but the monitor does not listen yet.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                tokio::time::sleep(SOCKET_PAUSE).await;
            }
            called => break called.map_err(unlinked)?,
        }
    };
    connect_over(stream, boot, then).await
}

/// How often to look for the socket of a monitor that was just started.
const SOCKET_PAUSE: Duration = Duration::from_millis(5);

/// Sends the boot configuration and waits until the agent has applied it.
async fn connect_over(
    mut stream: UnixStream,
    boot: BootConfig,
    then: Address,
) -> Result<Guest, MachineError> {
    stream.write_all(&frame_now(boot)?).await.map_err(unlinked)?;
    let stream = stream.into_std().map_err(unlinked)?;
    let options = guest_options(Some(&then));
    let connected = Guest::over(stream, Some(then), options).await;
    connected.map_err(|source| match source {
        LinkError::Refused { reason: GoodbyeReason::BootFailed, message } => {
            MachineError::BootFailed { message }
        }
        source => MachineError::Link { source, console: String::new() },
    })
}

fn unlinked(source: io::Error) -> MachineError {
    MachineError::Link { source: LinkError::Broken(Arc::new(source)), console: String::new() }
}
