//! What a kind of virtual machine can do besides running: pause, save a snapshot, and restore one.
//!
//! `suspend` and `vmm` call it with the directory of the machine's sockets. Nothing here speaks to the agent
//! or knows the names of snapshots.

use std::path::{Path, PathBuf};

use super::{Plan, Programs};
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

/// How a machine was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Runs,
    /// It runs, and the connection to its agent was made again. The agent calls when it notices that, and
    /// must not be dialled before.
    RunsAnew,
    StandsStill,
}
