//! Machines: what a sandbox runs in. How one is started, found again and stopped, and what it
//! leaves behind.
//!
//! ```text
//!            start                       exited
//!   (spec) ─────────▶ Running ──────────────────▶ MachineExit ──▶ clean
//!   (trace) ────────▶    │ stop(grace): TERM, grace, then kill
//!            adopt       │ kill: at once
//! ```
//!
//! A machine knows nothing of names, records or logs: those are `sandbox`'s, which calls this. It
//! never decides by itself to end a machine, except one whose start failed half-way.

#![forbid(unsafe_code)]

mod boot;
pub mod cloud_hypervisor;
pub mod drive;
mod error;
pub mod external;
pub mod firecracker;
pub mod id;
pub mod identity;
pub mod kind;
pub mod kvm;
pub mod limits;
pub mod process;
pub mod qemu;
pub mod supervisor;
pub mod vmm;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use protocol::ClientId;
use protocol::limits::RESUME_WINDOW;
use serde::{Deserialize, Serialize};

use crate::limits::BOOT_DEADLINE;
use crate::limits::REDIAL_DEADLINE;
use agent_client::guest::{Guest, Options};
use agent_client::link::Address;
pub use error::{Blame, MachineError};
use host::secret::{self, wipe_text};
pub use id::SandboxId;
pub use identity::ProcessIdentity;
pub use kind::{Capability, MachineKind, Machines, UnknownMachine};
pub use process::bind::Bind;
pub use process::bounds::Bounds;
pub use process::confinement::{Confinement, Users};
pub use process::scratch::{NoDisk, ScratchPlace, ScratchPolicy};

/// A future behind a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way to run machines.
pub trait Machine: Send + Sync {
    /// Starts a machine and waits until its agent has answered. What a failed start has made is
    /// gone again when this returns, and when it is dropped half-way.
    fn start(&self, spec: MachineSpec) -> BoxFuture<'_, Result<Arc<dyn Running>, MachineError>>;

    /// Finds a machine that an earlier bridge started.
    fn adopt(
        &self,
        id: SandboxId,
        directories: Directories,
        trace: Trace,
    ) -> BoxFuture<'_, Adoption>;

    /// Removes a machine's leftovers on the host, best effort. A machine whose start was cut off,
    /// so that there is no trace of it, is ended first.
    fn clean(&self, id: SandboxId, directories: Option<Directories>) -> BoxFuture<'_, ()>;

    /// Refuses a snapshot, by the description in its directory, from which the machine of this specification
    /// could not be restored on this host. Starts nothing.
    fn check_fit(&self, _: MachineSpec, from: PathBuf) -> BoxFuture<'_, Result<(), MachineError>> {
        let reason = "machines of its kind have no snapshots".to_owned();
        Box::pin(async { Err(MachineError::BrokenSnapshot { path: from, reason }) })
    }
}

/// Kills a machine of any kind at once by what is on disk of it, and returns when its processes have ended. Its
/// files stay for the bridge that comes next.
pub async fn end_at_once(directories: &Directories, trace: &Trace) {
    let notes = [process::NOTE, vmm::NOTE].map(|note| directories.runtime.join(note));
    supervisor::Supervisor::end_at_once(&notes, trace.process.as_ref()).await;
}

/// A machine that was started or found. Dropping it leaves the machine as it is.
pub trait Running: Send + Sync {
    /// The agent inside; `None` when the machine was found and its agent does not answer.
    fn guest(&self) -> Option<Guest>;

    /// What a later bridge needs to find this machine again.
    fn trace(&self) -> Trace;

    /// What was requested and is not enforced here, as messages; only the bridge that started the
    /// machine knows.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Makes a directory of the host visible in it, before anything runs there.
    fn bind<'a>(&'a self, _: &'a Bind) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Pause and snapshot; `None` for a machine that can only run and end.
    fn suspend(&self) -> Option<&dyn Suspend> {
        None
    }

    /// Stops in order: the agent is asked, granted `grace`, and killed when it takes longer.
    /// Returns when the machine is gone, or when even killing did not help in time.
    fn stop(&self, grace: Duration) -> BoxFuture<'_, ()>;

    /// Ends the machine at once, without waiting for its end. A second call uses more force.
    fn kill(&self);

    /// Whether it was killed from here, on request or because it did not stop.
    fn was_killed(&self) -> bool;

    /// Resolves when the machine is gone; again and again the same.
    fn exited(&self) -> BoxFuture<'static, MachineExit>;
}

/// Pause and snapshot. Nothing is lost: requests to the agent wait, and continue afterwards.
pub trait Suspend: Send + Sync {
    /// Whether this host lets it be paused, as far as that can be known before it is tried.
    fn may_pause(&self) -> Result<(), MachineError> {
        Ok(())
    }

    /// Whether it can be saved as a snapshot, as far as that can be known before it is tried.
    fn may_snapshot(&self) -> Result<(), MachineError>;

    /// Pauses it until it is resumed, even if this bridge is gone meanwhile.
    fn pause(&self) -> BoxFuture<'_, Result<(), MachineError>>;

