//! The life of a bridge that serves: locks, what is left from before, the socket, and its end.
//!
//! ```text
//!  prepare ─▶ lock ─▶ adopt ─▶ listen ──signal──▶ leave or stop the sandboxes ─▶ end
//!                                        signal again: end at once
//! ```

use std::io;
use std::path::PathBuf;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::lock::{LockError, Locks};
use super::server::Server;
use crate::config::{Paths, PathsError};
use crate::limits::STOP_GRACE_DEFAULT;
use crate::machine::Machines;
use crate::sandbox::{Event, EventSink, Registry, SandboxError};

/// How a bridge shall serve.
pub struct ServeOptions {
    pub paths: Paths,
    /// Stop the sandboxes when the bridge ends. By default they run on, record what they say in
    /// their agents' spools, and are taken up again by the next bridge.
    pub stop_sandboxes: bool,
    /// Told of everything that happens; this prints nothing itself.
    pub events: EventSink,
}

/// Why the bridge does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Paths(#[from] PathsError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("could not listen on {socket:?}: {source}")]
    Listen { socket: PathBuf, source: io::Error },
    #[error("could not listen for signals: {0}")]
    Signals(io::Error),
    /// A second signal came before all was done.
    #[error("ended in haste: sandboxes may still be stopping; the next bridge finds them")]
    Hurried,
}

/// Serves until a signal ends it: SIGTERM, SIGINT, or SIGHUP when its terminal is closed.
pub async fn serve(options: ServeOptions) -> Result<(), ServeError> {
    let ServeOptions { paths, stop_sandboxes, events } = options;
    let mut signals = Signals::listen().map_err(ServeError::Signals)?;
    paths.prepare()?;
    let locks = Locks::take(&paths)?;
    let opening = Registry::open(paths.clone(), Machines::default(), EventSink::clone(&events));
    let registry = tokio::select! {
        registry = opening => registry?,
        () = signals.next() => return Ok(()),
    };
    let socket = paths.control_socket();
    let server = Server::bind(&socket);
    let server = server.map_err(|source| ServeError::Listen { socket: socket.clone(), source })?;
    events(&Event::Listening { socket });
    tokio::select! {
        () = server.run(registry.clone()) => {}
        () = signals.next() => {}
    }
    drop(server);
    let ending = async {
        if stop_sandboxes {
            registry.stop_all(STOP_GRACE_DEFAULT).await;
        }
        registry.leave().await
    };
    let running = tokio::select! {
        running = ending => running,
        () = signals.next() => return Err(ServeError::Hurried),
    };
    events(&Event::Ending { running });
    drop(locks);
    Ok(())
}

/// The signals that end a bridge.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
