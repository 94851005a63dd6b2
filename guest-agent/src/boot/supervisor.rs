//! The part outside of a sandbox: a process that waits for its end and removes its control group.
//!
//! `launch` runs it in the parent of the fork. It holds nothing of the sandbox: killing it kills the
//! sandbox, by the kernel's doing; asking it to end (TERM) asks the sandbox. It allocates next to
//! nothing, because there is one for each sandbox.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use protocol::boot::BootConfig;

use super::LaunchError;
use crate::cgroup::{self, CgroupError, Directory};
use crate::sys::descriptor::{Standard, replace_standard};
use crate::sys::prctl;
use crate::sys::wait::{self, Next, Status};

/// INT and HUP come from a terminal, and go to the bridge as well, which handles them.
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
    let signals = SigSet::from_iter(HEARD);
    let status = loop {
        match signals.wait() {
            // The sandbox's first process listens to it, and ends in order.
            Ok(Signal::SIGTERM) => drop(kill(child, Signal::SIGTERM)),
            Ok(Signal::SIGCHLD) => {
                if let Some(status) = end_of(child) {
                    break status;
                }
            }
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

/// Asks the kernel to kill us, and with us all of the sandbox, when the supervisor dies; and makes
/// sure that it has not died before the kernel was asked.
pub(super) fn die_with_supervisor(parent_lives: &OwnedFd) -> Result<(), LaunchError> {
    prctl::die_with_parent(Signal::SIGKILL).map_err(|source| LaunchError::Supervision {
        what: "tying the sandbox to its supervisor",
        source,
    })?;
    // In a new pid namespace `getppid` is 0 either way; the pipe knows.
    let mut ends = [PollFd::new(parent_lives.as_fd(), PollFlags::empty())];
    match poll(&mut ends, PollTimeout::ZERO) {
        Ok(0) => Ok(()),
        _ => Err(LaunchError::Orphaned),
    }
}

/// Collects ended children, since one signal may report several, and returns the exit of `child` if it was
/// among them.
fn end_of(child: Pid) -> Option<Status> {
    loop {
        match wait::any_child() {
            Next::Death(death) if death.pid == child => return Some(death.status),
            Next::NoChildren => return Some(Status::Exited { code: 0 }),
            Next::Death(_) => {}
            Next::AllAlive => return None,
        }
    }
}

/// The control group of a sandbox. Its sessions' groups are made below it, beside the leaf in which
/// the sandbox's first process is born: a migration would cost more than all other steps together.
pub(super) struct SandboxGroup {
    parent: Directory,
    name: String,
    path: PathBuf,
    leaf: Directory,
}

impl SandboxGroup {
    /// Takes the one that the host has made, with its bounds, or makes one below the group that this
    /// process is in; and gives it to the sandbox's root. What bounds the group stays the host's.
    pub(super) fn create(config: &BootConfig, owner: Option<u32>) -> Result<Self, CgroupError> {
        let name = format!("burrow-{}", config.sandbox);
        let (parent_path, is_made) = match Path::new(&config.group).parent() {
            Some(parent) => (parent.to_owned(), true),
            None => (cgroup::own_directory()?, false),
        };
        let path = parent_path.join(&name);
        let make = || {
            let parent = Directory::open(&parent_path)?;
            if !is_made {
                // The group of a killed predecessor may still exist. If a process lives in it, it belongs to
                // somebody.
                if parent.has(&name) {
                    parent.remove_tree(&name)?;
                }
                parent.make(&name)?;
            }
            let top = parent.open_below(&name)?;
            top.make(cgroup::AGENT_LEAF)?;
            let leaf = top.open_below(cgroup::AGENT_LEAF)?;
            // No first process can be born below a group whose processes share controllers, and the
            // attempt would spoil the prepared namespace.
            if leaf.read("cgroup.type")?.trim_end() != "domain" {
                return Err(io::Error::from(io::ErrorKind::Unsupported));
            }
            if let Some(owner) = owner {
                top.delegate(owner)?;
                leaf.delegate(owner)?;
            }
            Ok(Self { parent, name: name.clone(), path: path.clone(), leaf })
        };
        make().map_err(|source| CgroupError::Failed { step: "making the sandbox's group", source })
    }

    /// The group in which the first process is born.
    pub(super) fn leaf(&self) -> BorrowedFd<'_> {
        self.leaf.as_fd()
    }

    /// Moves this process to where it should have been born.
    pub(super) fn enter(&self) -> io::Result<()> {
        self.leaf.write("cgroup.procs", "0")
    }

    /// The directory that holds the sessions' groups, by its path on the host. Nothing of the host's
    /// hierarchy stays open.
    pub(super) fn into_path(self) -> PathBuf {
        self.path
    }

    /// Kills every process in it and removes it. If that fails, the next launch of the same name does it.
    fn remove(self) {
        self.parent.kill_and_remove(&self.name).ok();
    }
}
