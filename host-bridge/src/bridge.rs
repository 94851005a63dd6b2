//! Sandboxes for programs that use the bridge as a library: in this process, without a daemon.
//!
//! ```no_run
//! use host_bridge::{Bridge, BridgeError, Paths, Spec};
//!
//! # async fn example() -> Result<(), BridgeError> {
//! let bridge = Bridge::open(Paths::from_environment()?).await?;
//! let sandbox = bridge.start(Spec::new("demo".parse()?)).await?;
//! let listed = sandbox.exec(["ls", "-l", "/"]).await?;
//! assert!(listed.is_success());
//! sandbox.run("python", "x = 41").await?;
//! assert_eq!(sandbox.run("python", "print(x + 1)").await?.stdout(), b"42\n");
//! sandbox.remove().await?;
//! # Ok(())
//! # }
//! ```
//!
//! It only combines other parts: paths and their locks, the registry, the typed client. For
//! everything else, use [`Inside::guest`] and [`Bridge::registry`]. Nothing in this crate uses it,
//! and it decides nothing that those parts do not.

mod inside;

use std::io;
use std::ops::Deref;
use std::sync::Arc;

pub use inside::{Inside, Output, WHOLE_OUTPUT_BYTES_MAX};

use agent_client::guest::GuestError;
use host::lock::{LockError, Locks};
use host::paths::{Paths, PathsError};
use machine::{MachineExit, Machines};
use sandbox::limits::STOP_GRACE_DEFAULT;
use sandbox::{
    InvalidName, OneShot, Record, Registry, SandboxError, SandboxRef, Spec, event, one_shot,
};

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    #[error(transparent)]
    Paths(#[from] PathsError),
    /// Another bridge, usually a daemon, has these directories.
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error("{language:?} cannot be the name of a language")]
    Language { language: String },
    #[error("cannot make a random id: {0}")]
    Draw(io::Error),
}

/// The sandboxes below two directories. Clones are the same; they and their sandboxes keep other
/// bridges out of the directories.
#[derive(Clone)]
pub struct Bridge {
    paths: Paths,
    registry: Registry,
    _locks: Arc<Locks>,
}

impl Bridge {
    /// Makes the directories where there are none, and takes charge of the sandboxes that an earlier
    /// bridge has left in them. Refused while another bridge has them.
    pub async fn open(paths: Paths) -> Result<Self, BridgeError> {
        paths.prepare()?;
        let locks = Arc::new(Locks::take(&paths)?);
        let registry = Registry::open(paths.clone(), Machines::default(), event::nobody()).await?;
        Ok(Self { paths, registry, _locks: locks })
    }

    /// Starts a sandbox, and waits until its agent has answered.
    pub async fn start(&self, spec: Spec) -> Result<Sandbox, BridgeError> {
        let which = spec.which();
        self.registry.create(spec).await?;
        self.find(&which)
    }

    /// A sandbox that runs already.
    pub fn find(&self, which: &SandboxRef) -> Result<Sandbox, BridgeError> {
        let guest = self.registry.guest(which)?;
        let workdir = self.registry.get(which)?.workdir;
        let inside = Inside::of_sandbox(guest, workdir, self.registry.clone(), which.clone());
        Ok(Sandbox { bridge: self.clone(), which: which.clone(), inside })
    }

    /// A sandbox without name, record and log, which ends with this process at the latest.
    pub async fn one_shot(&self, spec: &Spec) -> Result<Once, BridgeError> {
        let machine = one_shot(&self.paths, spec).await?;
        let inside = Inside::of(machine.guest().clone(), spec.workdir.clone());
        Ok(Once { machine, inside })
    }

    /// Lists, pages, waits and times to live.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Releases all running sandboxes, for the next bridge to find, and returns their number.
    pub async fn leave(self) -> usize {
        self.registry.leave().await
    }
}

/// A sandbox that stays until it is removed. Dropping this leaves it as it is.
#[derive(Clone)]
pub struct Sandbox {
    bridge: Bridge,
    which: SandboxRef,
    inside: Inside,
}

impl Sandbox {
    pub fn which(&self) -> &SandboxRef {
        &self.which
    }

    /// The record of a sandbox.
    pub fn record(&self) -> Result<Record, BridgeError> {
        Ok(self.bridge.registry.get(&self.which)?)
    }

    /// Stops it in order and waits until it is gone; record and log stay.
    pub async fn stop(&self) -> Result<Record, BridgeError> {
        Ok(self.bridge.registry.stop(&self.which, STOP_GRACE_DEFAULT).await?)
    }

    /// Ends it at once, if it still runs, and removes all that is kept of it.
    pub async fn remove(self) -> Result<Record, BridgeError> {
        Ok(self.bridge.registry.remove(&self.which, true).await?)
    }
}

impl Deref for Sandbox {
    type Target = Inside;

    fn deref(&self) -> &Inside {
        &self.inside
    }
}

/// A sandbox of this process alone. Dropping it kills it; [`Once::end`] also waits until it is gone.
pub struct Once {
    machine: OneShot,
    inside: Inside,
}

impl Once {
    pub async fn end(self) -> MachineExit {
        let Self { machine, inside } = self;
        drop(inside);
        machine.end().await
    }
}

impl Deref for Once {
    type Target = Inside;

    fn deref(&self) -> &Inside {
        &self.inside
    }
}
