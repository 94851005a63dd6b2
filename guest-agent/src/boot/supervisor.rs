//! What remains outside of a sandbox: a process that waits for it to end and removes its control
//! group.
//!
//! `launch` runs it in the parent of the fork. It holds nothing of the sandbox: killing it kills the
//! sandbox, by the kernel's doing; asking it to end (TERM) asks the sandbox. It allocates next to
//! nothing, because there is one for each sandbox.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use super::LaunchError;
use crate::cgroup::{self, CgroupError, Directory};
use crate::sys::descriptor::{Standard, replace_standard};
use crate::sys::wait::{self, Next, Status};

/// INT and HUP are a terminal's, and go to the bridge as well, which knows what to do.
const HEARD: [Signal; 4] = [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Called before the fork, so that no signal is missed.
pub(super) fn block_signals() -> Result<(), LaunchError> {
    SigSet::from_iter(HEARD).thread_block().map_err(|errno| LaunchError::Supervision {
        what: "blocking signals",
        source: errno.into(),
    })
}

/// Waits for the sandbox's first process. Returns its exit code, or 128 plus the signal that ended it.
pub(super) fn watch(child: Pid, group: Option<SandboxGroup>) -> Result<u8, LaunchError> {
    // The host's ends must close when the sandbox closes them.
    let let_go = || -> io::Result<()> {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        replace_standard(null.as_fd(), Standard::Input)?;
        replace_standard(null.as_fd(), Standard::Output)
    };
    let_go().map_err(|source| LaunchError::Supervision {
        what: "closing the host's descriptors",
        source,
    })?;
    let heard = SigSet::from_iter(HEARD);
    let status = loop {
        match heard.wait() {
            // The sandbox's first process listens to it, and ends in order.
            Ok(Signal::SIGTERM) => drop(kill(child, Signal::SIGTERM)),
            Ok(Signal::SIGCHLD) => match wait::any_child() {
                Next::Death(death) if death.pid == child => break death.status,
                Next::NoChildren => break Status::Exited { code: 0 },
                Next::Death(_) | Next::AllAlive => {}
            },
            _ => {}
        }
    };
    if let Some(group) = group {
        group.remove();
    }
    Ok(match status {
        Status::Exited { code } => code as u8,
        Status::Signaled { signal, .. } => 128 + signal as u8,
    })
}

/// The control group of a sandbox. Its sessions' groups are made below it, beside the leaf in which
/// the sandbox's first process is born: a migration would cost more than all other steps together.
pub(super) struct SandboxGroup {
    parent: Directory,
    name: String,
    path: PathBuf,
    top: Directory,
    leaf: Directory,
}

impl SandboxGroup {
    /// Makes it below the group that this process is in.
    pub(super) fn create(sandbox: &str) -> Result<Self, CgroupError> {
        let parent_path = cgroup::own_directory()?;
        let name = format!("burrow-{sandbox}");
        let path = parent_path.join(&name);
        let make = || {
            let parent = Directory::open(&parent_path)?;
            // As far as whoever owns the parent allows.
            cgroup::hand_down(&parent);
            // One of a predecessor that was killed may still be there. If a process lives in it,
            // it is somebody's.
            if parent.has(&name) {
                parent.remove_tree(&name)?;
            }
            parent.make(&name)?;
            let top = parent.open_below(&name)?;
            top.make(cgroup::AGENT_LEAF)?;
            let leaf = top.open_below(cgroup::AGENT_LEAF)?;
            Ok(Self { parent, name: name.clone(), path: path.clone(), top, leaf })
        };
        make().map_err(|source| CgroupError::Failed { step: "making the sandbox's group", source })
    }

    /// Where the first process is to be born.
    pub(super) fn leaf(&self) -> BorrowedFd<'_> {
        self.leaf.as_fd()
    }

    /// Moves this process to where it should have been born.
    pub(super) fn enter(&self) -> io::Result<()> {
        self.leaf.write("cgroup.procs", "0")
    }

    /// The directory that holds the sessions' groups, by its path on the host, and opened there.
    pub(super) fn into_top(self) -> (PathBuf, Directory) {
        (self.path, self.top)
    }

    /// Kills every process in it and removes it. If that fails, the next launch of the same name does it.
    fn remove(self) {
        self.parent.kill_and_remove(&self.name).ok();
    }
}