    /// Resumes it, with its clock set to the host's.
    fn resume(&self) -> BoxFuture<'_, Result<Resumed, MachineError>>;

    /// Resumes a machine that one of these left half-way because its caller was dropped; otherwise
    /// does nothing.
    fn set_right(&self) -> BoxFuture<'_, ()>;

    /// Saves the machine into an empty directory and lets it continue. The snapshot is complete and on disk
    /// when this returns; the remains of a failure are useless.
    fn snapshot<'a>(&'a self, into: &'a Path) -> BoxFuture<'a, Result<(), MachineError>>;

    /// The same, but its programs stay frozen, so that nothing happens in it that the snapshot does not have. The
    /// caller ends it, or has it continue by `set_right`.
    fn put_down<'a>(&'a self, into: &'a Path) -> BoxFuture<'a, Result<(), MachineError>>;
}

/// How a machine resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// How far its clock was ahead of the host's before it was set, in microseconds. Absent if it shares the
    /// host's clock.
    pub drift_us: Option<i64>,
}

/// The state of a machine that an earlier bridge left behind.
pub enum Adoption {
    /// It lives; its agent may or may not answer.
    Alive(Arc<dyn Running>),
    /// It has ended.
    Dead,
}

/// The machine to start.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    pub id: SandboxId,
    pub hostname: String,
    /// The directory that becomes the root file system, read-only.
    pub root: PathBuf,
    /// The image of a virtual machine, by its name in the kit or its path.
    pub image: Option<String>,
    pub scratch_bytes: u64,
    /// The state directory of the bridge, if the writable layer of a process machine is on its disk.
    pub scratch_disk: Option<PathBuf>,
    pub bounds: Bounds,
    /// For a process machine.
    pub confinement: Confinement,
    pub env: Vec<(String, String)>,
    /// Variables added to the environment, and never shown or kept.
    pub secrets: Vec<secret::Variable>,
    /// Paths of `root` that programs must not see.
    pub hide: Vec<String>,
    /// Where the machine keeps what outlives this bridge; `None` if it must not outlive it.
    pub directories: Option<Directories>,
    /// Where the agent of an external machine listens.
    pub address: Option<Address>,
    /// The directory of a snapshot to restore, instead of booting.
    pub restore: Option<PathBuf>,
    /// A directory of the host for a machine that has to know it when it boots.
    pub bind: Option<Bind>,
}

impl MachineSpec {
    /// The whole environment. The caller wipes it after use.
    fn environment(&self) -> Vec<(String, String)> {
        let secrets = self.secrets.iter();
        let secrets = secrets.map(|(name, value)| (name.clone(), value.expose().to_owned()));
        self.env.iter().cloned().chain(secrets).collect()
    }
}

/// Writes over the values of an environment that had secrets in it.
fn wipe(env: &mut [(String, String)]) {
    for (_, value) in env {
        wipe_text(value);
    }
}

/// The two directories of one sandbox; both are there and private.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directories {
    pub runtime: PathBuf,
    pub state: PathBuf,
}

/// What a later bridge needs to find a machine again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessIdentity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// It was paused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// How a machine ended, as far as the bridge can know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineExit {
    /// Its process returned.
    Exited { code: i32 },
    /// Its process died of a signal.
    Signaled { signal: i32 },
    /// The machine was switched off from within; the monitor may say by what.
    PoweredOff { reason: Option<String> },
    /// Its kernel gave up.
    Panicked { console: String },
    /// It has ended, and the kernel reports how only to its parent, which was an earlier bridge.
    Gone,
    /// Nobody can reach it any more.
    Unreachable { reason: String },
}

impl fmt::Display for MachineExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "its agent exited with {code}"),
            Self::Signaled { signal } => write!(f, "its agent died of signal {signal}"),
            Self::PoweredOff { reason: Some(reason) } => {
                write!(f, "it was switched off from within: {reason}")
            }
            Self::PoweredOff { reason: None } => f.write_str("it was switched off from within"),
            Self::Panicked { console } => write!(f, "its kernel died: {console}"),
            Self::Gone => f.write_str("its agent is gone"),
            Self::Unreachable { reason } => f.write_str(reason),
        }
    }
}

/// How the bridge identifies itself to agents. With a door, the identity is the door's path: a bridge that
/// succeeds a dead one is the same client, so streams that the dead one left open end at once. Where others
/// may dial too, each bridge is a client of its own.
fn guest_options(door: Option<&Address>) -> Options {
    let client = door.map(|door| {
        let digest = ring::digest::digest(&ring::digest::SHA256, door.to_string().as_bytes());
        let (id, _) = digest.as_ref().split_first_chunk().expect("a digest is longer than an id");
        ClientId(*id)
    });
    Options {
        client,
        resume_window: RESUME_WINDOW,
        dial_deadline: REDIAL_DEADLINE,
        welcome_deadline: BOOT_DEADLINE,
        ..Options::named(concat!("burrow ", env!("CARGO_PKG_VERSION")))
    }
}
