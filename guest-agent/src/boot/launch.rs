//! `guest-agent launch`: from an ordinary process to the supervisor of a sandbox and, in a child,
//! the sandbox's first process.
//!
//! `main` calls [`enter`] once, before there is a thread. The descriptors are the host's doing: 0
//! is the socket to it, 1 the door or the empty device, 2 the log. Whoever returns as
//! [`Role::Init`] has them; the supervisor keeps the log alone.
//!
//! ```text
//! launch ── own group, user and pid namespace ── fork ──┬── supervisor: waits, removes the group
//!                                                       └── child: the other namespaces, steps, serves
//! ```

use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{getegid, geteuid, pipe2, setsid};
use protocol::boot::BootConfig;

use super::root::below_host;
use super::supervisor::{self, SandboxGroup};
use super::{LaunchError, Outcome, Stage, StepReport, run, steps};
use crate::cgroup::Directory;
use crate::sys::namespace::{Side, fork};
use crate::sys::{clock, prctl};

/// What this process has become.
pub enum Role {
    /// The sandbox is over. Nothing is left to do but to exit with this.
    Supervisor { exit_code: u8 },
    /// PID 1 of the sandbox.
    Init(Booted),
}

/// The result of stage 1.
pub struct Booted {
    pub config: BootConfig,
    pub report: Vec<StepReport>,
    /// For `CgroupSupport::discover`.
    pub cgroup_root: Option<Directory>,
}

/// Becomes the sandbox that `config` describes. An error is returned on whichever side it happens,
/// with descriptor 0 still open to tell the host.
pub fn enter(config: BootConfig) -> Result<Role, LaunchError> {
    let in_user_namespace = !geteuid().is_root();
    // Best effort: without a group, sessions are told apart by what /proc says.
    let group = SandboxGroup::create(&config.sandbox).ok();
    supervisor::block_signals()?;
    enter_outer_namespaces(in_user_namespace)?;
    let (parent_lives, parent) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|errno| {
        LaunchError::Supervision { what: "making a pipe", source: errno.into() }
    })?;
    match fork(group.as_ref().map(SandboxGroup::leaf)).map_err(LaunchError::Fork)? {
        Side::Parent { child } => {
            drop(parent_lives);
            // `parent` stays open until this process is no more.
            let exit_code = supervisor::watch(child, group);
            drop(parent);
            Ok(Role::Supervisor { exit_code: exit_code? })
        }
        Side::Child { in_group } => {
            drop(parent);
            let group = group.filter(|group| in_group || group.enter().is_ok());
            become_init(config, in_user_namespace, group, parent_lives).map(Role::Init)
        }
    }
}

/// The namespaces that a child is born into. The supervisor itself stays in all others, so that it
/// can clean up where it came from.
fn enter_outer_namespaces(in_user_namespace: bool) -> Result<(), LaunchError> {
    let failed = |what| move |source| LaunchError::Namespace { what, source };
    if in_user_namespace {
        let (uid, gid) = (geteuid(), getegid());
        unshare(CloneFlags::CLONE_NEWUSER)
            .map_err(|errno| failed("making a user namespace")(errno.into()))?;
        // The kernel lets an ordinary user map a group only after this.
        for (file, text) in [
            ("/proc/self/setgroups", "deny".to_owned()),
            ("/proc/self/uid_map", format!("0 {uid} 1")),
            ("/proc/self/gid_map", format!("0 {gid} 1")),
        ] {
            std::fs::write(file, text).map_err(failed("becoming root of a user namespace"))?;
        }
    }
    unshare(CloneFlags::CLONE_NEWPID)
        .map_err(|errno| failed("making a pid namespace")(errno.into()))
}

/// The namespaces of the first process alone. There is none for control groups: it would be rooted at
/// the agent's own leaf, and show programs everything but their own group.
const INNER: CloneFlags = CloneFlags::CLONE_NEWNS
    .union(CloneFlags::CLONE_NEWUTS)
    .union(CloneFlags::CLONE_NEWIPC)
    .union(CloneFlags::CLONE_NEWNET);

fn become_init(
    config: BootConfig,
    in_user_namespace: bool,
    group: Option<SandboxGroup>,
    parent_lives: OwnedFd,
) -> Result<Booted, LaunchError> {
    die_with_supervisor(&parent_lives)?;
    drop(parent_lives);
    // A terminal's signals are for whoever sits at it, and not for the sandbox.
    setsid().map_err(|errno| LaunchError::Supervision {
        what: "leaving the session of the host",
        source: errno.into(),
    })?;
    umask(Mode::from_bits_truncate(0o022));

    let begun_us = clock::monotonic_us();
    unshare(INNER).map_err(|errno| LaunchError::Namespace {
        what: "making the namespaces of the sandbox",
        source: errno.into(),
    })?;
    let namespaces = StepReport {
        name: "namespaces",
        outcome: Outcome::Done,
        micros: clock::monotonic_us() - begun_us,
    };

    let (group_path, cgroup_root) = match group.map(SandboxGroup::into_top) {
        Some((path, top)) => (Some(below_host(&path)), Some(top)),
        None => (None, None),
    };
    let mut stage = Stage { in_user_namespace, group_path, ..Stage::new(config) };
    let mut report = vec![namespaces];
    run(steps::STEPS, &mut stage, &mut report)?;
    Ok(Booted { config: stage.config, report, cgroup_root })
}

/// Asks the kernel to kill us, and with us all of the sandbox, when the supervisor dies; and makes
/// sure that it has not died before the kernel was asked.
fn die_with_supervisor(parent_lives: &OwnedFd) -> Result<(), LaunchError> {
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
