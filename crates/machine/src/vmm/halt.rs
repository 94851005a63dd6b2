//! What a kind of virtual machine can do besides running: stand still, be written down, and go on
//! from what was written.
//!
//! `suspend` and `vmm` call it, with the directory of the machine's sockets. Nothing here speaks to
//! the agent, and nothing knows snapshots by a name.

use std::path::{Path, PathBuf};

use super::{Plan, Programs};
use crate::{BoxFuture, MachineError};

/// See the module's description.
pub trait Halt: Send + Sync {
    /// Which monitor, of which release. A snapshot is restored by the same alone.
    fn version(&self) -> BoxFuture<'_, Result<String, MachineError>>;

    /// Stops the processors of the machine.
    fn pause<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>>;

    /// Lets them go on.
    fn resume<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>>;

    /// Makes the way to a running machine's agent anew, which cuts its links: whatever stands between
    /// may not have survived a pause.
    fn reconnect<'a>(&'a self, _directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async { Ok(()) })
    }

    /// Brings a machine back into order that a bridge has left in the midst of something: it stands
    /// still if it was `paused`, and runs otherwise.
    fn mend<'a>(&'a self, directory: &'a Path, paused: bool) -> BoxFuture<'a, Standing>;

    /// Refuses a machine that cannot be written down.
    fn check(&self, _directory: &Path) -> Result<(), MachineError> {
        Ok(())
    }

    /// Writes the machine down and lets it go on. Its links may be cut by that.
    fn save<'a>(&'a self, saving: &'a Saving) -> BoxFuture<'a, Result<(), MachineError>>;

    /// The same programs, to wait for a machine instead of booting one.
    fn awaiting(&self, programs: Programs) -> Programs {
        programs
    }

    /// Makes the machine that was written into a directory of programs that wait, and lets it run.
    fn load<'a>(
        &'a self,
        plan: &'a Plan,
        from: &'a Path,
    ) -> BoxFuture<'a, Result<(), MachineError>>;
}

/// A machine that is to be written down.
#[derive(Clone, Debug)]
pub struct Saving {
    /// Where its sockets are.
    pub directory: PathBuf,
    /// Where to write it.
    pub into: PathBuf,
    pub memory_bytes: u64,
    /// The disk of its writable layer, which is copied in the same moment.
    pub scratch: Option<PathBuf>,
}

/// How a machine was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Runs,
    /// It runs, and the way to its agent was made anew: the agent calls when it has found out, and must
    /// not be dialled before.
    RunsAnew,
    StandsStill,
}
