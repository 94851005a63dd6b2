//! Machines: what a sandbox runs in. How one is started, found again, stopped, and what it leaves.
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

/// A future behind a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way to run machines.
pub trait Machine: Send + Sync {
    /// Starts a machine and waits until its agent has answered. What a failed start has made is
    /// gone again when this returns, and when it is dropped half-way.
    fn start(&self, spec: MachineSpec) -> BoxFuture<'_, Result<Arc<dyn Running>, MachineError>>;

    /// Finds a machine again that an earlier bridge has started, with what it keeps outside.
    fn adopt(&self, id: SandboxId, kept: Directories, trace: Trace) -> BoxFuture<'_, Adoption>;

    /// Removes what a machine left on the host, best effort. One whose start was cut off half-way,
    /// so that there is no trace of it, is ended first.
    fn clean(&self, id: SandboxId, directories: Option<Directories>) -> BoxFuture<'_, ()>;
}

/// A machine that was started or found. Dropping it leaves the machine as it is.
pub trait Running: Send + Sync {
    /// The agent inside; `None` when the machine was found and its agent does not answer.
    fn guest(&self) -> Option<Guest>;

    /// What a later bridge needs to find this machine again.
    fn trace(&self) -> Trace;

    /// What was asked for and does not hold here, in words, as far as this bridge has started it.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Makes a directory of the host visible in it, before anything runs there.
    fn bind<'a>(&'a self, _: &'a Bind) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// What it can do with its time; `None` for a machine that can only run and end.
    fn suspend(&self) -> Option<&dyn Suspend> {
        None
    }

    /// Stops in order: the agent is asked, granted `grace`, and killed when it takes longer.
    /// Returns when the machine is gone, or when even killing did not help in time.
    fn stop(&self, grace: Duration) -> BoxFuture<'_, ()>;

    /// Ends the machine at once, without waiting for it to be gone. Once more, harder.
    fn kill(&self);

    /// Whether it was killed from here, because somebody wanted it or because it did not stop.
    fn was_killed(&self) -> bool;

    /// Resolves when the machine is gone; again and again the same.
    fn exited(&self) -> BoxFuture<'static, MachineExit>;
}

/// Standing still, and being written down. None of it loses anything: what is under way with the
/// agent waits, and goes on.
pub trait Suspend: Send + Sync {
    /// Stands still until it is resumed, also when this bridge is gone meanwhile.
    fn pause(&self) -> BoxFuture<'_, Result<(), MachineError>>;

    /// Goes on, with its clock stepped to the host's.
    fn resume(&self) -> BoxFuture<'_, Result<Resumed, MachineError>>;

    /// Lets a machine go on that one of these has left half-way because nobody waited for it any
    /// more; nothing otherwise.
    fn set_right(&self) -> BoxFuture<'_, ()>;

    /// Writes the machine into an empty directory and lets it go on. What is written is whole and on
    /// disk when this returns; what a failure leaves is of no use.
    fn snapshot<'a>(&'a self, into: &'a Path) -> BoxFuture<'a, Result<(), MachineError>>;
}

/// How a machine went on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// How far its clock was ahead of the host's before it was stepped, in microseconds. Absent where
    /// it shares the host's.
    pub drift_us: Option<i64>,
}

/// What became of a machine that an earlier bridge left behind.
pub enum Adoption {
    /// It lives; its agent may or may not answer.
    Alive(Arc<dyn Running>),
    /// It is no more.
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
    pub bounds: Bounds,
    pub env: Vec<(String, String)>,
    /// What comes on top of it, and is shown and kept nowhere.
    pub secrets: Vec<secret::Variable>,
    /// Paths of `root` that programs must not see.
    pub hide: Vec<String>,
    /// Where the machine keeps what outlives this bridge; `None` for one that shall not.
    pub directories: Option<Directories>,
    /// Where the agent of an external machine listens.
    pub address: Option<Address>,
    /// The directory of a snapshot that the machine goes on from, instead of booting.
    pub restore: Option<PathBuf>,
    /// A directory of the host for a machine that has to know it when it boots.
    pub bind: Option<Bind>,
}

impl MachineSpec {
    /// Its whole environment. Whoever asks wipes it after use.
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
    /// It was told to stand still.
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
    /// It is gone, and the kernel tells only its parent how; an earlier bridge was that.
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

/// How the bridge presents itself to agents. With the place of its door an agent is told by what the
/// bridge is known there: one that follows another that has died is the same to it, and so what the dead
/// one had open ends at once. Where others may dial too, each is somebody else.
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
