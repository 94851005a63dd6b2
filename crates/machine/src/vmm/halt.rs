//! What a kind of virtual machine can do besides running: pause, save a snapshot, and restore one.
//!
//! `suspend` and `vmm` call it with the directory of the machine's sockets. Nothing here speaks to the agent
//! or knows the names of snapshots.

use std::io;
use std::path::{Path, PathBuf};

use super::{Plan, Programs, SCRATCH, copy};
use crate::kind::Program;
use crate::{BoxFuture, MachineError};

/// See the module's description.
pub trait Halt: Send + Sync {
    /// The monitor and its release. Only the same one can restore a snapshot.
    fn version(&self) -> BoxFuture<'_, Result<String, MachineError>>;

    /// Stops the processors of the machine.
    fn pause<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>>;

    /// Lets them continue.
    fn resume<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>>;

    /// Makes the connection to a running machine's agent again, which cuts its links: the programs between
    /// may not have survived a pause.
    fn reconnect<'a>(&'a self, _directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async { Ok(()) })
    }

    /// Whether a pause cuts the links to the agent, so that it is dialled again.
    fn pause_cuts(&self) -> bool {
        false
    }

    /// Whether an agent whose links were cut must not be dialled before it has called.
    fn calls_first(&self) -> bool {
        false
    }

    /// Repairs a machine that a bridge left in the middle of an operation: it is paused if it was `paused`,
    /// and runs otherwise.
    fn mend<'a>(&'a self, directory: &'a Path, paused: bool) -> BoxFuture<'a, Standing>;

    /// Refuses a machine that cannot be saved.
    fn check(&self, _directory: &Path) -> Result<(), MachineError> {
        Ok(())
    }

    /// Saves the machine and lets it continue. This may cut its links.
    fn save<'a>(&'a self, saving: &'a Saving) -> BoxFuture<'a, Result<(), MachineError>>;

    /// The same programs, which wait for a machine to restore instead of booting one.
    fn awaiting(&self, programs: Programs) -> Programs {
        programs
    }

    /// Restores the machine that was saved in a directory into programs that wait, and lets it run.
    fn load<'a>(
        &'a self,
        plan: &'a Plan,
        from: &'a Path,
    ) -> BoxFuture<'a, Result<(), MachineError>>;
}

/// A machine to save.
#[derive(Clone, Debug)]
pub struct Saving {
    /// Where its sockets are.
    pub directory: PathBuf,
    /// Where to write it.
    pub into: PathBuf,
    pub memory_bytes: u64,
    /// The disk of its writable layer, which is copied at the same moment.
    pub scratch: Option<PathBuf>,
}

impl Saving {
    /// Copies the disk of the writable layer, if there is one.
    pub async fn copy_disk(&self) -> io::Result<()> {
        let Some(scratch) = self.scratch.clone() else { return Ok(()) };
        let to = self.into.join(SCRATCH);
        let copied = tokio::task::spawn_blocking(move || copy::sparse(&scratch, &to)).await;
        copied.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

/// The first line of what a monitor says of its version.
pub async fn version_of(program: &Program) -> Result<String, MachineError> {
    let output = tokio::process::Command::new(program.find()?).arg("--version").output().await;
    let output =
        output.map_err(|source| MachineError::Host { action: "run the monitor", source })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// How a machine was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Runs,
    /// It runs, and the connection to its agent was made again. The agent calls when it notices that, and
    /// must not be dialled before.
    RunsAnew,
    StandsStill,
}
