//! The agent's call: a machine that has come up dials, and that connection is its first link.
//!
//! Nothing is polled, and nobody connects to a guest that is not there yet, which some relays do not
//! survive.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};

use super::frame_now;
use crate::{MachineError, guest_options};
use agent_client::guest::Guest;
use agent_client::link::{Address, LinkError, serial};
use protocol::boot::BootConfig;
use protocol::hello::GoodbyeReason;

/// A socket on which one call is awaited. It goes away with this.
pub struct Awaited {
    listener: UnixListener,
    path: PathBuf,
}

impl Awaited {
    pub fn bind(path: &Path) -> io::Result<Self> {
        // One that a bridge has left which is no more.
        let _ = std::fs::remove_file(path);
        // The directory is private, and so is what is in it.
        Ok(Self { listener: UnixListener::bind(path)?, path: path.to_owned() })
    }

    /// Waits for a call, only to know that the agent can be dialled.
    pub async fn called(&self) -> io::Result<()> {
        self.listener.accept().await.map(drop)
    }

    /// Takes the call of an agent that was restored from a snapshot: by another client than it has
    /// ever had. After a cut it is dialled at `then`.
    pub async fn take(&self, then: Address) -> Result<Guest, MachineError> {
        let broken = |source: io::Error| LinkError::Broken(Arc::new(source));
        let taken = async {
            loop {
                let (stream, _) = self.listener.accept().await.map_err(broken)?;
                let stream = stream.into_std().map_err(broken)?;
                match Guest::over(stream, Some(then.clone()), guest_options(Some(&then))).await {
                    // The agent had given that call up before it came through, and calls again.
                    Err(LinkError::Closed | LinkError::Broken(_)) => {}
                    met => return met,
                }
            }
        };
        taken.await.map_err(|source| MachineError::Link { source, console: String::new() })
    }

    /// Takes the call, says what the machine is to become and waits until it is that. After a cut
    /// the agent is dialled at `then`.
    pub async fn greet(&self, boot: BootConfig, then: Address) -> Result<Guest, MachineError> {
        let (stream, _) = self.listener.accept().await.map_err(unlinked)?;
        tell(stream, boot, then).await
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The same with an agent at a virtio-serial port, which cannot call: the socket is called as soon as it
/// is there, and answers when the machine has come up.
pub async fn call(path: &Path, boot: BootConfig, then: Address) -> Result<Guest, MachineError> {
    while !path.exists() {
        tokio::time::sleep(SOCKET_PAUSE).await;
    }
    let stream = loop {
        match serial::call(path).await {
            // Bound, and not listened on yet.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                tokio::time::sleep(SOCKET_PAUSE).await;
            }
            called => break called.map_err(unlinked)?,
        }
    };
    tell(stream, boot, then).await
}

/// How often it is looked whether a monitor that was just started has made its socket.
const SOCKET_PAUSE: Duration = Duration::from_millis(5);

/// Says what the machine is to become and waits until it is that.
async fn tell(
    mut stream: UnixStream,
    boot: BootConfig,
    then: Address,
) -> Result<Guest, MachineError> {
    stream.write_all(&frame_now(boot)?).await.map_err(unlinked)?;
    let stream = stream.into_std().map_err(unlinked)?;
    let options = guest_options(Some(&then));
    let told = Guest::over(stream, Some(then), options).await;
    told.map_err(|source| match source {
        LinkError::Refused { reason: GoodbyeReason::BootFailed, message } => {
            MachineError::BootFailed { message }
        }
        source => MachineError::Link { source, console: String::new() },
    })
}

fn unlinked(source: io::Error) -> MachineError {
    MachineError::Link { source: LinkError::Broken(Arc::new(source)), console: String::new() }
}
