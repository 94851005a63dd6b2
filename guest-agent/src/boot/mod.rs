//! Stage 1: from a bare process to the first process of a sandbox, as a table of named steps.
//!
//! `main` calls [`launch::enter`] on a host and [`machine::enter`] in a machine, before there is a thread or
//! a runtime. The steps are listed in [`steps`] and in `machine::steps`, each fatal or best-effort, and each
//! timed. The result of each is reported, so that a sandbox can tell what it lacks. Nothing here runs after
//! the agent has begun to serve.

mod devices;
pub mod error;
mod ids;
mod kernel;
pub mod launch;
pub mod layer;
pub mod machine;
pub mod network;
mod overlay;
mod patchwork;
pub mod privileges;
mod root;
pub mod steps;
mod supervisor;

pub use error::{BootError, LaunchError};

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use protocol::boot::BootConfig;

use crate::cgroup::Directory;
use crate::sys::clock;

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The sandbox lacks what the step gives, for this reason. A step with nothing to do is done.
    Skipped(&'static str),
    /// It failed, and the sandbox works without it.
    Failed(String),
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    pub name: &'static str,
    pub outcome: Outcome,
    pub micros: u64,
}

/// Whether a sandbox can work without a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Fatal,
    BestEffort,
}

/// One step. It leaves what later steps need in the [`Stage`].
struct Step {
    name: &'static str,
    need: Need,
    run: fn(&mut Stage) -> Result<Outcome, BootError>,
}

/// State that the steps share.
struct Stage {
    config: BootConfig,
    /// What only the boot of a machine needs.
    machine: Option<machine::Facts>,
    /// Whether the agent is root only in its own user namespace.
    in_user_namespace: bool,
    /// The future root directory, until it is the root.
    root: PathBuf,
    /// The read-only lower layer, opened before anything was mounted over it.
    lower: Option<OwnedFd>,
    /// The same with its owners mapped to the sandbox's users.
    mapped: Option<OwnedFd>,
    /// Where that is now.
    lower_path: PathBuf,
    /// The scratch file system of a sandbox, which no path leads to after the boot.
    scratch: Option<OwnedFd>,
    /// Whether the root is a patchwork of several mounts.
    is_patchwork: bool,
    /// The sandbox's control group, by its path while the host's tree is still there.
    group_path: Option<PathBuf>,
    /// The same group, open, with nothing above it reachable.
    group: Option<Directory>,
    /// The users of the sandbox, if they differ from the host's.
    ids: Option<ids::Namespaces>,
    /// Why they are not, although that was asked for.
    ids_missing: Option<String>,
    /// Ends with the supervisor.
    parent_lives: Option<OwnedFd>,
}

impl Stage {
    fn new(config: BootConfig) -> Self {
        Self {
            config,
            machine: None,
            in_user_namespace: false,
            root: "/".into(),
            lower: None,
            mapped: None,
            lower_path: "/".into(),
            scratch: None,
            is_patchwork: false,
            group_path: None,
            group: None,
            ids: None,
            ids_missing: None,
            parent_lives: None,
        }
    }

    /// Whether root of the sandbox is root of the host.
    fn has_host_users(&self) -> bool {
        !self.in_user_namespace && self.ids.is_none()
    }
}

/// Runs the steps in order and ends at the first fatal failure.
fn run(steps: &[Step], stage: &mut Stage, report: &mut Vec<StepReport>) -> Result<(), BootError> {
    for step in steps {
        let begun_us = clock::monotonic_us();
        let outcome = match ((step.run)(stage), step.need) {
            (Ok(outcome), _) => outcome,
            (Err(error), Need::BestEffort) => Outcome::Failed(error.to_string()),
            (Err(error), Need::Fatal) => return Err(error),
        };
        let micros = clock::monotonic_us() - begun_us;
        report.push(StepReport { name: step.name, outcome, micros });
    }
    Ok(())
}
